//! A store that forgets what was not synced, and fails on demand: the simulated disk under the crash tests.

#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and fails by panicking")]

use std::sync::{Arc, Mutex, MutexGuard};

use durable_runtime::{
    Generation, RunId, Seq,
    store::{
        About, Done, Dump, Published, Record, Row, RunRecord, Store, StoreError, Write, Written, memory::MemoryStore,
    },
};

/// What becomes of a write instead of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not written: [`StoreError::Refused`].
    Refused,
    /// Not written: [`StoreError::Rejected`].
    Rejected,
    /// [`StoreError::Unknown`], and not written.
    UnknownLost,
    /// [`StoreError::Unknown`], but written.
    UnknownApplied,
    /// The process dies before the write, see [`CrashStore::crash`]. Nobody hears of this write or of any other again.
    Crash,
}

/// Decides about each write, given the number of those before it.
type Plan = Box<dyn FnMut(u64, &Write) -> Option<Fault> + Send>;

/// Applies each write at once, so that it can be read, and makes it durable and calls its `done` on
/// [`CrashStore::sync`] only.
pub(crate) struct CrashStore {
    about: About,
    inner: Mutex<Inner>,
}

struct Inner {
    live: MemoryStore,
    durable: MemoryStore,
    /// What is applied but not durable, with its result.
    pending: Vec<(Write, Result<Written, StoreError>, Done)>,
    /// Callbacks that are never called, nor dropped: a dead process would not notice that either.
    unheard: Vec<Done>,
    plan: Plan,
    sync_after: usize,
    dead: bool,
    writes: u64,
    syncs: u64,
}

impl CrashStore {
    /// An empty store that syncs when it is told to.
    pub(crate) fn new() -> CrashStore {
        CrashStore::on(&MemoryStore::new())
    }

    fn on(durable: &MemoryStore) -> CrashStore {
        // Both start from the same image and get the same writes in the same order, so they give out the same epochs.
        let (live, durable) = (durable.reopened(), durable.reopened());
        let (pending, unheard, plan): (_, _, Plan) = (Vec::new(), Vec::new(), Box::new(|_, _| None));
        let about = live.about().clone();
        let sync_after = usize::MAX;
        let inner = Inner { live, durable, pending, unheard, plan, sync_after, dead: false, writes: 0, syncs: 0 };
        CrashStore { about, inner: Mutex::new(inner) }
    }

    /// Asks `plan` about each write, given the number of those before it, what shall become of it.
    pub(crate) fn plan(&self, plan: impl FnMut(u64, &Write) -> Option<Fault> + Send + 'static) {
        self.inner().plan = Box::new(plan);
    }

    /// Syncs by itself whenever so many writes are pending; 1: each at once.
    pub(crate) fn sync_after(&self, pending: usize) {
        self.inner().sync_after = pending;
    }

    /// Makes all that was applied durable and calls the `done` of each, in order. Returns how many there were.
    pub(crate) fn sync(&self) -> usize {
        let mut inner = self.inner();
        if inner.dead {
            return 0;
        }
        inner.syncs += 1;
        let kept = inner.pending.len();
        let answers = inner.keep(kept);
        drop(inner);
        let count = answers.len();
        answers.into_iter().for_each(|(result, done)| done(result));
        count
    }

    /// The process dies and the machine loses what was not synced, but for the first `kept` of the pending writes,
    /// which had made it to the disk without anybody being told. Returns what the next process finds.
    pub(crate) fn crash(&self, kept: usize) -> CrashStore {
        let mut inner = self.inner();
        let kept = kept.min(inner.pending.len());
        let unheard = inner.keep(kept).into_iter().map(|(_, done)| done);
        inner.unheard.extend(unheard);
        inner.dead = true;
        CrashStore::on(&inner.durable)
    }

    /// How many writes were submitted.
    pub(crate) fn writes(&self) -> u64 {
        self.inner().writes
    }

    /// How many syncs there were.
    pub(crate) fn syncs(&self) -> u64 {
        self.inner().syncs
    }

    /// How many writes are applied but not durable.
    pub(crate) fn pending(&self) -> usize {
        self.inner().pending.len()
    }

    /// Whether the process that had this store open has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.inner().dead
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    /// Makes the first `kept` pending writes durable and takes their answers out.
    fn keep(&mut self, kept: usize) -> Vec<(Result<Written, StoreError>, Done)> {
        let kept = self.pending.drain(..kept);
        let answers = kept.map(|(write, result, done)| {
            assert_eq!(now(&self.durable, write), result, "the durable image has gone another way");
            (result, done)
        });
        answers.collect()
    }
}

/// What a store in memory makes of a write.
fn now(store: &MemoryStore, write: Write) -> Result<Written, StoreError> {
    let (tell, told) = std::sync::mpsc::channel();
    store.submit(write, Box::new(move |result| tell.send(result).unwrap()));
    told.recv().unwrap()
}

impl Store for CrashStore {
    fn about(&self) -> &About {
        &self.about
    }

    fn submit(&self, write: Write, done: Done) {
        let mut inner = self.inner();
        let nth = inner.writes;
        inner.writes += 1;
        let fault = if inner.dead { Some(Fault::Crash) } else { (inner.plan)(nth, &write) };
        let reason = "the test wants it".into();
        let fail = match fault {
            None => None,
            Some(Fault::Refused) => Some(StoreError::Refused { reason }),
            Some(Fault::Rejected) => Some(StoreError::Rejected { reason }),
            Some(Fault::UnknownLost | Fault::UnknownApplied) => Some(StoreError::Unknown { reason }),
            Some(Fault::Crash) => {
                inner.dead = true;
                return inner.unheard.push(done);
            }
        };
        let (fail, done): (_, Done) = match fail {
            None => (None, done),
            Some(error) => (Some((error, done)), Box::new(drop)),
        };
        if matches!(fault, None | Some(Fault::UnknownApplied)) {
            let result = now(&inner.live, write.clone());
            inner.pending.push((write, result, done));
        }
        let full = inner.pending.len() >= inner.sync_after;
        drop(inner);
        if let Some((error, done)) = fail {
            done(Err(error));
        }
        if full {
            self.sync();
        }
    }

    fn read(
        &self,
        run: &RunId,
        generation: Generation,
        from: Seq,
        bytes_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner().live.read(run, generation, from, bytes_max)
    }

    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.inner().live.rows(run, after, most)
    }

    fn published(&self, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
        self.inner().live.published(run)
    }

    fn dump(&self, run: &RunId) -> Result<Option<Dump>, StoreError> {
        self.inner().live.dump(run)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner().live.run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        self.inner().live.runs(live, after, most)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.sync();
        let inner = self.inner();
        inner.live.close().and(inner.durable.close())
    }
}
