//! A run's log as it is in the store.

use bytes::{Bytes, BytesMut};

use crate::{
    entry::{Entry, Kind, decode, next_frame},
    fold::RunState,
    id::{Generation, RunId, Seq},
    log::read_frames,
    store::{Record, Store},
};

/// All entries of a log.
#[derive(Clone)]
pub(super) struct Stored(Vec<Bytes>);

impl Stored {
    pub(super) fn read(store: &dyn Store, run: &RunId, generation: Generation) -> Stored {
        Stored::of(read_frames(store, run, generation, Seq(0)).unwrap())
    }

    /// All logs of a run, oldest first.
    pub(super) fn all(store: &dyn Store, run: &RunId) -> Vec<Stored> {
        let Some(record) = store.run(run).unwrap() else { return Vec::new() };
        (0..=record.head.generation.0).map(|n| Stored::read(store, run, Generation(n))).collect()
    }

    /// The frame at a place, checksum and all left out.
    pub(super) fn frame(&self, seq: u64) -> Option<&Bytes> {
        self.0.get(seq as usize)
    }

    pub(super) fn of(mut frames: Bytes) -> Stored {
        Stored(std::iter::from_fn(|| next_frame(&mut frames).unwrap()).collect())
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The first `count` entries, as the store would give them.
    pub(super) fn record(&self, count: u64) -> Record {
        let mut frames = BytesMut::new();
        for entry in &self.entries()[..count as usize] {
            entry.write(&mut frames).unwrap();
        }
        Record { first: Seq(0), count: count as u32, frames: frames.freeze() }
    }

    pub(super) fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|frame| decode(frame).unwrap()).collect()
    }

    /// The state, or the place and reason of the first entry that is illegal.
    pub(super) fn state(&self) -> Result<RunState, String> {
        let mut state = RunState::default();
        for entry in self.entries() {
            state.apply(&entry).map_err(|illegal| illegal.to_string())?;
        }
        Ok(state)
    }

    pub(super) fn show(&self) -> String {
        let mut text = String::new();
        for (seq, entry) in self.entries().iter().enumerate() {
            let what = match &entry.kind {
                Kind::EffectQueued(call) | Kind::EffectCalled(call) => format!("{} {}", entry.kind.name(), call.path),
                kind => format!("{kind:?}"),
            };
            text.push_str(&format!("{seq:4} at {} {what}\n", entry.at));
        }
        text
    }
}
