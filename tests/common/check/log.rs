//! One log.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::text;

/// What the code asks for, and what makes an end of it.
fn ended_by(command: &str) -> Option<&'static str> {
    Some(match command {
        "timer.set" => "timer.fired",
        "signal.awaited" => "signal.received",
        "question.asked" => "question.answered",
        "child.spawned" => "child.result",
        "effect.queued" | "effect.called" => "effect.result",
        _ => return None,
    })
}

/// Commands that are over at once.
const IMMEDIATE: [&str; 4] = ["version.chosen", "message.sent", "value.published", "undo.added"];
const TERMINAL: [&str; 4] = ["run.completed", "run.failed", "run.cancelled", "run.restarted"];

/// A log is a legal history; `ended`: and it is whole.
pub(crate) fn log(run: &str, log: &[Json], ended: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut called: BTreeSet<(u64, u64)> = BTreeSet::new();
    // What each step was asked as.
    let mut asked: BTreeMap<u64, &str> = BTreeMap::new();
    let (mut over, mut closed) = (BTreeSet::new(), BTreeSet::new());
    let (mut cancelled, mut ending, mut terminal) = (false, None, 0);
    let mut last_at = "";
    for (place, entry) in log.iter().enumerate() {
        let mut say = |what: &str| wrong.push(format!("{run}, entry {place}: {what}: {entry}"));
        let (name, step, attempt) = (text(entry, "entry"), entry["step"].as_u64(), entry["attempt"].as_u64());
        if entry["seq"].as_u64() != Some(place as u64) {
            say("its place is another");
        }
        if text(entry, "at") < last_at {
            say("time goes backwards");
        }
        last_at = text(entry, "at");
        if (place == 0) != (name == "run.started") {
            say("a log begins with run.started, once");
        }
        if terminal > 0 {
            say("it stands after the terminal entry");
        }
        let undoes = name == "effect.called" && entry.get("undo").is_some();
        let again = name == "effect.called" && attempt != Some(1);
        let queued = |asked: &BTreeMap<u64, &str>| step.is_some_and(|step| asked.get(&step) == Some(&"effect.queued"));
        let begins_queued = name == "effect.called" && attempt == Some(1) && queued(&asked);
        if (ended_by(name).is_some() && !again && !begins_queued) || IMMEDIATE.contains(&name) {
            // Steps are numbered in the order asked.
            if step != Some(asked.len() as u64) {
                say("its step has another number");
            }
            asked.insert(asked.len() as u64, name);
            if cancelled && !undoes && name != "undo.added" && !text(entry, "path").contains("shield[") {
                say("asked although the run is cancelled");
            }
            if ending.is_some() != undoes {
                say("the code is over and asks, or is not and something is undone");
            }
        }
        let key = step.zip(attempt);
        let was = step.and_then(|step| asked.get(&step).copied()).unwrap_or_default();
        match name {
            "run.ending" if ending.replace(entry).is_some() => say("a second end of the code"),
            "run.cancel_requested" if std::mem::replace(&mut cancelled, true) || ending.is_some() => {
                say("cancelled, or over, already");
            }
            "effect.called" if !key.is_some_and(|key| called.insert(key)) => say("the attempt was called before"),
            "effect.result" => {
                let unbegun = attempt == Some(0) && was == "effect.queued";
                if !unbegun && !key.is_some_and(|key| called.contains(&key)) {
                    say("an outcome without a call");
                }
                if !over.insert(step) {
                    say("a second outcome");
                }
            }
            "effect.failed" | "effect.not_started" | "effect.in_doubt" | "effect.resolved" | "resolution.set_aside"
                if !key.is_some_and(|key| called.contains(&key)) =>
            {
                say("about an attempt that was never called");
            }
            "timer.fired" | "signal.received" | "question.answered" | "child.result" => {
                if ended_by(was) != Some(name) {
                    say("no such step is open there");
                }
                if !over.insert(step) {
                    say("a second completion");
                }
                // A child's end is recorded whoever waits for it.
                if name != "child.result" && (closed.contains(&step) || ending.is_some()) {
                    say("nobody waits for it any more");
                }
            }
            "step.closed" if was.is_empty() || ending.is_some() || !closed.insert(step) => {
                say("no step is open there");
            }
            _ if TERMINAL.contains(&name) => {
                terminal += 1;
                let said =
                    |entry: &Json| ["value", "error", "reason", "by", "workflow", "args"].map(|f| entry[f].clone());
                if ending.is_some_and(|ending| said(ending) != said(entry)) {
                    say("its code came to another end");
                }
            }
            _ => {}
        }
    }
    if log.is_empty() || (ended && terminal != 1) {
        wrong.push(format!("{run}: {terminal} terminal entries in {} entries", log.len()));
    }
    wrong
}
