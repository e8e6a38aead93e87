//! Where a child stops itself: seen from outside the library, by the writes that it submits to its store and by the lines
//! that bodies write into the ledger. And stores that are broken, for the controls.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use durable::{
    Generation, RunId, Seq,
    store::{About, Batch, Done, Record, Row, RunRecord, Store, StoreError, Write, Written, sled::SledStore},
};
use serde::{Deserialize, Serialize};

use crate::{
    child::{Said, say},
    common::frames,
};

/// When a child stops itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stop {
    Never,
    /// K0: the run is about to be made.
    BeforeCreated,
    /// K0: the run is on disk, and `start` has not heard of it.
    Created,
    /// K1: the first intent is on disk, and nobody has heard of it.
    Called,
    /// K2: the first body has written its line.
    InBody,
    /// K3: the first outcome is about to be written.
    BeforeResult,
    /// K4: the first outcome is on disk, and nobody has heard of it.
    Result,
    /// K5: the end of the run is about to be written.
    BeforeEnd,
    /// At the nth thing that happens to the store: a write is submitted, or is done.
    Event(u64),
}

impl Stop {
    pub(crate) const POINTS: [Stop; 7] = [
        Stop::BeforeCreated,
        Stop::Created,
        Stop::Called,
        Stop::InBody,
        Stop::BeforeResult,
        Stop::Result,
        Stop::BeforeEnd,
    ];

    /// The label of the point.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Stop::BeforeCreated | Stop::Created => "K0",
            Stop::Called => "K1",
            Stop::InBody => "K2",
            Stop::BeforeResult => "K3",
            Stop::Result => "K4",
            Stop::BeforeEnd => "K5",
            Stop::Never | Stop::Event(_) => "",
        }
    }
}

/// What is wrong with a store, for the controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Broken {
    No,
    /// From the nth entry on, what is appended is acknowledged and never written.
    DropsAppends {
        after: u64,
    },
    /// From the first outcome on.
    DropsOutcomes,
}

/// Says that the point is reached, and waits for the end: nobody who waits for this thread goes on.
pub(crate) fn stop_here() -> ! {
    say(&Said::Stopped);
    loop {
        thread::park();
    }
}

pub(crate) struct Labelled {
    inner: SledStore,
    stop: Stop,
    broken: Broken,
    events: std::sync::Arc<AtomicU64>,
    entries: AtomicU64,
    dropping: AtomicBool,
}

impl Labelled {
    pub(crate) fn new(inner: SledStore, stop: Stop, broken: Broken) -> Labelled {
        let (events, entries, dropping) = Default::default();
        Labelled { inner, stop, broken, events, entries, dropping }
    }

    fn drops(&self, write: &Write, names: &[&str]) -> bool {
        let Write::Append(Batch { count, .. }) = write else { return false };
        let before = self.entries.fetch_add(u64::from(*count), Ordering::SeqCst);
        let begins = match self.broken {
            Broken::No => false,
            Broken::DropsAppends { after } => before >= after,
            Broken::DropsOutcomes => names.contains(&"effect.result"),
        };
        self.dropping.fetch_or(begins, Ordering::SeqCst) || begins
    }
}

fn event(events: &AtomicU64, stop: Stop) {
    let nth = events.fetch_add(1, Ordering::SeqCst);
    // Whatever comes after it stops as well.
    if matches!(stop, Stop::Event(n) if nth >= n) {
        stop_here();
    }
}

impl Store for Labelled {
    fn about(&self) -> &About {
        self.inner.about()
    }

    fn submit(&self, write: Write, done: Done) {
        let (names, stop) = (frames::names(&write), self.stop);
        event(&self.events, stop);
        let (before, after) = match &write {
            Write::Create { .. } => (stop == Stop::BeforeCreated, stop == Stop::Created),
            Write::Append(_) => {
                let has = |name| names.contains(&name);
                let before = (has("effect.result") && stop == Stop::BeforeResult)
                    || (has("run.ended") && stop == Stop::BeforeEnd);
                let after =
                    (has("effect.called") && stop == Stop::Called) || (has("effect.result") && stop == Stop::Result);
                (before, after)
            }
            _ => (false, false),
        };
        if before {
            stop_here();
        }
        if self.drops(&write, &names) {
            return done(Ok(Written::Done));
        }
        let events = self.events.clone();
        let done: Done = Box::new(move |result| {
            if after {
                stop_here();
            }
            event(&events, stop);
            done(result);
        });
        self.inner.submit(write, done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.read(run, generation, from, most)
    }

    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError> {
        self.inner.rows(run)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        self.inner.runs(live, after, most)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.close()
    }
}
