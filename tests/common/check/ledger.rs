//! What bodies did, and what was decided.

use std::collections::{BTreeMap, BTreeSet};

use super::{Runs, Seen, named, text};
use crate::common::{
    effects::{Demand, demand},
    ledger::Line,
};

/// The ledger and the logs agree, and no contract is broken.
///
/// Runs may be unfinished; the paths of their logs differ. `run_again`: how many bodies of an at-most-once effect a person has allowed beyond the first.
pub(crate) fn ledger(lines: &[Line], runs: &Runs, run_again: usize) -> Vec<String> {
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
        let nothing = Seen::default();
        let seen = runs.get(*run).unwrap_or(&nothing);
        let decided: BTreeSet<u64> = named(seen.entries(), "effect.called")
            .filter(|entry| text(entry, "path") == *path)
            .filter_map(|entry| entry["attempt"].as_u64())
            .collect();
        if let Some(orphan) = attempts.iter().find(|attempt| !decided.contains(&u64::from(**attempt))) {
            say(format!("attempt {orphan} ran, and no entry of the log decided it"));
        }
        // The provider answers each request as the first one.
        if let (Demand::Key { .. }, Some(result)) = (demand, result_of(seen, path))
            && result != format!("attempt {}", bodies[0].attempt)
        {
            say(format!("the receipt is {result:?}, not the first one's"));
        }
    }
    wrong
}

/// What a step gave as `Ok`.
fn result_of<'a>(seen: &'a Seen, path: &str) -> Option<&'a str> {
    named(seen.entries(), "effect.result")
        .find(|entry| text(entry, "path") == path)
        .and_then(|entry| entry["value"]["Ok"].as_str())
}
