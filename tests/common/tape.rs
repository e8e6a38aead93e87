//! A run's logs taken off a store, to be put into a new one, whole or cut: what the next process would find if this one had
//! died there.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use durable::{
    Generation, RunId,
    store::{About, Done, Dump, Head, Record, Store, Write, Written, memory::MemoryStore},
};

use super::{frames, pass_on::pass_on};

/// All that a store holds of a run.
#[derive(Clone)]
pub(crate) struct Tape {
    pub(crate) run: RunId,
    about: About,
    dump: Dump,
}

impl Tape {
    /// What is in the store now; `None` if there is no such run.
    pub(crate) fn of(store: &dyn Store, run: &str) -> Option<Tape> {
        let run = RunId::new(run).unwrap();
        let dump = store.dump(&run).unwrap()?;
        Some(Tape { run, about: store.about().clone(), dump })
    }

    /// How many logs it has.
    pub(crate) fn logs(&self) -> usize {
        self.dump.logs.len()
    }

    /// The entries of its nth log, each as its frame.
    pub(crate) fn frames(&self, log: usize) -> Vec<Bytes> {
        let records = &self.dump.logs[log].1;
        records.iter().flat_map(|record| frames::split(record.frames.clone())).collect()
    }

    /// A store in which the nth log is the newest and has these entries, and the run has not ended. Its mailbox is empty.
    pub(crate) fn with(&self, log: usize, entries: &[Bytes]) -> Image {
        let store = Arc::new(MemoryStore::new());
        self.put_into(&store, log, entries);
        Image { about: self.about.clone(), store }
    }

    /// Puts the run so into a store that has others.
    pub(crate) fn put_into(&self, store: &MemoryStore, log: usize, entries: &[Bytes]) {
        let mut dump = self.dump.clone();
        dump.logs.truncate(log + 1);
        let generation = Generation(u32::try_from(log).unwrap());
        // In records of some entries each, as a store has them that is written to while the run goes on.
        let mut first = durable::Seq(0);
        let mut records = Vec::new();
        for some in entries.chunks(100) {
            let mut frames = BytesMut::new();
            some.iter().for_each(|frame| frames.extend_from_slice(frame));
            let count = u32::try_from(some.len()).unwrap();
            records.push(Record { first, count, frames: frames.freeze() });
            first = first.plus(count.into());
        }
        dump.logs[log] = (generation, records);
        dump.record.head = Head { generation, live: true, ..dump.record.head };
        (dump.record.wait, dump.record.aside) = (None, None);
        (dump.rows, dump.published) = (Vec::new(), Vec::new());
        store.submit(
            Write::Restore { run: self.run.clone(), dump: Box::new(dump) },
            Box::new(|done| assert_eq!(done, Ok(Written::Created))),
        );
    }

    /// The same with the first `len` entries that the log has.
    pub(crate) fn cut(&self, log: usize, len: usize) -> Image {
        self.with(log, &self.frames(log)[..len])
    }
}

/// A store in memory under the name of another one: ids that are made of the store's name come out the same.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) about: About,
    pub(crate) store: Arc<MemoryStore>,
}

impl From<Arc<MemoryStore>> for Image {
    fn from(store: Arc<MemoryStore>) -> Image {
        Image { about: store.about().clone(), store }
    }
}

impl Image {
    /// What the next process would find if this one died now.
    pub(crate) fn reopened(&self) -> Image {
        Image { about: self.about.clone(), store: Arc::new(self.store.reopened()) }
    }
}

impl Store for Image {
    pass_on!(store: read, rows, published, dump, run, runs, close);

    fn about(&self) -> &About {
        &self.about
    }

    fn submit(&self, write: Write, done: Done) {
        self.store.submit(write, done);
    }
}
