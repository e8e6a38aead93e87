//! What somebody outside was shown, or was told to have been done.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{Seen, named, text};

/// What somebody outside knows of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) started: bool,
    pub(crate) output: Option<Result<String, String>>,
    /// A status that is final, and every one seen after it.
    pub(crate) ended: BTreeSet<String>,
    /// The longest of each log.
    pub(crate) logs: BTreeMap<usize, Vec<Json>>,
    /// Paths of steps that were held.
    pub(crate) held: BTreeSet<String>,
    /// Paths and attempts of steps that were resolved.
    pub(crate) resolved: Vec<(String, u64)>,
    /// Names and values of messages that were accepted.
    pub(crate) sent: Vec<(String, String)>,
    /// Titles of questions that were answered, and who did.
    pub(crate) answered: Vec<(String, String)>,
    /// What it had published.
    pub(crate) published: Vec<Json>,
    /// What whoever cancelled it was told.
    pub(crate) cancelled: Vec<String>,
}

impl Shown {
    /// What another process was shown of the run.
    pub(crate) fn add(&mut self, other: Shown) {
        fn more<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
            for one in more {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
        self.started |= other.started;
        self.output = other.output.or(self.output.take());
        self.ended.extend(other.ended);
        for (n, log) in other.logs {
            let longest = self.logs.entry(n).or_default();
            if log.len() > longest.len() {
                *longest = log;
            }
        }
        self.held.extend(other.held);
        more(&mut self.resolved, other.resolved);
        more(&mut self.sent, other.sent);
        more(&mut self.answered, other.answered);
        more(&mut self.published, other.published);
        more(&mut self.cancelled, other.cancelled);
    }
}

/// All that was shown is in the logs, with `rows` rows in the run's mailbox.
pub(crate) fn shown(run: &str, shown: &Shown, seen: &Seen, rows: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let last = seen.entries().next_back();
    let mut say = |what: String| wrong.push(format!("{run}: {what}, and its log ends with {last:?}"));
    if shown.started && last.is_none() {
        say("it was started".to_owned());
    }
    let end = seen.end().map(|end| text(end, "entry").trim_start_matches("run.").to_owned());
    for told in shown.ended.iter().chain(&shown.cancelled) {
        if end.as_ref() != Some(told) {
            say(format!("it was shown as {told}"));
        }
    }
    if let Some(output) = &shown.output {
        let is = match output {
            Ok(value) => seen.end().is_some_and(|end| end["value"]["Ok"] == **value),
            Err(text) => seen.end().is_some_and(|end| end["value"]["Err"]["message"] == **text),
        };
        if !is {
            say(format!("its output was given as {output:?}"));
        }
    }
    for (n, log) in &shown.logs {
        if !seen.logs.get(*n).is_some_and(|seen| seen.starts_with(log)) {
            say(format!("{} entries of log {n} were shown", log.len()));
        }
    }
    let doubted: BTreeSet<&str> = named(seen.entries(), "effect.in_doubt").map(|entry| text(entry, "path")).collect();
    for path in shown.held.iter().filter(|path| !doubted.contains(&***path)) {
        say(format!("{path} was shown as held"));
    }
    for (path, attempt) in &shown.resolved {
        let resolved = named(seen.entries(), "effect.resolved")
            .any(|entry| text(entry, "path") == path && entry["attempt"].as_u64() == Some(*attempt));
        if !resolved && rows == 0 {
            say(format!("attempt {attempt} of {path} was resolved"));
        }
    }
    for (title, by) in &shown.answered {
        let asked = named(seen.entries(), "question.asked").find(|entry| text(entry, "title") == title);
        let answered = named(seen.entries(), "question.answered")
            .any(|entry| asked.is_some_and(|asked| asked["step"] == entry["step"]) && text(entry, "by") == by);
        if !answered && rows == 0 {
            say(format!("{title:?} was answered by {by}"));
        }
    }
    for value in &shown.published {
        if !named(seen.entries(), "value.published").any(|entry| entry["value"] == *value) {
            say(format!("{value} was shown as published"));
        }
    }
    wrong
}
