//! One group of writes, from the conditions of each to what all of them change.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use sled::IVec;

use crate::{
    id::{Epoch, Generation, RunId, Seq},
    store::{
        StoreError, Write, Written,
        sled::{
            keys::{self, CHUNK_BYTES, Class, Entry, Meta, State},
            medium::{Changes, Medium},
            writer::Counts,
        },
    },
};

mod writes;

pub(super) use writes::restored;

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
    /// Why nothing may be written, if the disk is full.
    full: Option<Arc<str>>,
    /// Records that were begun, and what they hold.
    pub(super) counts: Counts,
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

/// Entries at the end of a log that a write brings, once it is sure that the write succeeds.
struct Entries {
    number: u64,
    generation: Generation,
    at: Seq,
    count: u32,
    frames: Bytes,
}

impl<'a> Group<'a> {
    /// `full`: why writes must be refused that change what is on disk.
    pub(super) fn new(medium: &'a Medium, meta: Meta, claims: &'a mut Claims, full: Option<Arc<str>>) -> Group<'a> {
        let (values, undo, counts) = (BTreeMap::new(), Vec::new(), Counts::default());
        Group { medium, claims, meta, values, undo, found: HashMap::new(), tails: HashMap::new(), full, counts }
    }

    /// Takes a write into the group, or none of it if it fails. `staged`: the number under which what a dump
    /// holds is already, see [`restored`].
    pub(super) fn add(&mut self, write: Write, staged: Option<u64>) -> Result<Written, StoreError> {
        let before = self.meta;
        self.undo.clear();
        let added = self.judge(write, staged);
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

    /// A number for a run that is not there yet. What is brought under it is to be removed unless the run is made.
    pub(super) fn reserve_number(&mut self) -> u64 {
        let number = self.new_number();
        self.bring(keys::removal(number), Vec::new());
        number
    }

    /// Takes a value into the group without a write.
    pub(super) fn bring(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.values.insert(key, Some(value));
    }

    /// Fails if the write at hand has changed something and the disk is full. What is in memory only comes after it.
    fn check_room(&self) -> Result<(), StoreError> {
        match &self.full {
            Some(reason) if !self.undo.is_empty() => Err(StoreError::Refused { reason: Arc::clone(reason) }),
            _ => Ok(()),
        }
    }

    /// What the group changes, and the store's knowledge of itself as it will be; `None` if nothing changes.
    pub(super) fn into_changes(mut self) -> Result<Option<(Changes, Meta)>, StoreError> {
        for (number, tail) in std::mem::take(&mut self.tails) {
            self.write_tail(number, &tail);
        }
        if self.values.is_empty() {
            return Ok(None);
        }
        let mut changes = Changes::default();
        for (key, value) in std::mem::take(&mut self.values) {
            let mut chunks = 0;
            let old = match keys::is_index(&key) {
                true => self.stored(&key)?,
                // Nobody has asked for it before.
                false => self.medium.stored(&key)?,
            };
            if let Some(old) = old.as_ref().filter(|_| keys::is_index(&key)) {
                // What was there goes out of the digest, and its chunks go out of the tree.
                self.meta.digest = self.meta.digest.wrapping_sub(keys::digest(&key, old));
                if let Some((_, keys::Stored::Chunks { count, .. })) = keys::decode(old) {
                    chunks = count;
                }
            }
            for index in 0..chunks {
                let chunk = keys::chunk(&key, index);
                changes.set(chunk.clone(), self.medium.stored(&chunk)?, None);
            }
            let Some(value) = value else {
                changes.set(key, old, None);
                continue;
            };
            if value.len() > CHUNK_BYTES {
                for (index, bytes) in (0..).zip(value.chunks(CHUNK_BYTES)) {
                    let chunk = keys::chunk(&key, index);
                    changes.set(chunk.clone(), self.medium.stored(&chunk)?, Some(bytes.to_vec()));
                }
            }
            let stored = keys::encode(&key, &value);
            if keys::is_index(&key) {
                self.meta.digest = self.meta.digest.wrapping_add(keys::digest(&key, &stored));
            }
            changes.set(key, old, Some(stored));
        }
        self.meta.commits += 1;
        Ok(Some((changes, self.meta)))
    }

    /// What stands under a run's id, in whichever place.
    fn entry(&mut self, run: &RunId) -> Result<Option<Entry>, StoreError> {
        for class in Class::ALL {
            if let Some(value) = self.get(&class.key(run))? {
                return Entry::decode(class, &value)
                    .map(Some)
                    .ok_or_else(|| self.medium.damaged("an entry has no known form"));
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
    /// sled about as much as a kilobyte does. This cannot be undone.
    fn lengthen(&mut self, entries: &Entries) {
        let Entries { number, generation, at, count, ref frames } = *entries;
        self.counts.entry_bytes += frames.len() as u64;
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
        self.counts.records += 1;
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

    /// The values of a range of keys, as the group has them so far.
    fn range(&mut self, range: Range<Vec<u8>>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
        let (medium, mut found) = (self.medium, BTreeMap::new());
        medium.scan(range.clone(), |key, stored| {
            found.insert(key.to_vec(), medium.value(key, stored)?);
            Ok(true)
        })?;
        for (key, change) in self.values.range(range) {
            match change {
                Some(value) => found.insert(key.clone(), value.clone()),
                None => found.remove(key),
            };
        }
        Ok(found)
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
