//! Ends: one terminal entry, nothing after it; claims ascending; a cancel that was taken is never forgotten and begins nothing
//! new; what was registered to undo is done in reverse, also in the world.

use super::{History, asked, call_of, path_of, shields::Shields};
use crate::{
    clock::Millis,
    contract::Contract,
    entry::{End, Kind, Undo},
    sim::{
        Stats,
        effects::{NO, SEEN, undoes},
        outside::Begun,
        world::World,
    },
    value::{Args, Value},
};

pub(super) fn count(history: &History, stats: &mut Stats) {
    match &history.last().state.ending {
        Some(End::Completed { .. }) => stats.completed += 1,
        Some(End::Failed { .. }) => stats.failed += 1,
        Some(End::Cancelled { .. }) => stats.cancelled += 1,
        _ => {}
    }
    for log in &history.logs {
        let entries = log.stored.entries();
        stats.carried += Shields::of(&entries).carried() as u64;
        for entry in entries {
            match &entry.kind {
                Kind::SignalReceived { .. } => stats.signals += 1,
                Kind::QuestionAnswered { .. } => stats.answers += 1,
                Kind::ChildEnded { .. } => stats.children += 1,
                Kind::UndoCalled { .. } => stats.undone += 1,
                Kind::SignalSetAside { .. } => stats.set_aside += 1,
                Kind::ResolutionSetAside { .. } => stats.words_set_aside += 1,
                Kind::CancelRequested { .. } => stats.cancels += 1,
                _ => {}
            }
        }
    }
}

pub(super) fn check(world: &World, history: &History, over: bool, bad: &mut Vec<String>) {
    let mut registered: Vec<Undo<'static>> = Vec::new();
    let last = history.logs.len() - 1;
    for (n, log) in history.logs.iter().enumerate() {
        let state = &log.state;
        let restarted = matches!(state.ending, Some(End::Restarted { .. }));
        if (over || n < last) && !state.ended {
            bad.push(format!("log {n} has no terminal entry"));
        }
        if state.ended && restarted != (n < last) {
            bad.push(format!("log {n} of {last} ended as {:?}", state.ending));
        }
        if restarted && state.cancel.is_some() {
            bad.push(format!("log {n}: a cancel was taken, and forgotten"));
        }
        let wrote = world.told.wrote.get(&(history.run, history.generation(n)));
        let claims: Vec<_> = wrote.into_iter().flatten().map(|(.., epoch)| *epoch).collect();
        if !claims.is_sorted() {
            bad.push(format!("log {n}: an earlier claim wrote after a later one: {claims:?}"));
        }
        let entries = log.stored.entries();
        if let Kind::RunStarted(started) = &entries[0].kind
            && started.undos != registered
        {
            bad.push(format!("log {n} begins with {} to be undone of {}", started.undos.len(), registered.len()));
        }
        registered = state.undos.clone();
        cancelled(n, log, world.forced.contains(&history.run), bad);
        undone(world, history, n, over, bad);
    }
}

/// After a cancel nothing begins outside of shields but what undoes; what a shield encloses goes on to its end.
fn cancelled(n: usize, log: &super::Log, forced: bool, bad: &mut Vec<String>) {
    let entries = log.stored.entries();
    let at = entries.iter().position(|entry| matches!(entry.kind, Kind::CancelRequested { .. }));
    let Some(at) = at else { return };
    let steps = asked(&entries);
    let shields = Shields::of(&entries);
    let shielded = |kind: &Kind<'_>, seq: u64| path_of(kind).is_some_and(|path| shields.enclose(path, seq));
    for (step, (seq, kind)) in &steps {
        // A version is the run's, wherever it is asked.
        let anywhere = matches!(kind, Kind::UndoAdded { .. } | Kind::UndoCalled { .. } | Kind::VersionChosen { .. });
        let may = anywhere || shielded(kind, *seq);
        if *seq > at as u64 && !may {
            bad.push(format!("log {n}: step {step} was asked after the cancel: {}", kind.name()));
        }
    }
    for (seq, entry) in entries.iter().enumerate().skip(at) {
        if let Kind::EffectCalledAgain { step, .. } = &entry.kind
            && !steps
                .get(step)
                .is_some_and(|(_, kind)| shielded(kind, seq as u64) || matches!(kind, Kind::UndoCalled { .. }))
        {
            bad.push(format!("log {n}: step {step} was called again after the cancel"));
        }
    }
    if forced || !matches!(log.state.ending, Some(End::Cancelled { .. })) {
        return;
    }
    for (step, (_, kind)) in &steps {
        // Immediate steps are over when they are asked.
        let lasts = !matches!(
            kind,
            Kind::VersionChosen { .. }
                | Kind::MessageSent { .. }
                | Kind::ValuePublished { .. }
                | Kind::UndoAdded { .. }
        );
        let over = entries.iter().any(|entry| match &entry.kind {
            Kind::StepClosed { step: s }
            | Kind::EffectResult { step: s, .. }
            | Kind::TimerFired { step: s }
            | Kind::SignalReceived { step: s, .. }
            | Kind::QuestionAnswered { step: s, .. }
            | Kind::ChildEnded { step: s, .. } => s == step,
            _ => false,
        });
        if lasts && shielded(kind, entries.len() as u64) && !over {
            bad.push(format!("log {n}: cancelled, and step {step} under a shield was not awaited"));
        }
    }
}

fn args_of(args: &[u8]) -> (u64, u64) {
    let args = Args::from_value(Value::from_bytes(args.to_vec().into()));
    ((NO.read)(&args, "no").unwrap_or(0), (SEEN.read)(&args, "seen").unwrap_or(0))
}

/// Exactly what was registered is undone, from the last to the first, and no act lands after what undoes it.
fn undone(world: &World, history: &History, n: usize, over: bool, bad: &mut Vec<String>) {
    let (log, i, generation) = (&history.logs[n], history.run, history.generation(n));
    let entries = log.stored.entries();
    let steps = asked(&entries);
    let called: Vec<_> = steps
        .iter()
        .filter_map(|(step, (_, kind))| {
            let call = call_of(kind, &log.state.undos)?;
            Some((*step, call.undoes?, call))
        })
        .collect();
    let ends = log.state.ending.as_ref().is_some_and(End::undoes);
    let wanted: Vec<usize> = if ends { (0..log.state.undos.len()).rev().collect() } else { Vec::new() };
    let places: Vec<usize> = called.iter().map(|(_, place, _)| *place).collect();
    if over && places != wanted {
        bad.push(format!("log {n}: {places:?} were undone of {wanted:?}"));
        return;
    }
    let mut before: Millis = 0;
    for (step, place, call) in called {
        let of = (i, generation, step);
        // A body of a step that a crash took back may have had its number.
        let landed = |of: crate::sim::outside::StepOf| {
            let is = move |b: &Begun| b.step() == of && undoes(b.start.meta);
            let mine = world.outside.landed.iter().filter(move |(_, b, _)| is(&world.outside.begun[*b]));
            mine.map(|(at, ..)| *at)
        };
        let given_up =
            entries.iter().any(|entry| matches!(&entry.kind, Kind::EffectResolved { step: s, .. } if *s == step));
        let read_only = crate::sim::effects::find(call.effect, "").is_some_and(|m| !m.contract.is_outward());
        let Some(first) = landed(of).min() else {
            // A body that returns what cannot be recorded, or an error that is its answer, has not always acted.
            let done = log.state.ended && !given_up && !read_only;
            if done && over {
                bad.push(format!("log {n}: undo {place} is done, and never happened"));
            }
            continue;
        };
        if first < before {
            bad.push(format!("log {n}: undo {place} happened before one that was to happen before it"));
        }
        // What may be repeated may also happen again later.
        before = first;
        let args = args_of(call.args);
        let act = world.outside.landed.iter().filter(|(_, b, _)| {
            let b = &world.outside.begun[*b];
            let once = matches!(b.start.meta.contract, Contract::Keyed | Contract::AtMostOnce);
            b.run == i && (b.no, b.seen) == args && once && !undoes(b.start.meta)
        });
        if let Some(act) = act.map(|(at, ..)| *at).max()
            && act > first
        {
            bad.push(format!("log {n}: undone at {first} by undo {place}, and then it happened, at {act}"));
        }
    }
}

/// What `cancel` answered is how the run ended.
pub(super) fn check_cancels(world: &World, histories: &[History], over: bool, bad: &mut Vec<String>) {
    if !over {
        return;
    }
    for (run, cancelled) in &world.clients.cancels {
        let Some(history) = histories.iter().find(|history| history.run == *run) else { continue };
        let ended = &history.last().state.ending;
        if matches!(ended, Some(End::Cancelled { .. })) != *cancelled {
            bad.push(format!("run {run}: cancel said {cancelled}, and it ended as {ended:?}"));
        }
    }
}
