//! A store in memory, for tests and examples: it keeps every promise of the contract but the one of outliving the
//! process.

use std::{
    collections::{BTreeMap, HashSet, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::{
    id::{Epoch, Generation, RunId, Seq, StoreId},
    store::{
        About, Act, Addressee, Batch, Done, Dump, Durability, Head, Published, Record, Row, RunRecord, Store,
        StoreError, Wait, Write, Written,
        check::{check_batch, check_dump, check_entries},
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

    /// An empty store with that id.
    #[cfg(test)]
    pub(crate) fn with_id(id: StoreId) -> MemoryStore {
        let mut store = MemoryStore::new();
        store.about.id = id;
        store
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
        let before = log.partition_point(|record| record.first.0 + u64::from(record.count) <= from.0);
        Ok(log[before..]
            .iter()
            .take_while(|record| {
                let room = bytes == 0 || bytes < bytes_max;
                bytes += record.frames.len().max(1);
                room
            })
            .cloned()
            .collect())
    }

    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        let image = self.open_image()?;
        let Some(run) = image.runs.get(run) else { return Ok(Vec::new()) };
        let later = run.rows.partition_point(|(number, _)| *number <= after);
        Ok(run.rows[later..].iter().take(most).cloned().collect())
    }

    fn published(&self, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
        Ok(self.open_image()?.runs.get(run).map(Run::published).unwrap_or_default())
    }

    fn dump(&self, run: &RunId) -> Result<Option<Dump>, StoreError> {
        Ok(self.open_image()?.runs.get(run).and_then(Run::dump))
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
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = image.runs.range::<RunId, _>((after, Bound::Unbounded));
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
    owner: u128,
    aside: Option<Bytes>,
    wait: Option<Wait>,
    logs: BTreeMap<Generation, Vec<Record>>,
    /// The newest log and its length.
    end: (Generation, Seq),
    claim: Option<Epoch>,
    /// With their numbers, ascending.
    rows: Vec<(u64, Row)>,
    /// The number of the last row ever put.
    version: u64,
    /// The ids of all rows ever put, also of those taken since.
    ids: HashSet<u128>,
    published: BTreeMap<Arc<str>, Published>,
}

impl Run {
    fn record(&self) -> Option<RunRecord> {
        let (aside, wait, version) = (self.aside.clone(), self.wait, self.version);
        Some(RunRecord { head: self.head.clone()?, aside, wait, version })
    }

    fn published(&self) -> Vec<(Arc<str>, Published)> {
        self.published.iter().map(|(name, value)| (Arc::clone(name), value.clone())).collect()
    }

    fn dump(&self) -> Option<Dump> {
        let record = self.record()?;
        let logs = self.logs.iter().map(|(generation, records)| (*generation, records.clone())).collect();
        let present: HashSet<_> = self.rows.iter().map(|(_, row)| row.id).collect();
        let mut taken: Vec<_> = self.ids.difference(&present).copied().collect();
        taken.sort_unstable();
        let (owner, rows, published) = (self.owner, self.rows.clone(), self.published());
        Some(Dump { record, owner, logs, rows, taken, published })
    }

    fn restored(dump: Dump) -> Run {
        let Dump { record: RunRecord { head, aside, wait, version }, owner, logs, rows, taken, published } = dump;
        let end = logs.last().and_then(|(generation, records)| {
            records.last().map(|last| (*generation, last.first.plus(u64::from(last.count))))
        });
        Run {
            head: Some(head),
            owner,
            aside,
            wait,
            logs: logs.into_iter().collect(),
            end: end.unwrap_or_default(),
            claim: None,
            version,
            ids: rows.iter().map(|(_, row)| row.id).chain(taken).collect(),
            rows,
            published: published.into_iter().collect(),
        }
    }

    fn put(&mut self, row: Row) -> Written {
        if !self.ids.insert(row.id) {
            return Written::Exists;
        }
        self.version += 1;
        self.rows.push((self.version, row));
        Written::Done
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
                if !self.create(run.clone(), count, frames, head, 0) {
                    return Ok(Written::Exists);
                }
                let epoch = Epoch(self.epoch + 1);
                let run = self.existing(&run)?;
                run.claim = Some(epoch);
                let version = run.version;
                self.epoch = epoch.0;
                Ok(Written::Made { epoch, version })
            }
            Write::Claim { run, aside } => {
                let epoch = Epoch(self.epoch + 1);
                let run = self.existing(&run)?;
                (run.claim, run.aside, run.wait) = (Some(epoch), aside, None);
                self.epoch = epoch.0;
                Ok(Written::Claimed(epoch))
            }
            Write::Release { run, epoch, wait } => {
                if let Some(run) = self.runs.get_mut(&run)
                    && run.claim == Some(epoch)
                {
                    (run.claim, run.wait) = (None, wait);
                }
                Ok(Written::Done)
            }
            Write::Append(batch) => self.append(batch),
            Write::Put { run, row, to } => self.put(run, row, to),
            Write::Aside { run, value } => {
                self.existing(&run)?.aside = value;
                Ok(Written::Done)
            }
            Write::Remove { run } => {
                match self.runs.get(&run).and_then(|run| run.head.as_ref()) {
                    None => {}
                    Some(head) if head.live => return Ok(Written::Unfinished),
                    Some(_) => drop(self.runs.remove(&run)),
                }
                Ok(Written::Done)
            }
            Write::Restore { run, dump } => {
                check_dump(&dump)?;
                let there = self.runs.entry(run).or_default();
                if there.head.is_some() {
                    return Ok(Written::Exists);
                }
                let early = std::mem::replace(there, Run::restored(*dump)).rows;
                for (_, row) in early {
                    there.put(row);
                }
                Ok(Written::Created)
            }
            Write::Barrier => Ok(Written::Done),
        }
    }

    /// Makes a run, unless it is there.
    fn create(&mut self, run: RunId, count: u32, frames: Bytes, head: Head, owner: u128) -> bool {
        let run = self.runs.entry(run).or_default();
        if run.head.is_some() {
            return false;
        }
        run.push(head.generation, Record { first: Seq(0), count, frames });
        (run.head, run.owner) = (Some(head), owner);
        true
    }

    fn put(&mut self, run: RunId, row: Row, to: Addressee) -> Result<Written, StoreError> {
        if to == Addressee::Unfinished {
            let run = self.runs.get(&run).ok_or(StoreError::NoSuchRun)?;
            if run.ids.contains(&row.id) {
                return Ok(Written::Exists);
            }
            if !run.head.as_ref().ok_or(StoreError::NoSuchRun)?.live {
                return Ok(Written::Ended);
            }
        }
        Ok(self.runs.entry(run).or_default().put(row))
    }

    fn append(&mut self, batch: Batch) -> Result<Written, StoreError> {
        check_batch(&batch)?;
        let run = self.existing(&batch.run)?;
        if run.claim != Some(batch.epoch) {
            return Err(StoreError::Fenced);
        }
        if batch.is_placed() && run.end != (batch.generation, batch.at) {
            return Err(StoreError::Conflict);
        }
        if batch.count > 0 {
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
                Act::Put { to, row } => {
                    self.runs.entry(to).or_default().put(row);
                }
                Act::Take { row } => self.existing(&batch.run)?.rows.retain(|(_, there)| there.id != row),
                Act::Create { run, count, frames, head, owner, taken } => {
                    if !self.create(run.clone(), count, frames, head, owner) && self.existing(&run)?.owner != owner {
                        self.existing(&batch.run)?.put(taken);
                    }
                }
                Act::Next { count, frames } => {
                    let run = self.existing(&batch.run)?;
                    run.push(Generation(batch.generation.0 + 1), Record { first: Seq(0), count, frames });
                }
                Act::Publish { name, value } => {
                    let run = self.existing(&batch.run)?;
                    let (generation, len) = run.end;
                    run.published.insert(name, Published { generation, len, value });
                }
            }
        }
        Ok(Written::Done)
    }

    fn existing(&mut self, run: &RunId) -> Result<&mut Run, StoreError> {
        self.runs.get_mut(run).filter(|run| run.head.is_some()).ok_or(StoreError::NoSuchRun)
    }
}
