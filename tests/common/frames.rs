//! As much of the log's bytes as the crash tests must understand: where an entry ends, and what kind it is. That it is
//! understood rightly is checked against the logs that the library shows.

use bytes::Bytes;
use durable::store::{Batch, Write};

/// The names of the kinds of entries, in the order of the format, which only grows at its end.
const NAMES: [&str; 28] = [
    "run.started",
    "run.ending",
    "run.ended",
    "effect.queued",
    "effect.called",
    "timer.set",
    "version.chosen",
    "step.closed",
    "signal.awaited",
    "question.asked",
    "child.spawned",
    "message.sent",
    "value.published",
    "undo.added",
    "effect.result",
    "timer.fired",
    "signal.received",
    "question.answered",
    "child.result",
    "run.cancel_requested",
    "effect.called",
    "effect.failed",
    "effect.not_started",
    "effect.in_doubt",
    "effect.resolved",
    "signal.set_aside",
    "effect.called",
    "resolution.set_aside",
];

/// Where a compensation that is called stands in the list.
const UNDO_CALLED: usize = 26;

/// Cuts frames apart.
pub(crate) fn split(mut frames: Bytes) -> Vec<Bytes> {
    let mut all = Vec::new();
    while let Some(length) = frames.first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        all.push(frames.split_to(12 + length));
    }
    all
}

/// What kind of entry a frame holds.
pub(crate) fn name(frame: &Bytes) -> &'static str {
    NAMES[kind(frame)]
}

fn kind(frame: &Bytes) -> usize {
    // Length, checksum and version; then the time and the kind, as integers of variable length.
    let body = &frame[13..];
    match body[0] {
        251 => body[3].into(),
        252 => body[5].into(),
        253 => body[9].into(),
        _ => body[1].into(),
    }
}

/// What kinds of entries a write appends to the log of its own run.
pub(crate) fn names(write: &Write) -> Vec<&'static str> {
    match write {
        Write::Create { frames, .. } | Write::Append(Batch { frames, .. }) => {
            split(frames.clone()).iter().map(name).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a write calls a compensation.
pub(crate) fn undoes(write: &Write) -> bool {
    match write {
        Write::Append(Batch { frames, .. }) => split(frames.clone()).iter().any(|frame| kind(frame) == UNDO_CALLED),
        _ => false,
    }
}
