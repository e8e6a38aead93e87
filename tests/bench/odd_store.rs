//! Stores that do what a bad day does: one that ends the process at a write, and one that does not take what it is given.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use durable::store::{Done, Store, StoreError, Write};

use crate::odd::Odd;

/// Where a [`fused`] store ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fuse {
    /// Before the write is handed on.
    Before(usize),
    /// When the write is durable, before anybody hears of it.
    After(usize),
}

/// A store that aborts the process at the `n`th write (from 1) that `counts`.
pub(crate) fn fused<S: Store>(inner: S, counts: fn(&Write) -> bool, fuse: Fuse) -> impl Store {
    let seen = AtomicUsize::new(0);
    Odd::new(inner, move |inner: &S, write, done| {
        let n = match counts(&write) {
            true => 1 + seen.fetch_add(1, Ordering::SeqCst),
            false => 0,
        };
        if fuse == Fuse::Before(n) {
            std::process::abort();
        }
        let done: Done = match fuse == Fuse::After(n) {
            true => Box::new(|_| std::process::abort()),
            false => done,
        };
        inner.submit(write, done);
    })
}

/// A store at which the process says `there` and stops, to be killed: at the `n`th write (from 1) that `counts`.
pub(crate) fn stopping<S: Store>(
    inner: S,
    counts: impl Fn(&Write) -> bool + Send + Sync + 'static,
    fuse: Fuse,
) -> impl Store {
    let seen = AtomicUsize::new(0);
    Odd::new(inner, move |inner: &S, write, done| {
        let n = match counts(&write) {
            true => 1 + seen.fetch_add(1, Ordering::SeqCst),
            false => 0,
        };
        if fuse == Fuse::Before(n) {
            crate::child::stop();
        }
        let done: Done = match fuse == Fuse::After(n) {
            true => Box::new(|_| crate::child::stop()),
            false => done,
        };
        inner.submit(write, done);
    })
}

/// Whether the write appends entries.
pub(crate) fn appends(write: &Write) -> bool {
    matches!(write, Write::Append(batch) if batch.count > 0)
}

/// What a [`moody`] store does with a write that appends entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Takes it.
    #[default]
    Fine,
    /// Refuses it for now.
    Refuses,
    /// Does not take it, and does not know.
    Loses,
    /// Takes it, and does not know.
    Forgets,
    /// Will never take it.
    Rejects,
}

/// A store whose mood can be changed.
pub(crate) fn moody<S: Store>(inner: S, mood: Arc<Mutex<Mood>>) -> impl Store {
    Odd::new(inner, move |inner: &S, write, done| {
        let mood = if appends(&write) { *mood.lock().unwrap() } else { Mood::Fine };
        match mood {
            Mood::Fine => inner.submit(write, done),
            Mood::Refuses => done(Err(StoreError::Refused { reason: "the disk is full".into() })),
            Mood::Loses => done(Err(StoreError::Unknown { reason: "the connection broke".into() })),
            Mood::Forgets => inner.submit(
                write,
                Box::new(|_| done(Err(StoreError::Unknown { reason: "the acknowledgement was lost".into() }))),
            ),
            Mood::Rejects => done(Err(StoreError::Rejected { reason: "a row of this kind is not allowed".into() })),
        }
    })
}
