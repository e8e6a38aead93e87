//! A run's log taken off a store, to be put into a new one, whole or cut: what the next process would find if this one had
//! died there. And the store that remembers how each run was first listed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::{Bytes, BytesMut};
use durable::{
    Generation, RunId, Seq,
    store::{About, Act, Batch, Done, Head, Record, Store, StoreError, Write, Written, memory::MemoryStore},
};

use crate::{
    image::{self, Image},
    pass_on::pass_on,
};

/// Passes everything on, and keeps the head with which each run was made: that of a run that has not ended.
pub(crate) struct Taped {
    inner: Arc<dyn Store>,
    heads: Arc<Heads>,
    /// Bytes of logs handed out.
    pub(crate) bytes_read: AtomicU64,
}

pub(crate) type Heads = Mutex<BTreeMap<RunId, Head>>;

impl Taped {
    pub(crate) fn new(inner: Arc<dyn Store>, heads: Arc<Heads>) -> Taped {
        Taped { inner, heads, bytes_read: AtomicU64::new(0) }
    }

    /// The log of a run as it stands now.
    pub(crate) fn tape(&self, id: &str) -> Tape {
        let run = RunId::new(id).unwrap();
        let head = self.heads.lock().unwrap()[&run].clone();
        let (about, frames) = (self.inner.about().clone(), frames(&*self.inner, &run));
        Tape { run, about, head, frames, others: Vec::new() }
    }

    /// The same, with the other runs of its store: its children.
    pub(crate) fn tape_of_all(&self, id: &str) -> Tape {
        let mut tape = self.tape(id);
        let all = self.inner.runs(None, None, usize::MAX).unwrap();
        let others = all.into_iter().filter(|(other, _)| *other != tape.run);
        tape.others = others.filter_map(|(other, _)| image::Tape::of(&*self.inner, other.as_str())).collect();
        tape
    }
}

/// All entries of a run's log, each as its frame.
pub(crate) fn frames(store: &dyn Store, run: &RunId) -> Vec<Bytes> {
    let (mut all, mut at) = (Vec::new(), Seq(0));
    loop {
        let page = store.read(run, Generation(0), at, 1 << 20).unwrap();
        let Some(last) = page.last() else { return all };
        at = last.first.plus(last.count.into());
        for record in page {
            let mut bytes = record.frames;
            while let Some(length) = bytes.first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                all.push(bytes.split_to(12 + length));
            }
        }
    }
}

impl Store for Taped {
    pass_on!(inner: about, rows, published, dump, run, runs, close);

    fn submit(&self, write: Write, done: Done) {
        let made = |run: &RunId, head: &Head| {
            self.heads.lock().unwrap().entry(run.clone()).or_insert_with(|| head.clone());
        };
        match &write {
            Write::Create { run, head, .. } => made(run, head),
            Write::Append(batch) => batch.acts.iter().for_each(|act| {
                if let Act::Create { run, head, .. } = act {
                    made(run, head);
                }
            }),
            _ => {}
        }
        self.inner.submit(write, done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        let records = self.inner.read(run, generation, from, most)?;
        let bytes: usize = records.iter().map(|record| record.frames.len()).sum();
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(records)
    }
}

/// A run's log.
#[derive(Clone)]
pub(crate) struct Tape {
    pub(crate) run: RunId,
    about: About,
    head: Head,
    pub(crate) frames: Vec<Bytes>,
    /// The run's children, where they matter.
    others: Vec<image::Tape>,
}

impl Tape {
    /// How an unfinished run of this workflow is listed.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// A store in memory that holds the first `len` entries, of a run that is listed as unfinished; its children are about to end.
    pub(crate) fn store(&self, len: usize) -> Image {
        let store = Arc::new(MemoryStore::new());
        let run = self.run.clone();
        let (frames, head) = (self.frames[0].clone(), self.head.clone());
        now(&store, Write::Create { run: run.clone(), count: 1, frames, head });
        let Written::Claimed(epoch) = now(&store, Write::Claim { run: run.clone(), aside: None }) else {
            panic!("a claim is answered with an epoch")
        };
        // In records of some entries each, as a store that is written to while the run goes on has them.
        for (n, some) in self.frames[1..len].chunks(1_000).enumerate() {
            let mut frames = BytesMut::new();
            some.iter().for_each(|frame| frames.extend_from_slice(frame));
            let at = Seq(1 + 1_000 * n as u64);
            let (count, frames) = (some.len() as u32, frames.freeze());
            let batch = Batch {
                run: run.clone(),
                epoch,
                generation: Generation(0),
                at,
                count,
                frames,
                acts: Vec::new(),
                head: None,
            };
            now(&store, Write::Append(batch));
        }
        now(&store, Write::Release { run, epoch, wait: None });
        for other in &self.others {
            let entries = other.frames(0);
            let ended = entries.last().is_some_and(|last| crate::frames::name(last) == "run.ended");
            other.put_into(&store, 0, &entries[..entries.len() - usize::from(ended)]);
        }
        Image { about: self.about.clone(), store }
    }
}

/// A store in memory has done what it was told when `submit` returns.
fn now(store: &MemoryStore, write: Write) -> Written {
    let (done, wait) = std::sync::mpsc::channel();
    store.submit(write, Box::new(move |result| done.send(result).unwrap()));
    wait.recv().unwrap().unwrap()
}
