//! Runs together: messages, children, and what is taken back.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::{Runs, Seen, named, text};
use crate::common::{
    effects::{Demand, demand},
    ledger::Line,
};

/// What each run says of the others is true, and what they did and took back is in the right order.
///
/// `sent`: what a client outside sends to which run, under which name, in this order; how many of them were accepted.
pub(crate) fn company(runs: &Runs, lines: &[Line], sent: &[(&str, &str, Vec<&str>, usize)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (to, name, values, accepted) in sent {
        let got = got(runs, to, name);
        let values: Vec<Json> = values.iter().map(|value| (*value).into()).collect();
        if !values.starts_with(&got) || got.len() < *accepted {
            wrong.push(format!("{to}: {accepted} of {name} {values:?} were accepted, and it got {got:?}"));
        }
    }
    wrong.extend(messages(runs));
    wrong.extend(children(runs));
    for (run, seen) in runs {
        wrong.extend(undone(run, seen, lines));
    }
    wrong
}

/// The messages of that name that a run has taken, or can take, in order.
fn got(runs: &Runs, run: &str, name: &str) -> Vec<Json> {
    let Some(seen) = runs.get(run) else { return Vec::new() };
    let mut got = Vec::new();
    for log in &seen.logs {
        let waits: BTreeSet<_> = named(log, "signal.awaited")
            .filter(|entry| text(entry, "signal") == name)
            .filter_map(|entry| entry["step"].as_u64())
            .collect();
        for entry in named(log, "signal.received") {
            if entry["step"].as_u64().is_some_and(|step| waits.contains(&step)) {
                got.extend(entry["messages"].as_array().into_iter().flatten().cloned());
            }
        }
    }
    got.extend(seen.unread.iter().filter(|(unread, _)| unread == name).map(|(_, value)| value.clone()));
    got
}

/// Each message that a run has sent is there once.
fn messages(runs: &Runs) -> Vec<String> {
    let mut sent: BTreeMap<(&str, &str), Vec<Json>> = BTreeMap::new();
    for entry in runs.values().flat_map(|seen| named(seen.entries(), "message.sent")) {
        sent.entry((text(entry, "to"), text(entry, "signal"))).or_default().push(entry["value"].clone());
    }
    let mut wrong = Vec::new();
    for ((to, name), values) in sent {
        let got = got(runs, to, name);
        if got != values {
            wrong.push(format!("{to}: other runs sent {name} {values:?}, and it got {got:?}"));
        }
    }
    wrong
}

/// Each child is one run, whose end its parent knows; and nobody's child is nobody's.
fn children(runs: &Runs) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut parents: BTreeMap<&str, usize> = BTreeMap::new();
    for (run, seen) in runs {
        for log in &seen.logs {
            let results: BTreeMap<_, _> =
                named(log, "child.result").map(|entry| (entry["step"].as_u64(), entry)).collect();
            for spawned in named(log, "child.spawned") {
                let (child, result) = (text(spawned, "run"), results.get(&spawned["step"].as_u64()));
                let mut say =
                    |what: String| wrong.push(format!("{run}: its child {child} {what}: {spawned} {result:?}"));
                let told = result.map(|result| text(result, "end"));
                if told == Some("id taken") {
                    continue;
                }
                *parents.entry(child).or_default() += 1;
                let Some(seen) = runs.get(child) else {
                    // Its id may have been somebody's before, which is told a moment later.
                    say("is not there".to_owned());
                    continue;
                };
                let end = seen.end();
                let over = log.last().is_some_and(|last| {
                    matches!(text(last, "entry"), "run.completed" | "run.failed" | "run.cancelled" | "run.restarted")
                });
                if over && spawned["detached"] != true && (end.is_none() || told.is_none()) {
                    say(format!("has outlived it, and ends with {end:?}"));
                }
                let same = |result: &Json, end: &Json| {
                    text(end, "entry") == format!("run.{}", text(result, "end"))
                        && ["value", "error", "reason"].iter().all(|field| result[field] == end[field])
                };
                if let Some(result) = result
                    && !end.is_some_and(|end| same(result, end))
                {
                    say(format!("ended with {end:?}"));
                }
            }
        }
    }
    for (child, parents) in parents.iter().filter(|(_, parents)| **parents > 1) {
        wrong.push(format!("{child} has {parents} parents"));
    }
    wrong
}

/// What a run has registered is taken back, the last first, each once, if it failed or was cancelled; and nothing is done
/// after something was taken back.
fn undone(run: &str, seen: &Seen, lines: &[Line]) -> Vec<String> {
    let mut wrong = Vec::new();
    let registered = named(seen.entries(), "undo.added").count() as u64;
    let last = seen.logs.last().map(Vec::as_slice).unwrap_or_default();
    let called: Vec<u64> = named(seen.entries(), "effect.called")
        .filter(|entry| entry["attempt"] == 1)
        .filter_map(|entry| entry["undo"].as_u64())
        .collect();
    let ends = seen.end().map(|end| text(end, "entry"));
    let undoes = match (ends, named(last, "run.ending").next()) {
        (Some(end), _) => end != "run.completed",
        // Cancelled, or failed with an error.
        (None, Some(ending)) => ending.get("reason").is_some() || ending.get("error").is_some(),
        (None, None) => false,
    };
    let expected: Vec<u64> = if undoes { (0..registered).rev().collect() } else { Vec::new() };
    let right = if ends.is_some() { called == expected } else { expected.starts_with(&called) };
    if !right {
        wrong.push(format!("{run}: {registered} compensations, taken back {called:?}, and not {expected:?}: {ends:?}"));
    }
    let is_undo = |line: &&Line| line.path.starts_with("undo[");
    let own: Vec<&Line> =
        lines.iter().filter(|line| line.run == run && demand(&line.effect) != Demand::Nothing).collect();
    if let Some(first) = own.iter().position(is_undo)
        && let Some(late) = own[first..].iter().find(|line| !is_undo(line))
    {
        wrong.push(format!("{run}: {late:?} came after {:?}", own[first]));
    }
    let bodies: BTreeSet<&str> = own.iter().filter(|line| is_undo(line)).map(|line| &*line.path).collect();
    if ends.is_some() && bodies.len() != expected.len() {
        wrong.push(format!("{run}: {} compensations ran, and not {}", bodies.len(), expected.len()));
    }
    wrong
}
