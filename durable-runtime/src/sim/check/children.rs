//! Children: each is one run, its real end is in its parent's log, it does not outlive the parent unless it is detached, and
//! only its parent cancels it.

use super::{History, Log, asked};
use crate::{
    entry::{ChildEnd, End, Entry, Kind, Parent},
    fold::RunState,
    id::{Generation, StepNo},
    mailbox::Message,
    sim::world::World,
};

pub(super) fn check(world: &World, history: &History, all: &[History], over: bool, bad: &mut Vec<String>) {
    let id = world.ids[history.run].as_str();
    let run = |id: &str| all.iter().find(|other| world.ids[other.run].as_str() == id);
    for (n, log) in history.logs.iter().enumerate() {
        let entries = log.stored.entries();
        for (step, (_, kind)) in asked(&entries) {
            let Kind::ChildSpawned { child, .. } = kind else { continue };
            let what = format!("child {} of step {step} of log {n}", child.run);
            let Some(made) = run(&child.run) else {
                bad.push(format!("{what} does not exist"));
                continue;
            };
            let link = Parent { run: id.into(), generation: history.generation(n), step };
            let ended = entries.iter().find_map(|entry| match &entry.kind {
                Kind::ChildEnded { step: s, end, .. } if *s == step => Some(end),
                _ => None,
            });
            let is_mine = made.logs[0].state.parent.as_ref() == Some(&link);
            match ended {
                Some(ChildEnd::IdTaken) if is_mine => {
                    bad.push(format!("{what} is its own, and is said to be another's"))
                }
                Some(ChildEnd::IdTaken) | None => {}
                Some(end) if !is_mine || !is_end(end, &made.last().state) => {
                    bad.push(format!("{what} ended as {:?}, the log says {end:?}", made.last().state.ending));
                }
                Some(_) => {}
            }
            if !is_mine {
                continue;
            }
            digest_of(made, child.digest, &what, bad);
            if !child.detached && !is_told(world, made.run, &link, (history.run, log)) {
                bad.push(format!("{what} is not wanted any more, and was not told"));
            }
            let times = (world.told.ended.get(&made.run), world.told.ended.get(&history.run));
            if over && !child.detached {
                if ended.is_none() {
                    bad.push(format!("no end of {what} in the log"));
                }
                if let (Some(child), Some(parent)) = times
                    && child > parent
                {
                    bad.push(format!("{what} outlived its parent"));
                }
            }
        }
    }
    born(world, history, all, bad);
}

/// Whether a child was cancelled by the write that has let go of it, or had ended before.
fn is_told(world: &World, child: usize, link: &Parent<'_>, (parent, log): (usize, &Log)) -> bool {
    let entries = log.stored.entries();
    let of_child = |entry: &Entry<'_>| match &entry.kind {
        Kind::StepClosed { step } | Kind::ChildEnded { step, .. } => *step == link.step,
        Kind::RunEnding(_) | Kind::RunEnded(_) => true,
        _ => false,
    };
    let Some(at) = entries.iter().position(of_child) else { return true };
    if matches!(entries[at].kind, Kind::ChildEnded { .. }) {
        return true;
    }
    let generation: Generation = link.generation;
    let written = world.written_at((parent, generation), at as u64);
    let ended = world.told.ended.get(&child).is_some_and(|ended| written.is_none_or(|written| *ended <= written));
    let rows = world.told.rows.get(&child).into_iter().flatten();
    let cancels = |row| matches!(Message::read(row), Some(Message::Cancel { parent: Some(by), .. }) if by == *link);
    ended || rows.into_iter().any(|(_, row)| cancels(row))
}

fn digest_of(made: &History, digest: u128, what: &str, bad: &mut Vec<String>) {
    let entries = made.logs[0].stored.entries();
    if !matches!(&entries[0].kind, Kind::RunStarted(started) if started.digest == digest) {
        bad.push(format!("{what} has other arguments"));
    }
}

fn is_end(end: &ChildEnd<'_>, state: &RunState) -> bool {
    match (end, &state.ending) {
        (ChildEnd::Completed { value }, Some(End::Completed { value: v })) => value == v,
        (ChildEnd::Failed { value, .. }, Some(End::Failed { value: v, .. })) => value == v,
        (ChildEnd::Cancelled { reason }, Some(End::Cancelled { reason: r, .. })) => reason == r,
        _ => false,
    }
}

/// Who made the run has it in its log; who cancelled it may.
fn born(world: &World, history: &History, all: &[History], bad: &mut Vec<String>) {
    let id = world.ids[history.run].as_str();
    let parent = history.logs[0].state.parent.clone();
    for (n, log) in history.logs.iter().enumerate() {
        if log.state.parent != parent {
            bad.push(format!("log {n} has another parent"));
        }
        let by = match (&log.state.cancel, &log.state.ending) {
            (Some(cancel), _) => cancel.by.to_string(),
            (None, Some(End::Cancelled { by, .. })) => by.to_string(),
            _ => continue,
        };
        if let Some(by) = by.strip_prefix("run ")
            && parent.as_ref().is_none_or(|parent| parent.run != by)
        {
            bad.push(format!("cancelled by {by}, which is not its parent {parent:?}"));
        }
    }
    let Some(parent) = parent else { return };
    let Some(from) = all.iter().find(|other| world.ids[other.run].as_str() == parent.run) else {
        bad.push(format!("orphan: {parent:?} does not exist"));
        return;
    };
    let spawned = from.logs.get(parent.generation.0 as usize).is_some_and(|log| {
        let step: StepNo = parent.step;
        matches!(asked(&log.stored.entries()).get(&step), Some((_, Kind::ChildSpawned { child, .. })) if child.run == id)
    });
    if !spawned {
        bad.push(format!("orphan: {parent:?} has not made it"));
    }
}
