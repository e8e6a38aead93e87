//! A store that does with what is submitted what it is told to.

use std::sync::atomic::{AtomicUsize, Ordering};

use durable::{
    Generation, RunId, Seq, StoreError,
    store::{Done, Record, Row, RunRecord, Store, Write},
};

use crate::pass_on::pass_on;

/// Passes everything on but what `submit` is told to keep.
pub(crate) struct Odd<S, F> {
    pub(crate) inner: S,
    on_submit: F,
    /// Reads of logs, mailboxes and records.
    pub(crate) reads: AtomicUsize,
    pub(crate) writes: AtomicUsize,
}

impl<S, F> Odd<S, F>
where
    S: Store,
    F: Fn(&S, Write, Done) + Send + Sync + 'static,
{
    pub(crate) fn new(inner: S, on_submit: F) -> Odd<S, F> {
        Odd { inner, on_submit, reads: AtomicUsize::new(0), writes: AtomicUsize::new(0) }
    }

    fn read_once(&self) -> &S {
        self.reads.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
}

impl<S, F> Store for Odd<S, F>
where
    S: Store,
    F: Fn(&S, Write, Done) + Send + Sync + 'static,
{
    pass_on!(inner: about, published, dump, close);

    fn submit(&self, write: Write, done: Done) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        (self.on_submit)(&self.inner, write, done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        self.read_once().read(run, generation, from, most)
    }

    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.read_once().rows(run, after, most)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.read_once().run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        self.read_once().runs(live, after, most)
    }
}
