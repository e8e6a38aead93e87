//! Contracts: how often bodies ran, what they were given, what is known of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{History, Made, asked, call_of};
use crate::{
    contract::{Contract, EffectMeta},
    effect::BodyEnd,
    entry::{Entry, Kind, Outcome, Resolved, Undo},
    fold::StepState,
    id::{Attempt, StepNo},
    sim::{
        effects::{Out, find},
        outside::{Begun, StepOf},
        world::World,
    },
    value::Value,
};

/// What a log says of one effect.
struct Told<'a> {
    call: Made<'a>,
    /// Attempts, and the places of their entries.
    called: BTreeMap<Attempt, u64>,
    failed: BTreeSet<Attempt>,
    not_started: BTreeSet<Attempt>,
    again: u32,
    resolved: Option<Resolved>,
    result: Option<(u64, Attempt, &'a Outcome<'a>)>,
}

fn told<'a>(entries: &'a [Entry<'a>], undos: &'a [Undo<'static>]) -> BTreeMap<StepNo, Told<'a>> {
    let mut steps: BTreeMap<StepNo, Told<'_>> = BTreeMap::new();
    for (step, (seq, kind)) in asked(entries) {
        let Some(call) = call_of(kind, undos) else { continue };
        let mut called = BTreeMap::new();
        if !matches!(kind, Kind::EffectQueued(_)) {
            called.insert(Attempt(1), seq);
        }
        let (failed, not_started) = (BTreeSet::new(), BTreeSet::new());
        steps.insert(step, Told { call, called, failed, not_started, again: 0, resolved: None, result: None });
    }
    for (seq, entry) in entries.iter().enumerate() {
        let seq = seq as u64;
        let (Kind::EffectCalledAgain { step, .. }
        | Kind::EffectFailed { step, .. }
        | Kind::EffectNotStarted { step, .. }
        | Kind::EffectResolved { step, .. }
        | Kind::EffectResult { step, .. }) = &entry.kind
        else {
            continue;
        };
        let Some(told) = steps.get_mut(step) else { continue };
        match &entry.kind {
            Kind::EffectCalledAgain { attempt, .. } => drop(told.called.insert(*attempt, seq)),
            Kind::EffectFailed { attempt, .. } => drop(told.failed.insert(*attempt)),
            Kind::EffectNotStarted { attempt, .. } => drop(told.not_started.insert(*attempt)),
            Kind::EffectResolved { how, .. } => {
                told.resolved = Some(*how);
                told.again += u32::from(*how == Resolved::RunAgain);
            }
            Kind::EffectResult { attempt, outcome, .. } => told.result = Some((seq, *attempt, outcome)),
            _ => {}
        }
    }
    steps
}

pub(super) fn check(world: &World, history: &History, n: usize, over: bool, bad: &mut Vec<String>) {
    let (log, i, generation) = (&history.logs[n], history.run, history.generation(n));
    let entries = log.stored.entries();
    let steps = told(&entries, &log.state.undos);
    let mine = |begun: &&Begun| begun.run == i && begun.generation == generation;
    for begun in world.outside.begun.iter().filter(mine) {
        let (step, attempt, meta) = (begun.step, begun.start.attempt, begun.start.meta);
        let what = || {
            let (name, no, at) = (meta.name, begun.no, begun.at);
            format!("{name} no {no} of step {step} of log {n}, attempt {attempt}, begun at {at}")
        };
        let Some(told) = steps.get(&step) else {
            if meta.contract.is_outward() {
                bad.push(format!("orphan: {}", what()));
            }
            continue;
        };
        if let Some((seq, ..)) = told.result
            && is_call(begun, &told.call)
            && seq < begun.stored
            && !world.shared
        {
            bad.push(format!("a completed step's body ran again: {}", what()));
        }
        if !meta.contract.is_outward() {
            continue;
        }
        if !is_call(begun, &told.call) || !told.called.contains_key(&attempt) {
            bad.push(format!("orphan: {}", what()));
        }
        if told.not_started.contains(&attempt) {
            bad.push(format!("said not to have been started: {}", what()));
        }
        let final_state = log.state.steps.get(&step);
        let known = told.result.is_some()
            || told.failed.contains(&attempt)
            || final_state.is_some_and(|s| s.unsure || matches!(s.state, StepState::InDoubt(..)))
            || told.again > 0;
        if over && !known {
            bad.push(format!("the run ended without an outcome or a doubt of {}: {final_state:?}", what()));
        }
    }
    for (step, told) in &steps {
        effect(world, (i, generation, *step), told, bad);
    }
}

fn is_call(begun: &Begun, call: &Made<'_>) -> bool {
    call.effect == begun.start.meta.name
        && *call.args == **begun.start.args.value().as_bytes()
        && call.path == begun.start.path
        && call.key.is_none_or(|key| key == begun.start.key)
}

fn effect(world: &World, of: StepOf, told: &Told<'_>, bad: &mut Vec<String>) {
    let Some(meta) = find(told.call.effect, "") else { return };
    // A `read_only` body may have begun for a step that a crash took back: another step has its number then.
    let is = |b: &Begun| b.step() == of && is_call(b, &told.call);
    let begun: Vec<_> = world.outside.begun.iter().filter(|b| is(b)).collect();
    let landed = world.outside.landed.iter().filter(|(_, b, _)| is(&world.outside.begun[*b])).count();
    let what = format!("{} of step {} of log {}", meta.name, of.2, of.1);
    let attempts: BTreeSet<_> = begun.iter().map(|b| b.start.attempt).collect();
    if meta.contract.is_outward() && attempts.len() != begun.len() {
        bad.push(format!("an attempt was begun twice: {what}"));
    }
    attempts_within(world, of, meta, &begun, told.again, &what, bad);
    if meta.contract == Contract::AtMostOnce && landed > 1 {
        bad.push(format!("at most once, and it happened {landed} times: {what}"));
    }
    // The outcome is what a body returned, or what somebody who knew said.
    let Some((_, attempt, outcome)) = told.result else { return };
    let Outcome::Ok(value) = outcome else { return };
    if told.call.undoes.is_some() {
        let ran = begun.iter().any(|b| b.start.attempt == attempt && b.end.is_some());
        if !ran && told.resolved.is_none() {
            bad.push(format!("undone, and no body ran: {what}"));
        }
        return;
    }
    let returned = begun.iter().any(|b| {
        b.start.attempt == attempt && matches!(&b.end, Some(BodyEnd::Ok { value: v }) if *v.as_bytes() == **value)
    });
    let happened = Value::from_bytes(value.to_vec().into()).decode::<Out>().ok().and_then(Result::ok);
    let known = told.resolved == Some(Resolved::Succeeded) && world.outside.happened(of) == happened;
    if !returned && !known {
        bad.push(format!("the log has an outcome that no body returned and nobody knew: {what}"));
    }
}

/// How often it may have been begun.
fn attempts_within(
    world: &World,
    of: StepOf,
    meta: &EffectMeta,
    begun: &[&Begun],
    again: u32,
    what: &str,
    bad: &mut Vec<String>,
) {
    let most = meta.retry.map_or(crate::recover::REPEATS_AFTER_CRASH_MAX + 1, |retry| retry.attempts);
    let times = begun.len() as u32;
    let lives: BTreeSet<u64> = world.outside.begun.iter().filter(|b| b.run == of.0).map(|b| b.life).collect();
    let lives = lives.len() as u32;
    match meta.contract {
        Contract::AtMostOnce if times > 1 + again => {
            bad.push(format!("at most once, begun {times} times, resolved again {again}: {what}"));
        }
        Contract::Keyed | Contract::Idempotent if times > most + again => {
            bad.push(format!("begun {times} times of {most}: {what}"));
        }
        Contract::ReadOnly if meta.retry.is_some() && times > most + lives => {
            bad.push(format!("begun {times} times of {most}, in {lives} lives: {what}"));
        }
        _ => {}
    }
}

/// One key, one step; one step, one key.
pub(super) fn check_keys(world: &World, bad: &mut Vec<String>) {
    let mut steps: HashMap<&str, StepOf> = HashMap::new();
    for begun in &world.outside.begun {
        if begun.start.meta.contract.is_outward()
            && *steps.entry(&begun.start.key).or_insert(begun.step()) != begun.step()
        {
            bad.push(format!("one key for two steps: {}", begun.start.key));
        }
    }
}
