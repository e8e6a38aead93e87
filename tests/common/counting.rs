//! A store that writes down what is asked of it.

#![allow(dead_code, reason = "each that counts takes what it needs")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use durable::{
    Generation, RunId, Seq, StoreError,
    store::{About, Done, Dump, Published, Record, Row, RunRecord, Store, Write},
};
use tokio::sync::watch;

/// One thing that was asked of a store: what, and about which run.
pub(crate) type Asked = (&'static str, Option<RunId>);

/// Any store, with a list of what it was asked. Clones are one.
#[derive(Clone)]
pub(crate) struct Counting {
    store: Arc<dyn Store>,
    /// `None`: none is kept.
    asked: Arc<Mutex<Option<Vec<Asked>>>>,
    /// Runs that were released to wait, durably, so often.
    waiting: watch::Sender<usize>,
}

impl Counting {
    pub(crate) fn new(store: impl Store) -> Counting {
        let asked = Arc::new(Mutex::new(Some(Vec::new())));
        Counting { store: Arc::new(store), asked, waiting: watch::Sender::new(0) }
    }

    /// Only counts who goes to wait.
    pub(crate) fn keep_no_list(&self) {
        *self.list() = None;
    }

    /// Waits until runs have been released to wait so often.
    pub(crate) async fn have_gone_to_wait(&self, times: usize) {
        // The sender is this.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting >= times).await;
    }

    /// What was asked since the last look.
    pub(crate) fn take(&self) -> Vec<Asked> {
        self.list().as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn list(&self) -> MutexGuard<'_, Option<Vec<Asked>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &'static str, run: Option<&RunId>) {
        if let Some(list) = &mut *self.list() {
            list.push((what, run.cloned()));
        }
    }
}

/// The runs whose log was read from its beginning: those that were replayed or folded.
pub(crate) fn replayed(asked: &[Asked]) -> BTreeSet<RunId> {
    asked.iter().filter(|(what, _)| *what == "read from 0").filter_map(|(_, run)| run.clone()).collect()
}

impl Store for Counting {
    fn about(&self) -> &About {
        self.store.about()
    }

    fn submit(&self, write: Write, done: Done) {
        let (what, run) = match &write {
            Write::Create { run, .. } => ("create", Some(run)),
            Write::Claim { run, .. } => ("claim", Some(run)),
            Write::Release { run, .. } => ("release", Some(run)),
            Write::Append(batch) => ("append", Some(&batch.run)),
            Write::Put { run, .. } => ("put", Some(run)),
            Write::Aside { run, .. } => ("aside", Some(run)),
            Write::Remove { run } => ("remove", Some(run)),
            Write::Restore { run, .. } => ("restore", Some(run)),
            Write::Barrier => ("barrier", None),
        };
        self.note(what, run);
        let waiting = matches!(write, Write::Release { wait: Some(_), .. }).then(|| self.waiting.clone());
        self.store.submit(
            write,
            Box::new(move |result| {
                if let (Some(waiting), Ok(_)) = (waiting, &result) {
                    waiting.send_modify(|waiting| *waiting += 1);
                }
                done(result);
            }),
        );
    }

    fn read(
        &self,
        run: &RunId,
        generation: Generation,
        from: Seq,
        bytes_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.note(if from == Seq(0) { "read from 0" } else { "read" }, Some(run));
        self.store.read(run, generation, from, bytes_max)
    }

    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.note("rows", Some(run));
        self.store.rows(run, after, most)
    }

    fn published(&self, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
        self.note("published", Some(run));
        self.store.published(run)
    }

    fn dump(&self, run: &RunId) -> Result<Option<Dump>, StoreError> {
        self.note("dump", Some(run));
        self.store.dump(run)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.note("run", Some(run));
        self.store.run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        self.note("runs", None);
        self.store.runs(live, after, most)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}
