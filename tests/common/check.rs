//! The checkers. Each answers what is wrong, in words; nothing wrong, no words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::{
    effects::{Demand, demand},
    ledger::Line,
};

/// The logs of runs by their ids, each entry as the library shows it.
pub(crate) type Logs = BTreeMap<String, Vec<Json>>;

fn text<'a>(entry: &'a Json, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

pub(crate) fn named<'a>(log: &'a [Json], name: &str) -> impl Iterator<Item = &'a Json> {
    log.iter().filter(move |entry| text(entry, "entry") == name)
}

/// A log is a legal history; `ended`: and it is whole.
pub(crate) fn log(run: &str, log: &[Json], ended: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut called: BTreeSet<(u64, u64)> = BTreeSet::new();
    let (mut asked, mut over, mut closed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut terminal = 0;
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
        let key = step.zip(attempt);
        match name {
            "run.completed" | "run.failed" => terminal += 1,
            "effect.queued" | "timer.set" | "version.chosen" => drop(asked.insert(step)),
            "effect.called" => {
                if attempt == Some(1) {
                    asked.insert(step);
                }
                if !key.is_some_and(|key| called.insert(key)) {
                    say("the attempt was called before");
                }
            }
            "effect.result" => {
                let queued = attempt == Some(0) && asked.contains(&step);
                if !queued && !key.is_some_and(|key| called.contains(&key)) {
                    say("an outcome without a call");
                }
                if !over.insert(step) {
                    say("a second outcome");
                }
            }
            "effect.failed" | "effect.not_started" | "effect.in_doubt" | "effect.resolved"
                if !key.is_some_and(|key| called.contains(&key)) =>
            {
                say("about an attempt that was never called");
            }
            "timer.fired" if !asked.contains(&step) || !over.insert(step) => say("no sleep is open there"),
            "step.closed" if !asked.contains(&step) || !closed.insert(step) => say("no step is open there"),
            _ => {}
        }
    }
    if log.is_empty() || (ended && terminal != 1) {
        wrong.push(format!("{run}: {terminal} terminal entries in {} entries", log.len()));
    }
    wrong
}

/// The ledger and the logs agree, and no contract is broken.
///
/// Logs may be unfinished. `run_again`: how many bodies of an at-most-once effect a person has allowed beyond the first.
pub(crate) fn ledger(lines: &[Line], logs: &Logs, run_again: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut steps: BTreeMap<(&str, &str), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        steps.entry((&line.run, &line.path)).or_default().push(line);
    }
    let mut keys: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for ((run, path), bodies) in &steps {
        let mut say = |what: String| wrong.push(format!("{run}, {path}: {what}: {bodies:?}"));
        let demand = demand(&bodies[0].effect);
        let bodies_max = match demand {
            Demand::Nothing => usize::MAX,
            Demand::Decided { bodies_max } | Demand::Key { bodies_max } => bodies_max,
            Demand::Once => 1 + run_again,
        };
        if bodies.len() > bodies_max {
            say(format!("{} bodies, and at most {bodies_max} may be", bodies.len()));
        }
        if bodies.iter().any(|body| body.key != bodies[0].key || body.input != bodies[0].input) {
            say("its key or its input changed between attempts".to_owned());
        }
        if matches!(demand, Demand::Key { .. }) && keys.insert(&bodies[0].key, (*run, *path)).is_some() {
            say("another step has its key".to_owned());
        }
        if demand == Demand::Nothing {
            continue;
        }
        let attempts: BTreeSet<u32> = bodies.iter().map(|body| body.attempt).collect();
        if attempts.len() < bodies.len() {
            say("two bodies were one attempt".to_owned());
        }
        let log = logs.get(*run).map(Vec::as_slice).unwrap_or_default();
        let decided: BTreeSet<u64> = named(log, "effect.called")
            .filter(|entry| text(entry, "path") == *path)
            .filter_map(|entry| entry["attempt"].as_u64())
            .collect();
        if let Some(orphan) = attempts.iter().find(|attempt| !decided.contains(&u64::from(**attempt))) {
            say(format!("attempt {orphan} ran, and no entry of the log decided it"));
        }
        // The provider answers each request as the first one.
        if let (Demand::Key { .. }, Some(result)) = (demand, result_of(log, path))
            && result != format!("attempt {}", bodies[0].attempt)
        {
            say(format!("the receipt is {result:?}, not the first one's"));
        }
    }
    wrong
}

/// What a step gave as `Ok`.
pub(crate) fn result_of<'a>(log: &'a [Json], path: &str) -> Option<&'a str> {
    named(log, "effect.result")
        .find(|entry| text(entry, "path") == path)
        .and_then(|entry| entry["value"]["Ok"].as_str())
}

/// What somebody outside was shown of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) started: bool,
    pub(crate) output: Option<String>,
    /// A status that is final.
    pub(crate) ended: bool,
    /// The longest log.
    pub(crate) log: Vec<Json>,
    /// Steps that were held.
    pub(crate) held: BTreeSet<u64>,
    /// Steps and attempts resolved.
    pub(crate) resolved: Vec<(u64, u64)>,
}

/// All that was shown is in the log, with `rows` rows in the run's mailbox.
pub(crate) fn shown(run: &str, shown: &Shown, log: &[Json], rows: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(format!("{run}: {what}, and the log ends with {:?}", log.last()));
    if shown.started && log.is_empty() {
        say("it was started".to_owned());
    }
    let terminal = log.last().filter(|entry| matches!(text(entry, "entry"), "run.completed" | "run.failed"));
    if shown.ended && terminal.is_none() {
        say("it was shown as ended".to_owned());
    }
    if let Some(output) = &shown.output
        && terminal.and_then(|entry| entry["value"]["Ok"].as_str()) != Some(output)
    {
        say(format!("its output was given as {output:?}"));
    }
    if !log.starts_with(&shown.log) {
        say(format!("{} entries of its log were shown", shown.log.len()));
    }
    let doubted: BTreeSet<u64> = named(log, "effect.in_doubt").filter_map(|entry| entry["step"].as_u64()).collect();
    if !shown.held.is_subset(&doubted) {
        say(format!("steps {:?} were shown as held", shown.held));
    }
    for (step, attempt) in &shown.resolved {
        let resolved = named(log, "effect.resolved")
            .any(|entry| entry["step"].as_u64() == Some(*step) && entry["attempt"].as_u64() == Some(*attempt));
        if !resolved && rows == 0 {
            say(format!("attempt {attempt} of step {step} was resolved"));
        }
    }
    wrong
}
