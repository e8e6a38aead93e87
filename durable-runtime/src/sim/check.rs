//! What must hold when all is over.

mod children;
mod effects;
mod ending;
mod messages;
mod replays;
mod shields;

use std::collections::BTreeMap;

use super::{log::Stored, world::World};
use crate::{
    entry::{Call, Entry, Kind, Path, Undo},
    fold::RunState,
    id::{Generation, StepNo},
    store::Store,
};

/// All logs of a run, and what they say.
pub(super) struct History {
    pub(super) run: usize,
    pub(super) logs: Vec<Log>,
}

pub(super) struct Log {
    pub(super) stored: Stored,
    pub(super) state: RunState,
}

pub(super) fn all(world: &mut World, cuts: usize) {
    let mut histories = Vec::new();
    for i in 0..world.ids.len() {
        let logs = Stored::all(&*world.store, &world.ids[i]);
        if logs.is_empty() {
            continue;
        }
        world.stats.runs += 1;
        let mut history = History { run: i, logs: Vec::new() };
        for stored in logs {
            world.stats.logs += 1;
            world.stats.entries += stored.len();
            match stored.state() {
                Ok(state) => history.logs.push(Log { stored, state }),
                Err(illegal) => return world.fail(format!("run {i} log {}: {illegal}", history.logs.len())),
            }
        }
        histories.push(history);
    }
    let over = world.bad.is_empty();
    for history in &histories {
        let i = history.run;
        let mut bad = Vec::new();
        ending::count(history, &mut world.stats);
        ending::check(world, history, over, &mut bad);
        for generation in 0..history.logs.len() {
            effects::check(world, history, generation, over, &mut bad);
        }
        messages::check(world, history, over, &mut bad);
        children::check(world, history, &histories, over, &mut bad);
        for bad in bad {
            world.fail(format!("run {i}: {bad}"));
        }
        if world.bad.is_empty() && over {
            replays::check(world, history, cuts);
        }
    }
    let mut bad = Vec::new();
    messages::check_sent(world, &histories, over, &mut bad);
    effects::check_keys(world, &mut bad);
    ending::check_cancels(world, &histories, over, &mut bad);
    bad.into_iter().for_each(|bad| world.fail(bad));
    for (i, generation, seq, frame) in std::mem::take(&mut world.clients.seen) {
        let log = Stored::read(&*world.store, &world.ids[i], generation);
        if log.frame(seq) != Some(&frame) {
            world.fail(format!("run {i} log {generation}: a reader has seen an entry at {seq} that is not there"));
        }
    }
}

/// What a log says of the steps: the entries that asked for them, by their numbers.
pub(super) fn asked<'a>(entries: &'a [Entry<'a>]) -> BTreeMap<StepNo, (u64, &'a Kind<'a>)> {
    let asks = entries.iter().enumerate().filter(|(_, entry)| entry.kind.makes_step());
    asks.enumerate().map(|(step, (seq, entry))| (StepNo(step as u32), (seq as u64, &entry.kind))).collect()
}

/// The path of a command.
pub(super) fn path_of<'a>(kind: &'a Kind<'a>) -> Option<&'a Path<'a>> {
    match kind {
        Kind::EffectQueued(call) | Kind::EffectCalled(call) => Some(&call.path),
        Kind::TimerSet { path, .. }
        | Kind::VersionChosen { path, .. }
        | Kind::SignalAwaited { path, .. }
        | Kind::QuestionAsked { path, .. }
        | Kind::ChildSpawned { path, .. }
        | Kind::MessageSent { path, .. }
        | Kind::ValuePublished { path, .. }
        | Kind::UndoAdded { path, .. } => Some(path),
        _ => None,
    }
}

/// Whether a scope of that name encloses a path.
pub(super) fn is_in(path: &Path<'_>, name: &str) -> bool {
    path.scope.split('/').any(|segment| segment.strip_prefix(name).is_some_and(|rest| rest.starts_with('[')))
}

/// The call that a step makes, and its path.
pub(super) fn call_of<'a>(kind: &'a Kind<'a>, undos: &'a [Undo<'static>]) -> Option<Made<'a>> {
    match kind {
        Kind::EffectQueued(call) | Kind::EffectCalled(call) => {
            let Call { path, args, key, .. } = call;
            let path = path.to_string();
            Some(Made { effect: call.effect(), path, args, key: key.as_deref(), undoes: None })
        }
        Kind::UndoCalled { undo } => {
            let place = *undo as usize;
            let Undo { effect, args, key, .. } = &undos[place];
            let path = format!("undo[{place}]");
            Some(Made { effect, path, args, key: key.as_deref(), undoes: Some(place) })
        }
        _ => None,
    }
}

/// A call as a log has it.
pub(super) struct Made<'a> {
    pub(super) effect: &'a str,
    pub(super) path: String,
    pub(super) args: &'a [u8],
    pub(super) key: Option<&'a str>,
    /// Its place in the list of what undoes.
    pub(super) undoes: Option<usize>,
}

/// The rows that are in a run's mailbox now, by id.
pub(super) fn rows_left(world: &World, i: usize) -> Vec<u128> {
    world.store.rows(&world.ids[i], 0, usize::MAX).unwrap().into_iter().map(|(_, row)| row.id).collect()
}

impl History {
    pub(super) fn last(&self) -> &Log {
        self.logs.last().expect("a run has a log")
    }

    pub(super) fn generation(&self, n: usize) -> Generation {
        Generation(n as u32)
    }
}
