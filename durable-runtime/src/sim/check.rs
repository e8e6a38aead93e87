//! What must hold when all is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Rng,
    effects::{Out, SORTS},
    log::Stored,
    mix,
    outside::Begun,
    prog::WORKFLOW,
    world::{Phase, World},
};
use crate::{
    contract::Contract,
    drive::{Life, Opened, Output},
    effect::BodyEnd,
    entry::{Call, Entry, Kind, Outcome, Resolved},
    fold::StepState,
    id::{Attempt, Epoch, StepNo},
    value::Value,
};

pub(super) fn all(world: &mut World, cuts: usize) {
    for i in 0..world.runs.len() {
        let stored = Stored::read(&*world.store, &world.runs[i].id);
        world.stats.runs += 1;
        world.stats.entries += stored.len();
        let ended = matches!(world.runs[i].phase, Phase::Ended);
        for what in run(world, i, &stored, ended) {
            world.fail(format!("run {i}: {what}"));
        }
        if world.bad.is_empty() && ended {
            replays(world, i, &stored, cuts);
        }
    }
    keys(world);
}

/// What a log says of one step.
#[derive(Default)]
struct Told<'a> {
    call: Option<&'a Call<'a>>,
    /// Attempts, and the places of their entries.
    called: BTreeMap<Attempt, u64>,
    failed: BTreeSet<Attempt>,
    not_started: BTreeSet<Attempt>,
    again: u32,
    resolved: Option<Resolved>,
    result: Option<(u64, Attempt, &'a Outcome<'a>)>,
}

fn told<'a>(entries: &'a [Entry<'a>]) -> BTreeMap<StepNo, Told<'a>> {
    let mut steps: BTreeMap<StepNo, Told<'_>> = BTreeMap::new();
    let mut next = StepNo(0);
    for (seq, entry) in entries.iter().enumerate() {
        let seq = seq as u64;
        if let Kind::EffectQueued(_) | Kind::EffectCalled(_) | Kind::TimerSet { .. } | Kind::VersionChosen { .. } =
            &entry.kind
        {
            if let Kind::EffectQueued(call) | Kind::EffectCalled(call) = &entry.kind {
                let step = steps.entry(next).or_default();
                step.call = Some(call);
                if matches!(entry.kind, Kind::EffectCalled(_)) {
                    step.called.insert(Attempt(1), seq);
                }
            }
            next.0 += 1;
        }
        match &entry.kind {
            Kind::EffectCalledAgain { step, attempt } => {
                steps.entry(*step).or_default().called.insert(*attempt, seq);
            }
            Kind::EffectFailed { step, attempt, .. } => {
                steps.entry(*step).or_default().failed.insert(*attempt);
            }
            Kind::EffectNotStarted { step, attempt } => {
                steps.entry(*step).or_default().not_started.insert(*attempt);
            }
            Kind::EffectResolved { step, how, .. } => {
                let step = steps.entry(*step).or_default();
                step.resolved = Some(*how);
                step.again += u32::from(*how == Resolved::RunAgain);
            }
            Kind::EffectResult { step, attempt, outcome, .. } => {
                steps.entry(*step).or_default().result = Some((seq, *attempt, outcome));
            }
            _ => {}
        }
    }
    steps
}

fn run(world: &World, i: usize, stored: &Stored, ended: bool) -> Vec<String> {
    let mut bad = Vec::new();
    let entries = stored.entries();
    let state = match stored.state() {
        Ok(state) => state,
        Err(illegal) => return vec![illegal],
    };
    if ended && !state.ended {
        bad.push("it ended, and its log has no terminal entry".to_owned());
    }
    let steps = told(&entries);
    for begun in world.outside.begun.iter().filter(|begun| begun.run == i) {
        let (step, attempt, meta) = (begun.step, begun.start.attempt, begun.start.meta);
        let what = || format!("{} no {} of step {step} attempt {attempt}, begun at {}", meta.name, begun.no, begun.at);
        let Some(told) = steps.get(&step) else {
            if meta.contract.is_outward() {
                bad.push(format!("orphan: {}", what()));
            }
            continue;
        };
        if let Some((seq, ..)) = told.result
            && told.call.is_some_and(|call| is_call(begun, call))
            && seq < begun.stored
        {
            bad.push(format!("a completed step's body ran again: {}", what()));
        }
        if !meta.contract.is_outward() {
            continue;
        }
        let same = told.call.is_some_and(|call| is_call(begun, call));
        if !same || !told.called.contains_key(&attempt) {
            bad.push(format!("orphan: {}", what()));
        }
        if told.not_started.contains(&attempt) {
            bad.push(format!("said not to have been started: {}", what()));
        }
        let final_state = state.steps.get(&step);
        let known = told.result.is_some()
            || told.failed.contains(&attempt)
            || final_state.is_some_and(|s| s.unsure || matches!(s.state, StepState::InDoubt(..)))
            || told.again > 0;
        if ended && !known {
            bad.push(format!("the run ended without an outcome or a doubt of {}: {final_state:?}", what()));
        }
    }
    for (step, told) in &steps {
        effect(world, i, *step, told, &mut bad);
    }
    bad
}

fn is_call(begun: &Begun, call: &Call<'_>) -> bool {
    call.effect() == begun.start.meta.name
        && *call.args == **begun.start.args.value().as_bytes()
        && call.path.to_string() == begun.start.path
        && call.key.as_deref().is_none_or(|key| key == begun.start.key)
}

fn effect(world: &World, i: usize, step: StepNo, told: &Told<'_>, bad: &mut Vec<String>) {
    let Some(call) = told.call else { return };
    let Some(meta) = SORTS.iter().find(|meta| meta.name == call.effect()) else { return };
    // A `read_only` body may have begun for a step that a crash took back: another step has its number then.
    let of = |b: &Begun| b.run == i && b.step == step && is_call(b, call);
    let begun: Vec<_> = world.outside.begun.iter().filter(|b| of(b)).collect();
    let landed = world.outside.landed.iter().filter(|(_, b, _)| of(&world.outside.begun[*b])).count();
    let what = format!("{} of step {step}", meta.name);
    let attempts: BTreeSet<_> = begun.iter().map(|b| b.start.attempt).collect();
    if meta.contract.is_outward() && attempts.len() != begun.len() {
        bad.push(format!("an attempt was begun twice: {what}"));
    }
    let most = meta.retry.map_or(crate::recover::REPEATS_AFTER_CRASH_MAX + 1, |retry| retry.attempts);
    match meta.contract {
        Contract::AtMostOnce => {
            if landed > 1 {
                bad.push(format!("at most once, and it happened {landed} times: {what}"));
            }
            if begun.len() as u32 > 1 + told.again {
                bad.push(format!("at most once, begun {} times, resolved again {}: {what}", begun.len(), told.again));
            }
        }
        Contract::Keyed | Contract::Idempotent if begun.len() as u32 > most => {
            bad.push(format!("begun {} times of {most}: {what}", begun.len()));
        }
        Contract::ReadOnly if meta.retry.is_some() && begun.len() as u32 > most + world.runs[i].lives => {
            bad.push(format!("begun {} times of {most}, in {} lives: {what}", begun.len(), world.runs[i].lives));
        }
        _ => {}
    }
    // The outcome is what a body returned, or what somebody who knew said.
    let Some((_, attempt, outcome)) = told.result else { return };
    let Outcome::Ok(value) = outcome else { return };
    let returned = begun.iter().any(|b| {
        b.start.attempt == attempt && matches!(&b.end, Some(BodyEnd::Ok { value: v }) if *v.as_bytes() == **value)
    });
    let happened = Value::from_bytes(value.to_vec().into()).decode::<Out>().ok().and_then(Result::ok);
    let known = told.resolved == Some(Resolved::Succeeded) && world.outside.happened(i, step) == happened;
    if !returned && !known {
        bad.push(format!("the log has an outcome that no body returned and nobody knew: {what}"));
    }
}

/// One key, one step; one step, one key.
fn keys(world: &mut World) {
    let mut steps: HashMap<&str, (usize, StepNo)> = HashMap::new();
    let mut wrong = Vec::new();
    for begun in &world.outside.begun {
        if begun.start.meta.contract.is_outward()
            && *steps.entry(&begun.start.key).or_insert((begun.run, begun.step)) != (begun.run, begun.step)
        {
            wrong.push(format!("one key for two steps: {}", begun.start.key));
        }
    }
    for wrong in wrong {
        world.fail(wrong);
    }
}

/// The final log, and cuts of it: each replays without divergence, asks what was asked then, and begins no body.
fn replays(world: &mut World, i: usize, stored: &Stored, cuts: usize) {
    let mut rng = Rng(mix(stored.len(), i as u64));
    let len = stored.len();
    let mut places: Vec<u64> = match cuts as u64 >= len {
        true => (1..=len).collect(),
        false => (0..cuts).map(|_| 1 + rng.below(len)).collect(),
    };
    let ends = stored.entries().iter().position(|e| matches!(e.kind, Kind::RunEnding(_) | Kind::RunEnded(_)));
    places.extend(ends.map(|end| end as u64));
    places.extend(std::iter::repeat_n(len, if cuts == usize::MAX { 50 } else { 1 }));
    for cut in places {
        world.stats.replays += 1;
        for wrong in replay(world, i, stored, cut) {
            world.fail(format!("run {i} cut at {cut} of {len}: {wrong}"));
        }
    }
}

fn replay(world: &World, i: usize, stored: &Stored, cut: u64) -> Vec<String> {
    let mut bad = Vec::new();
    let mut records = vec![stored.record(cut)].into_iter();
    let mut setting = world.setting(i, Epoch(1), true);
    setting.slots = std::sync::Arc::new(Unlimited);
    let mut life = Life::new(setting, Box::new(move |_| Ok(records.next().into_iter().collect())));
    let opened = life.replay(world.now(), &|_| Some(&WORKFLOW));
    let outputs = life.take_outputs();
    if outputs.iter().any(|output| matches!(output, Output::Start(..) | Output::Reconcile(..))) {
        bad.push("a body was begun".to_owned());
    }
    let recorded = stored.entries();
    match opened {
        Opened::Ended if cut == stored.len() => return bad,
        Opened::Live if cut < stored.len() => {}
        other => {
            bad.push(format!("it replays to {other:?}"));
            return bad;
        }
    }
    // The commands that follow the cut, up to the next completion, are asked again.
    let then: Vec<_> = recorded[cut as usize..]
        .iter()
        .take_while(|e| !matches!(e.kind, Kind::EffectResult { .. } | Kind::TimerFired { .. }))
        .collect();
    let batch = outputs.into_iter().find_map(|output| match output {
        Output::Append(_, batch) => Some(Stored::of(batch.frames)),
        _ => None,
    });
    let asked = batch.as_ref().map(Stored::entries).unwrap_or_default();
    let mut asks = asked.iter().filter_map(|e| command(&e.kind));
    for entry in then {
        match &entry.kind {
            Kind::RunEnding(end) | Kind::RunEnded(end) => {
                let again = asked.iter().find_map(|e| match &e.kind {
                    Kind::RunEnding(end) | Kind::RunEnded(end) => Some(end),
                    _ => None,
                });
                if again != Some(end) && !recorded[..cut as usize].iter().any(|e| matches!(e.kind, Kind::RunEnding(_)))
                {
                    bad.push(format!("the code ends as {again:?}, and then ended as {end:?}"));
                }
                break;
            }
            kind => {
                if let Some(was) = command(kind) {
                    let is = asks.next();
                    if is.as_ref() != Some(&was) {
                        bad.push(format!("the code asks for {is:?}, and then asked for {was:?}"));
                        break;
                    }
                }
            }
        }
    }
    bad
}

/// A command, without what a replay may give otherwise.
fn command(kind: &Kind<'_>) -> Option<String> {
    match kind {
        Kind::EffectQueued(call) | Kind::EffectCalled(call) => {
            Some(format!("{} {} {:x} {:?} {:x}", call.path, call.effect(), call.digest, call.key, call.site))
        }
        Kind::TimerSet { path, site, .. } => Some(format!("{path} {site:x}")),
        Kind::VersionChosen { path, version, .. } => Some(format!("{path} {version}")),
        Kind::StepClosed { step } => Some(format!("closed {step}")),
        _ => None,
    }
}

struct Unlimited;

impl crate::drive::Slots for Unlimited {
    fn try_take(&self) -> bool {
        true
    }

    fn give(&self) {}
}
