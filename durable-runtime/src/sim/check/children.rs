//! Children: each is one run, its real end is in its parent's log, it does not outlive the parent unless it is detached, and
//! only its parent cancels it.

use super::{History, asked, shields::Shields};
use crate::{
    clock::Millis,
    entry::{ChildEnd, End, Kind, Parent, RunStarted},
    fold::RunState,
    id::StepNo,
    mailbox::Message,
    sim::world::World,
};

pub(super) fn check(world: &World, history: &History, all: &[History], over: bool, bad: &mut Vec<String>) {
    let id = world.ids[history.run].as_str();
    let run = |id: &str| all.iter().find(|other| world.ids[other.run].as_str() == id);
    for (n, log) in history.logs.iter().enumerate() {
        let entries = log.stored.entries();
        let shields = Shields::of(&entries);
        let Kind::RunStarted(RunStarted { seed, .. }) = entries[0].kind else { unreachable!("a log begins so") };
        for (step, (seq, kind)) in asked(&entries) {
            let Kind::ChildSpawned { child, path, .. } = kind else { continue };
            let what = format!("child {} of step {step} of log {n}", child.run);
            let Some(made) = run(&child.run) else {
                bad.push(format!("{what} does not exist"));
                continue;
            };
            let link = Parent { run: id.into(), generation: history.generation(n), step, seed };
            let ended = entries.iter().enumerate().find_map(|(seq, entry)| match &entry.kind {
                Kind::ChildEnded { step: s, end, .. } if *s == step => Some((seq as u64, end)),
                _ => None,
            });
            let is_mine = made.logs[0].state.parent.as_ref() == Some(&link);
            match ended.map(|(_, end)| end) {
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
            if !child.detached {
                // It is let go of with the entry there, if it has not ended before.
                let dropped = entries.iter().position(|entry| lets_go(&entry.kind, step)).map(|at| at as u64);
                let stopped = entries.iter().position(|entry| matches!(entry.kind, Kind::CancelRequested { .. }));
                let stopped = stopped.and_then(|at| shields.end(path, (at as u64).max(seq + 1)));
                let let_go = dropped.into_iter().chain(stopped).min();
                let let_go = let_go.filter(|at| ended.is_none_or(|(ended, _)| *at < ended));
                match let_go {
                    Some(at)
                        if !is_told(world, made.run, &link, world.written_at((history.run, link.generation), at)) =>
                    {
                        bad.push(format!("{what} is not wanted any more, and was not told"));
                    }
                    None if ended.is_some() && is_cancelled_by(&made.last().state, id) => {
                        bad.push(format!("{what} was wanted still, and was cancelled"));
                    }
                    _ => {}
                }
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

/// Whether nobody wants a child after an entry.
fn lets_go(kind: &Kind<'_>, child: StepNo) -> bool {
    match kind {
        Kind::StepClosed { step } => *step == child,
        Kind::RunEnding(_) | Kind::RunEnded(_) => true,
        _ => false,
    }
}

/// Whether a child was cancelled by the write that has let go of it, or had ended before.
fn is_told(world: &World, child: usize, link: &Parent<'_>, written: Option<Millis>) -> bool {
    let ended = world.told.ended.get(&child).is_some_and(|ended| written.is_none_or(|written| *ended <= written));
    let rows = world.told.rows.get(&child).into_iter().flatten();
    let cancels = |row| matches!(Message::read(row), Some(Message::Cancel { parent: Some(by), .. }) if by == *link);
    ended || rows.into_iter().any(|(_, row)| cancels(row))
}

fn is_cancelled_by(state: &RunState, parent: &str) -> bool {
    matches!(&state.ending, Some(End::Cancelled { by, .. }) if by.strip_prefix("run ") == Some(parent))
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
