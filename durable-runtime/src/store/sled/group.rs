//! One group of writes, from the conditions of each to the one batch that carries all.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use sled::IVec;

use crate::{
    id::{Epoch, Generation, RunId, Seq},
    store::{
        Act, Batch, Head, Row, StoreError, Write, Written, check_entries, continues,
        sled::{
            keys::{self, CHUNK_BYTES, Class, Entry, Meta, State},
            medium::Medium,
        },
    },
};

/// The runs this process has claimed. Claims are in memory only: they end with the process, and the next opening gives
/// out later epochs.
#[derive(Debug, Default)]
pub(super) struct Claims {
    runs: HashMap<RunId, Claim>,
    /// How many were given out since the store was opened.
    given: u32,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    epoch: Epoch,
    number: u64,
}

/// Writes that will become durable together. Each is judged by what the store holds and what the group has so far.
pub(super) struct Group<'a> {
    medium: &'a Medium,
    claims: &'a mut Claims,
    meta: Meta,
    /// The values the group writes or removes, whole: not yet checksummed, not yet in chunks.
    values: BTreeMap<Vec<u8>, Change>,
    /// What was in `values` before the write at hand changed it, newest last.
    undo: Vec<(Vec<u8>, Option<Change>)>,
    /// What the store held under the keys the group has asked for.
    found: HashMap<Vec<u8>, Option<IVec>>,
    /// The record that each log's newest entries will be part of.
    tails: HashMap<u64, Tail>,
}

/// The new value of a key; `None` removes it.
type Change = Option<Vec<u8>>;

/// Entries that were appended one after the other within the group.
struct Tail {
    generation: Generation,
    first: Seq,
    count: u32,
    frames: Vec<u8>,
}

impl<'a> Group<'a> {
    pub(super) fn new(medium: &'a Medium, meta: Meta, claims: &'a mut Claims) -> Group<'a> {
        let (values, undo) = (BTreeMap::new(), Vec::new());
        Group { medium, claims, meta, values, undo, found: HashMap::new(), tails: HashMap::new() }
    }

    /// Takes a write into the group, or none of it if it fails.
    pub(super) fn add(&mut self, write: Write) -> Result<Written, StoreError> {
        let before = self.meta;
        self.undo.clear();
        let added = match write {
            Write::Create { run, count, frames, head } => self.create(&run, count, &frames, head),
            Write::Claim { run } => self.claim(run),
            Write::Release { run, epoch } => {
                self.release(&run, epoch);
                Ok(Written::Done)
            }
            Write::Append(batch) => self.append(batch),
            Write::Put { run, row } => self.put(&run, &row),
            Write::Aside { run, value } => self.set_aside(&run, value),
        };
        if added.is_err() {
            self.meta = before;
            for (key, value) in std::mem::take(&mut self.undo).into_iter().rev() {
                match value {
                    Some(value) => self.values.insert(key, value),
                    None => self.values.remove(&key),
                };
            }
        }
        added
    }

    /// Makes the batch that carries the group, and the store's knowledge of itself as it will be; `None` if nothing
    /// changes.
    pub(super) fn into_batch(mut self) -> Result<Option<(sled::Batch, Meta)>, StoreError> {
        for (number, tail) in std::mem::take(&mut self.tails) {
            self.write_tail(number, &tail);
        }
        if self.values.is_empty() {
            return Ok(None);
        }
        let mut batch = sled::Batch::default();
        for (key, value) in std::mem::take(&mut self.values) {
            let mut chunks = 0;
            if keys::is_index(&key) {
                // What was there goes out of the digest, and its chunks go out of the tree.
                if let Some(old) = self.stored(&key)? {
                    self.meta.digest = self.meta.digest.wrapping_sub(keys::digest(&key, &old));
                    if let Some((_, keys::Stored::Chunks { count, .. })) = keys::decode(&old) {
                        chunks = count;
                    }
                }
            }
            for index in 0..chunks {
                batch.remove(keys::chunk(&key, index));
            }
            let Some(value) = value else {
                batch.remove(key);
                continue;
            };
            if value.len() > CHUNK_BYTES {
                for (index, chunk) in (0..).zip(value.chunks(CHUNK_BYTES)) {
                    batch.insert(keys::chunk(&key, index), chunk);
                }
            }
            let stored = keys::encode(&key, &value);
            if keys::is_index(&key) {
                self.meta.digest = self.meta.digest.wrapping_add(keys::digest(&key, &stored));
            }
            batch.insert(key, stored);
        }
        self.meta.commits += 1;
        batch.insert(keys::META, keys::encode(keys::META, &self.meta.encode()));
        Ok(Some((batch, self.meta)))
    }

    fn create(&mut self, run: &RunId, count: u32, frames: &Bytes, head: Head) -> Result<Written, StoreError> {
        check_entries(count, 1, frames)?;
        let number = match self.entry(run)? {
            Some(Entry { head: Some(_), .. }) => return Ok(Written::Exists),
            Some(entry) => entry.number,
            None => self.new_number(),
        };
        let state = State { generation: head.generation, length: Seq(u64::from(count)), ..self.state(number)? };
        self.set(keys::state(number), Some(state.encode()));
        let generation = head.generation;
        self.set_entry(run, Some(Class::Unborn), &Entry { number, head: Some(head), aside: None });
        self.lengthen(number, generation, Seq(0), count, frames);
        Ok(Written::Created)
    }

    fn claim(&mut self, run: RunId) -> Result<Written, StoreError> {
        let number = self.existing(&run)?.number;
        let Some(given) = self.claims.given.checked_add(1) else {
            return Err(StoreError::Rejected { reason: "no epochs are left: open the store again".into() });
        };
        self.claims.given = given;
        let epoch = Epoch(self.meta.openings << 32 | u64::from(given));
        self.claims.runs.insert(run, Claim { epoch, number });
        Ok(Written::Claimed(epoch))
    }

    fn release(&mut self, run: &RunId, epoch: Epoch) {
        if self.claims.runs.get(run).is_some_and(|claim| claim.epoch == epoch) {
            self.claims.runs.remove(run);
        }
    }

    fn append(&mut self, batch: Batch) -> Result<Written, StoreError> {
        check_entries(batch.count, 0, &batch.frames)?;
        let Some(&Claim { epoch, number }) = self.claims.runs.get(&batch.run) else {
            self.existing(&batch.run)?;
            return Err(StoreError::Fenced);
        };
        if epoch != batch.epoch {
            return Err(StoreError::Fenced);
        }
        if batch.count > 0 {
            let mut state = self.state(number)?;
            if !continues((state.generation, state.length), batch.generation, batch.at) {
                return Err(StoreError::Conflict);
            }
            if state.generation != batch.generation {
                let length = state.length.0.to_be_bytes().to_vec();
                self.set(keys::closed_log(number, state.generation), Some(length));
            }
            state.generation = batch.generation;
            state.length = batch.at.plus(u64::from(batch.count));
            self.set(keys::state(number), Some(state.encode()));
        }
        for act in &batch.acts {
            match act {
                Act::Put { to, row } => drop(self.put(to, row)?),
                Act::Take { row } => self.take(number, *row)?,
            }
        }
        let ended = batch.head.as_ref().is_some_and(|head| !head.live);
        if let Some(head) = batch.head {
            let entry = self.existing(&batch.run)?;
            let class = entry.class();
            self.set_entry(&batch.run, Some(class), &Entry { head: Some(head), ..entry });
        }
        // Nothing below can fail, so nothing below needs undoing.
        if batch.count > 0 {
            self.lengthen(number, batch.generation, batch.at, batch.count, &batch.frames);
        }
        if ended {
            self.claims.runs.remove(&batch.run);
        }
        Ok(Written::Done)
    }

    fn put(&mut self, run: &RunId, row: &Row) -> Result<Written, StoreError> {
        let number = match self.claims.runs.get(run).map(|claim| claim.number) {
            Some(number) => number,
            None => match self.entry(run)? {
                Some(entry) => entry.number,
                None => {
                    let number = self.new_number();
                    self.set_entry(run, None, &Entry { number, head: None, aside: None });
                    number
                }
            },
        };
        if self.get(&keys::row_id(number, row.id))?.is_some() {
            return Ok(Written::Done);
        }
        let mut state = self.state(number)?;
        let place = state.next_row;
        state.next_row += 1;
        self.set(keys::state(number), Some(state.encode()));
        self.set(keys::row_id(number, row.id), Some(place.to_be_bytes().to_vec()));
        self.set(keys::row(number, place), Some(keys::encode_row(row)));
        Ok(Written::Done)
    }

    fn take(&mut self, number: u64, row: u128) -> Result<(), StoreError> {
        let id = keys::row_id(number, row);
        let Some(place) = self.get(&id)? else { return Ok(()) };
        let Some(place) = place.first_chunk().map(|place| u64::from_be_bytes(*place)) else { return Ok(()) };
        self.set(id, Some(Vec::new()));
        self.set(keys::row(number, place), None);
        Ok(())
    }

    fn set_aside(&mut self, run: &RunId, value: Option<Bytes>) -> Result<Written, StoreError> {
        let entry = self.existing(run)?;
        let class = entry.class();
        self.set_entry(run, Some(class), &Entry { aside: value, ..entry });
        Ok(Written::Done)
    }

    /// What stands under a run's id, in whichever place.
    fn entry(&mut self, run: &RunId) -> Result<Option<Entry>, StoreError> {
        for class in Class::ALL {
            if let Some(value) = self.get(&class.key(run))? {
                let entry = Entry::decode(class, &value);
                return entry.map(Some).ok_or_else(|| self.medium.damaged("an entry has no known form"));
            }
        }
        Ok(None)
    }

    fn existing(&mut self, run: &RunId) -> Result<Entry, StoreError> {
        self.entry(run)?.filter(|entry| entry.head.is_some()).ok_or(StoreError::NoSuchRun)
    }

    /// Writes the entry of a run and removes it from the place where it was.
    fn set_entry(&mut self, run: &RunId, was: Option<Class>, entry: &Entry) {
        if let Some(was) = was
            && was != entry.class()
        {
            self.set(was.key(run), None);
        }
        self.set(entry.class().key(run), Some(entry.encode()));
    }

    fn new_number(&mut self) -> u64 {
        let number = self.meta.next_number;
        self.meta.next_number += 1;
        number
    }

    fn state(&mut self, number: u64) -> Result<State, StoreError> {
        let Some(value) = self.get(&keys::state(number))? else { return Ok(State::default()) };
        State::decode(&value).ok_or_else(|| self.medium.damaged("a run's state has no known form"))
    }

    /// Adds entries to the run's record of this group, or begins a record. Small records are merged because each costs
    /// sled about as much as a kilobyte does.
    fn lengthen(&mut self, number: u64, generation: Generation, at: Seq, count: u32, frames: &Bytes) {
        if let Some(tail) = self.tails.get_mut(&number) {
            let follows = tail.generation == generation && tail.first.plus(u64::from(tail.count)) == at;
            let fits = tail.frames.len() + frames.len() + size_of::<u32>() <= CHUNK_BYTES;
            if follows
                && fits
                && let Some(sum) = tail.count.checked_add(count)
            {
                tail.count = sum;
                tail.frames.extend_from_slice(frames);
                return;
            }
        }
        let fresh = Tail { generation, first: at, count, frames: frames.to_vec() };
        if let Some(full) = self.tails.insert(number, fresh) {
            self.write_tail(number, &full);
        }
    }

    fn write_tail(&mut self, number: u64, tail: &Tail) {
        let key = keys::record(number, tail.generation, tail.first);
        self.values.insert(key, Some(keys::encode_record(tail.count, &tail.frames)));
    }

    /// The value of a key, as the group has it so far.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.values.get(key) {
            return Ok(value.clone());
        }
        let Some(stored) = self.stored(key)? else { return Ok(None) };
        self.medium.value(key, &stored).map(Some)
    }

    /// What the store holds under a key, whatever the group makes of it.
    fn stored(&mut self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        if let Some(found) = self.found.get(key) {
            return Ok(found.clone());
        }
        let found = self.medium.stored(key)?;
        self.found.insert(key.to_vec(), found.clone());
        Ok(found)
    }

    fn set(&mut self, key: Vec<u8>, value: Change) {
        let before = self.values.insert(key.clone(), value);
        self.undo.push((key, before));
    }
}
