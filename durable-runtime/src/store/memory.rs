//! A store in memory, for tests and examples: it keeps every promise of the contract but the one of outliving the
//! process.

use std::{
    collections::{BTreeMap, HashSet, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    id::{Epoch, Generation, RunId, Seq, StoreId},
    store::{
        About, Act, Batch, Done, Durability, Head, Record, Row, RunRecord, Store, StoreError, Write, Written,
        check_entries, continues,
    },
};

/// A store that is gone with the process.
///
/// [`Store::submit`] applies the write and calls `done` before it returns, so nothing is ever pending and a test needs
/// no waiting.
///
/// ```
/// use durable::store::{memory::MemoryStore, Durability, Store};
/// let store = MemoryStore::new();
/// assert_eq!(store.about().durability, Durability::Memory);
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    about: About,
    image: Mutex<Image>,
}

impl MemoryStore {
    /// An empty store with a random id.
    pub fn new() -> MemoryStore {
        // The random keys that std gives its hash maps are random enough for a store that dies with the process.
        let half = || u128::from(RandomState::new().build_hasher().finish());
        let about =
            About { id: StoreId(half() << 64 | half()), durability: Durability::Memory, place: String::from("memory") };
        MemoryStore { about, image: Mutex::new(Image::default()) }
    }

    /// A copy that shares nothing with this store but its id: what the next process would find if this one died now.
    ///
    /// As after any reopening, no claim holds in the copy and its next epoch is later than all of this store's.
    #[must_use]
    pub fn reopened(&self) -> MemoryStore {
        let mut image = self.image().clone();
        image.closed = false;
        image.epoch = (image.epoch | u64::from(u32::MAX)) + 1;
        for run in image.runs.values_mut() {
            run.claim = None;
        }
        MemoryStore { about: self.about.clone(), image: Mutex::new(image) }
    }

    /// The image stays whole even if a thread died holding the lock: [`Image::apply`] changes nothing before all its
    /// checks are through, and does not panic afterwards.
    fn image(&self) -> MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_image(&self) -> Result<MutexGuard<'_, Image>, StoreError> {
        let image = self.image();
        if image.closed { Err(StoreError::Closed) } else { Ok(image) }
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Store for MemoryStore {
    fn about(&self) -> &About {
        &self.about
    }

    fn submit(&self, write: Write, done: Done) {
        // The lock is given back first: `done` may submit the next write.
        let result = self.image().apply(write);
        done(result);
    }

    fn read(
        &self,
        run: &RunId,
        generation: Generation,
        from: Seq,
        bytes_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let image = self.open_image()?;
        let Some(log) = image.runs.get(run).and_then(|run| run.logs.get(&generation)) else { return Ok(Vec::new()) };
        let mut bytes = 0;
        let held = log.iter().skip_while(|record| record.first.0 + u64::from(record.count) <= from.0);
        Ok(held
            .take_while(|record| {
                let room = bytes == 0 || bytes < bytes_max;
                bytes += record.frames.len().max(1);
                room
            })
            .cloned()
            .collect())
    }

    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError> {
        Ok(self.open_image()?.runs.get(run).map(|run| run.rows.clone()).unwrap_or_default())
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.open_image()?.runs.get(run).and_then(Run::record))
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        let image = self.open_image()?;
        let ids = image.runs.iter().skip_while(|(id, _)| after.is_some_and(|after| *id <= after));
        let records = ids.filter_map(|(id, run)| Some((id.clone(), run.record()?)));
        Ok(records.filter(|(_, record)| live.is_none_or(|live| record.head.live == live)).take(most).collect())
    }

    fn close(&self) -> Result<(), StoreError> {
        self.image().closed = true;
        Ok(())
    }
}

/// All that the store holds.
#[derive(Clone, Debug, Default)]
struct Image {
    runs: BTreeMap<RunId, Run>,
    /// The newest epoch given out.
    epoch: u64,
    closed: bool,
}

/// One run; it is here before it exists if somebody has written to it.
#[derive(Clone, Debug, Default)]
struct Run {
    /// `None` until the run is created.
    head: Option<Head>,
    aside: Option<bytes::Bytes>,
    logs: BTreeMap<Generation, Vec<Record>>,
    /// The newest log and its length.
    end: (Generation, Seq),
    claim: Option<Epoch>,
    rows: Vec<Row>,
    /// The ids of all rows ever put, also of those taken since.
    ids: HashSet<u128>,
}

impl Run {
    fn record(&self) -> Option<RunRecord> {
        Some(RunRecord { head: self.head.clone()?, aside: self.aside.clone() })
    }

    fn put(&mut self, row: Row) {
        if self.ids.insert(row.id) {
            self.rows.push(row);
        }
    }

    fn push(&mut self, generation: Generation, record: Record) {
        self.end = (generation, record.first.plus(u64::from(record.count)));
        self.logs.entry(generation).or_default().push(record);
    }
}

impl Image {
    /// Applies a write whole or not at all: every check comes before the first change.
    fn apply(&mut self, write: Write) -> Result<Written, StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        match write {
            Write::Create { run, count, frames, head } => {
                check_entries(count, 1, &frames)?;
                let entry = self.runs.entry(run).or_default();
                if entry.head.is_some() {
                    return Ok(Written::Exists);
                }
                entry.push(head.generation, Record { first: Seq(0), count, frames });
                entry.head = Some(head);
                Ok(Written::Created)
            }
            Write::Claim { run } => {
                let epoch = Epoch(self.epoch + 1);
                self.existing(&run)?.claim = Some(epoch);
                self.epoch = epoch.0;
                Ok(Written::Claimed(epoch))
            }
            Write::Release { run, epoch } => {
                if let Some(run) = self.runs.get_mut(&run)
                    && run.claim == Some(epoch)
                {
                    run.claim = None;
                }
                Ok(Written::Done)
            }
            Write::Append(batch) => self.append(batch),
            Write::Put { run, row } => {
                self.runs.entry(run).or_default().put(row);
                Ok(Written::Done)
            }
            Write::Aside { run, value } => {
                self.existing(&run)?.aside = value;
                Ok(Written::Done)
            }
        }
    }

    fn append(&mut self, batch: Batch) -> Result<Written, StoreError> {
        check_entries(batch.count, 0, &batch.frames)?;
        let run = self.existing(&batch.run)?;
        if run.claim != Some(batch.epoch) {
            return Err(StoreError::Fenced);
        }
        if batch.count > 0 {
            if !continues(run.end, batch.generation, batch.at) {
                return Err(StoreError::Conflict);
            }
            run.push(batch.generation, Record { first: batch.at, count: batch.count, frames: batch.frames });
        }
        if let Some(head) = batch.head {
            if !head.live {
                run.claim = None;
            }
            run.head = Some(head);
        }
        for act in batch.acts {
            match act {
                Act::Put { to, row } => self.runs.entry(to).or_default().put(row),
                Act::Take { row } => self.existing(&batch.run)?.rows.retain(|there| there.id != row),
            }
        }
        Ok(Written::Done)
    }

    fn existing(&mut self, run: &RunId) -> Result<&mut Run, StoreError> {
        self.runs.get_mut(run).filter(|run| run.head.is_some()).ok_or(StoreError::NoSuchRun)
    }
}
