//! As much of the log's bytes as the crash tests must understand: where an entry ends, and what kind it is. That it is
//! understood rightly is checked against the logs that the library shows.

use bytes::{Bytes, BytesMut};
use durable::{
    Generation, RunId, Seq,
    store::{Batch, Head, Store, Write, Written, memory::MemoryStore},
};

/// The names of the kinds of entries, in the order of the format, which only grows at its end.
const NAMES: [&str; 15] = [
    "run.started",
    "run.ending",
    "run.ended",
    "effect.queued",
    "effect.called",
    "timer.set",
    "version.chosen",
    "step.closed",
    "effect.result",
    "timer.fired",
    "effect.called",
    "effect.failed",
    "effect.not_started",
    "effect.in_doubt",
    "effect.resolved",
];

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
    // Length, checksum and version; then the time and the kind, as integers of variable length.
    let body = &frame[13..];
    let kind = match body[0] {
        251 => body[3],
        252 => body[5],
        253 => body[9],
        _ => body[1],
    };
    NAMES[usize::from(kind)]
}

/// What kinds of entries a write appends.
pub(crate) fn names(write: &Write) -> Vec<&'static str> {
    match write {
        Write::Create { frames, .. } | Write::Append(Batch { frames, .. }) => {
            split(frames.clone()).iter().map(name).collect()
        }
        _ => Vec::new(),
    }
}

/// A run's log as it is in a store, each entry as its frame.
pub(crate) fn tape(store: &dyn Store, run: &RunId) -> Vec<Bytes> {
    let (mut all, mut at) = (Vec::new(), Seq(0));
    loop {
        let page = store.read(run, Generation(0), at, 1 << 20).unwrap();
        let Some(last) = page.last() else { return all };
        at = last.first.plus(last.count.into());
        all.extend(page.into_iter().flat_map(|record| split(record.frames)));
    }
}

/// A store in memory in which the run has these entries and has not ended: what the next process would find if this one
/// had died there.
pub(crate) fn store_of(run: &RunId, tape: &[Bytes]) -> MemoryStore {
    let store = MemoryStore::new();
    let head = Head { generation: Generation(0), live: true, bytes: Bytes::new() };
    now(&store, Write::Create { run: run.clone(), count: 1, frames: tape[0].clone(), head });
    let Written::Claimed(epoch) = now(&store, Write::Claim { run: run.clone() }) else {
        panic!("a claim is answered with an epoch")
    };
    if tape.len() > 1 {
        let mut frames = BytesMut::new();
        tape[1..].iter().for_each(|frame| frames.extend_from_slice(frame));
        now(
            &store,
            Write::Append(Batch {
                run: run.clone(),
                epoch,
                generation: Generation(0),
                at: Seq(1),
                count: u32::try_from(tape.len() - 1).unwrap(),
                frames: frames.freeze(),
                acts: Vec::new(),
                head: None,
            }),
        );
    }
    now(&store, Write::Release { run: run.clone(), epoch });
    store
}

fn now(store: &MemoryStore, write: Write) -> Written {
    let (done, wait) = std::sync::mpsc::channel();
    store.submit(write, Box::new(move |result| done.send(result).unwrap()));
    wait.recv().unwrap().unwrap()
}
