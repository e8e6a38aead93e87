//! Where a child stops itself: seen from outside the library, by the writes that it submits to its store and by the lines
//! that bodies write into the ledger. And stores that are broken, for the controls.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

use durable::{
    RunId,
    store::{Act, Batch, Done, Store, Write, Written, sled::SledStore},
};
use serde::{Deserialize, Serialize};

use crate::{
    child::{Said, say},
    common::{frames, pass_on::pass_on},
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
    /// The nth one, from 1, is about to be written.
    Before(Deed, u32),
    /// The nth one, from 1, is on disk, and nobody has heard of it.
    After(Deed, u32),
}

/// What is written by or for runs that wait for each other, for messages and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// A client's message, an answer, a cancel: a row.
    Put,
    Awaited,
    Received,
    Asked,
    Answered,
    Spawned,
    /// The end of a child, with the row for its parent.
    ChildEnd,
    ChildResult,
    Sent,
    Published,
    UndoAdded,
    CancelRequested,
    /// The code is over, and something is left to do.
    Ending,
    Undo,
    UndoResult,
    Restarted,
    /// A terminal entry, of any run.
    End,
    /// The run has left memory.
    Released,
    Claimed,
}

impl Deed {
    pub(crate) const ALL: [Deed; 19] = [
        Deed::Put,
        Deed::Awaited,
        Deed::Received,
        Deed::Asked,
        Deed::Answered,
        Deed::Spawned,
        Deed::ChildEnd,
        Deed::ChildResult,
        Deed::Sent,
        Deed::Published,
        Deed::UndoAdded,
        Deed::CancelRequested,
        Deed::Ending,
        Deed::Undo,
        Deed::UndoResult,
        Deed::Restarted,
        Deed::End,
        Deed::Released,
        Deed::Claimed,
    ];

    /// Whether a write does it; `undoing`: the runs that take back what they did.
    fn is(self, write: &Write, names: &[&str], undoing: &BTreeSet<RunId>) -> bool {
        let acts = |is: fn(&Act) -> bool| matches!(write, Write::Append(batch) if batch.acts.iter().any(is));
        let has = |name| names.contains(&name);
        match self {
            Deed::Put => matches!(write, Write::Put { .. }),
            Deed::Awaited => has("signal.awaited"),
            Deed::Received => has("signal.received"),
            Deed::Asked => has("question.asked"),
            Deed::Answered => has("question.answered"),
            Deed::Spawned => has("child.spawned"),
            Deed::ChildEnd => has("run.ended") && acts(|act| matches!(act, Act::Put { .. })),
            Deed::ChildResult => has("child.result"),
            Deed::Sent => has("message.sent"),
            Deed::Published => has("value.published"),
            Deed::UndoAdded => has("undo.added"),
            Deed::CancelRequested => has("run.cancel_requested"),
            Deed::Ending => has("run.ending"),
            Deed::Undo => frames::undoes(write),
            Deed::UndoResult => {
                matches!(write, Write::Append(batch) if undoing.contains(&batch.run)) && has("effect.result")
            }
            Deed::Restarted => acts(|act| matches!(act, Act::Next { .. })),
            Deed::End => has("run.ended"),
            Deed::Released => matches!(write, Write::Release { .. }),
            Deed::Claimed => matches!(write, Write::Claim { .. }),
        }
    }
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
            _ => "",
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
    /// Messages from clients are acknowledged and never written.
    DropsPuts,
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
    /// How often what it is to stop at was done.
    deeds: AtomicU32,
    undoing: Mutex<BTreeSet<RunId>>,
}

impl Labelled {
    pub(crate) fn new(inner: SledStore, stop: Stop, broken: Broken) -> Labelled {
        let (events, entries, dropping, deeds, undoing) = Default::default();
        Labelled { inner, stop, broken, events, entries, dropping, deeds, undoing }
    }

    /// Whether this is the write of that number that does it.
    fn does(&self, deed: Deed, nth: u32, write: &Write, names: &[&str]) -> bool {
        let is = deed.is(write, names, &self.undoing.lock().unwrap());
        is && 1 + self.deeds.fetch_add(1, Ordering::SeqCst) == nth
    }

    fn drops(&self, write: &Write, names: &[&str]) -> bool {
        if self.broken == Broken::DropsPuts {
            return matches!(write, Write::Put { .. });
        }
        let Write::Append(Batch { count, .. }) = write else { return false };
        let before = self.entries.fetch_add(u64::from(*count), Ordering::SeqCst);
        let begins = match self.broken {
            Broken::No | Broken::DropsPuts => false,
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
    pass_on!(inner);

    fn submit(&self, write: Write, done: Done) {
        let (names, stop) = (frames::names(&write), self.stop);
        event(&self.events, stop);
        let has = |name| names.contains(&name);
        let (before, after) = match (stop, &write) {
            (Stop::Before(deed, nth), write) => (self.does(deed, nth, write, &names), false),
            (Stop::After(deed, nth), write) => (false, self.does(deed, nth, write, &names)),
            (stop, Write::Create { .. }) => (stop == Stop::BeforeCreated, stop == Stop::Created),
            (Stop::BeforeResult, Write::Append(_)) => (has("effect.result"), false),
            (Stop::BeforeEnd, Write::Append(_)) => (has("run.ended"), false),
            (Stop::Called, Write::Append(_)) => (false, has("effect.called")),
            (Stop::Result, Write::Append(_)) => (false, has("effect.result")),
            _ => (false, false),
        };
        if let Write::Append(batch) = &write
            && frames::undoes(&write)
        {
            self.undoing.lock().unwrap().insert(batch.run.clone());
        }
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
}
