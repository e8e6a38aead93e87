//! The final logs, and cuts of them: each replays without divergence, asks what was asked then, and begins no body.

use std::sync::Arc;

use super::History;
use crate::{
    drive::{Life, Opened, Output},
    entry::{End, Entry, Kind},
    id::Epoch,
    sim::{Rng, log::Stored, mix, prog::WORKFLOW, world::World},
};

pub(super) fn check(world: &mut World, history: &History, cuts: usize) {
    for n in 0..history.logs.len() {
        let stored = &history.logs[n].stored;
        let mut rng = Rng(mix(stored.len(), (history.run * 16 + n) as u64));
        let len = stored.len();
        let mut places: Vec<u64> = match cuts as u64 >= len {
            true => (1..=len).collect(),
            false => (0..cuts).map(|_| 1 + rng.below(len)).collect(),
        };
        let entries = stored.entries();
        let last = |is: fn(&Kind<'_>) -> bool| entries.iter().position(|entry| is(&entry.kind)).map(|at| at as u64);
        places.extend(last(|kind| matches!(kind, Kind::RunEnding(_) | Kind::RunEnded(_))));
        // In the middle of cancelling.
        if let Some(at) = last(|kind| matches!(kind, Kind::CancelRequested { .. })) {
            places.extend((at..(at + 4).min(len)).filter(|at| *at > 0));
        }
        places.extend(std::iter::repeat_n(len, if cuts == usize::MAX { 50 } else { 1 }));
        for cut in places {
            world.stats.replays += 1;
            for wrong in replay(world, history, n, cut) {
                world.fail(format!("run {} log {n} cut at {cut} of {len}: {wrong}", history.run));
            }
        }
    }
}

fn replay(world: &World, history: &History, n: usize, cut: u64) -> Vec<String> {
    let mut bad = Vec::new();
    let stored = &history.logs[n].stored;
    let mut records = vec![stored.record(cut)].into_iter();
    let mut setting = world.setting(0, history.run, history.generation(n), Epoch(1), true);
    setting.slots = Arc::new(Unlimited);
    let mut life = Life::new(setting, Box::new(move |_| Ok(records.next().into_iter().collect())));
    let opened = life.replay(world.now(0), Some(&|_| Some(&WORKFLOW)));
    let outputs = life.take_outputs(false);
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
    let then: Vec<_> = recorded[cut as usize..].iter().take_while(|e| !is_completion(&e.kind)).collect();
    let batch = outputs.into_iter().find_map(|output| match output {
        Output::Append(_, batch) => Some(Stored::of(batch.frames)),
        _ => None,
    });
    let asked = batch.as_ref().map(Stored::entries).unwrap_or_default();
    let mut asks = asked.iter().filter_map(|e| command(&e.kind));
    for entry in then {
        match &entry.kind {
            Kind::RunEnding(end) | Kind::RunEnded(end) => {
                if let Some(wrong) = ends(&recorded[..cut as usize], &asked, end) {
                    bad.push(wrong);
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

/// The code ends as it ended then.
fn ends(before: &[Entry<'_>], asked: &[Entry<'_>], end: &End<'_>) -> Option<String> {
    let again = asked.iter().find_map(|e| match &e.kind {
        Kind::RunEnding(end) | Kind::RunEnded(end) => Some(end),
        _ => None,
    });
    let announced = before.iter().any(|e| matches!(e.kind, Kind::RunEnding(_)));
    // It did not return then, or it did and was cancelled all the same.
    let dropped = matches!(end, End::Cancelled { .. });
    (again != Some(end) && !announced && !dropped)
        .then(|| format!("the code ends as {again:?}, and then ended as {end:?}"))
}

fn is_completion(kind: &Kind<'_>) -> bool {
    matches!(
        kind,
        Kind::EffectResult { .. }
            | Kind::TimerFired { .. }
            | Kind::SignalReceived { .. }
            | Kind::QuestionAnswered { .. }
            | Kind::ChildEnded { .. }
            | Kind::CancelRequested { .. }
    )
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
        Kind::SignalAwaited { path, signal, drain, .. } => Some(format!("{path} {signal} {drain}")),
        Kind::QuestionAsked { path, question, .. } => Some(format!("{path} {} {:x}", question.title, question.digest)),
        Kind::ChildSpawned { path, child, .. } => Some(format!("{path} {} {:x}", child.run, child.digest)),
        Kind::MessageSent { path, to, digest, .. } => Some(format!("{path} {to} {digest:x}")),
        Kind::ValuePublished { path, name, digest, .. } => Some(format!("{path} {name} {digest:x}")),
        Kind::UndoAdded { path, undo, .. } => Some(format!("{path} {} {:x}", undo.effect, undo.digest)),
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
