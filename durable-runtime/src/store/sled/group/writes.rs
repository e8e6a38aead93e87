//! What each write makes of the group.

use bytes::Bytes;

use crate::{
    id::{Epoch, Generation, RunId, Seq},
    store::{
        Act, Addressee, Batch, Dump, Head, Published, Row, RunRecord, StoreError, Wait, Write, Written,
        check::{check_batch, check_dump, check_entries},
        sled::{
            group::{Claim, Entries, Group},
            keys::{self, Class, Entry, State},
        },
    },
};

impl Group<'_> {
    /// Does what the write says. After an error the keys that it has changed are put back by the caller, so nothing else
    /// may be changed before all that can fail is through.
    pub(super) fn judge(&mut self, write: Write, staged: Option<u64>) -> Result<Written, StoreError> {
        match write {
            Write::Claim { run, aside } => return self.claim(run, aside),
            Write::Release { run, epoch, wait } => return self.release(&run, epoch, wait),
            Write::Barrier => return Ok(Written::Done),
            _ => {}
        }
        if let Some(reason) = &self.full {
            return Err(StoreError::Refused { reason: reason.clone() });
        }
        match write {
            Write::Create { run, count, frames, head } => {
                check_entries(count, 1, &frames)?;
                let Some((entries, version)) = self.create(&run, count, frames, head, 0)? else {
                    return Ok(Written::Exists);
                };
                let epoch = self.claim_as(run, entries.number)?;
                self.lengthen(&entries);
                Ok(Written::Made { epoch, version })
            }
            Write::Append(batch) => self.append(batch),
            Write::Put { run, row, to } => self.put(&run, &row, to),
            Write::Aside { run, value } => {
                let entry = self.existing(&run)?;
                self.set_entry(&run, Some(entry.class()), &Entry { aside: value, ..entry });
                Ok(Written::Done)
            }
            Write::Remove { run } => self.remove(&run),
            Write::Restore { run, dump } => self.restore(&run, *dump, staged),
            Write::Claim { .. } | Write::Release { .. } | Write::Barrier => unreachable!("they need no room"),
        }
    }

    /// Makes a run, unless it is there, but for its first entries. Beside those: how many rows were put for it before.
    fn create(
        &mut self,
        run: &RunId,
        count: u32,
        frames: Bytes,
        head: Head,
        owner: u128,
    ) -> Result<Option<(Entries, u64)>, StoreError> {
        let (was, early) = match self.entry(run)? {
            Some(Entry { head: Some(_), .. }) => return Ok(None),
            Some(early) => (Some(Class::Unborn), early),
            None => (None, Entry::new(self.new_number())),
        };
        let (number, version, generation) = (early.number, early.version, head.generation);
        let state = State { generation, length: Seq(u64::from(count)) };
        self.set(keys::state(number), Some(state.encode()));
        if owner != 0 {
            self.set(keys::owner(number), Some(owner.to_be_bytes().to_vec()));
        }
        self.set_entry(run, was, &Entry { head: Some(head), ..early });
        Ok(Some((Entries { number, generation, at: Seq(0), count, frames }, version)))
    }

    fn claim(&mut self, run: RunId, aside: Option<Bytes>) -> Result<Written, StoreError> {
        let entry = self.existing(&run)?;
        let number = entry.number;
        if entry.wait.is_some() || entry.aside != aside {
            self.set_entry(&run, Some(entry.class()), &Entry { aside, wait: None, ..entry });
        }
        self.check_room()?;
        self.claim_as(run, number).map(Written::Claimed)
    }

    /// Gives out the next epoch.
    fn claim_as(&mut self, run: RunId, number: u64) -> Result<Epoch, StoreError> {
        let Some(given) = self.claims.given.checked_add(1) else {
            return Err(StoreError::Rejected { reason: "no epochs are left: open the store again".into() });
        };
        self.claims.given = given;
        let epoch = Epoch(self.meta.openings << 32 | u64::from(given));
        self.claims.runs.insert(run, Claim { epoch, number });
        Ok(epoch)
    }

    fn release(&mut self, run: &RunId, epoch: Epoch, wait: Option<Wait>) -> Result<Written, StoreError> {
        if self.claims.runs.get(run).is_none_or(|claim| claim.epoch != epoch) {
            return Ok(Written::Done);
        }
        // The claim has removed what was there.
        if wait.is_some() {
            let entry = self.existing(run)?;
            self.set_entry(run, Some(entry.class()), &Entry { wait, ..entry });
        }
        self.check_room()?;
        self.claims.runs.remove(run);
        Ok(Written::Done)
    }

    fn append(&mut self, batch: Batch) -> Result<Written, StoreError> {
        check_batch(&batch)?;
        let Some(&Claim { epoch, number }) = self.claims.runs.get(&batch.run) else {
            self.existing(&batch.run)?;
            return Err(StoreError::Fenced);
        };
        if epoch != batch.epoch {
            return Err(StoreError::Fenced);
        }
        let mut entries = Vec::new();
        if batch.is_placed() {
            let mut state = self.state(number)?;
            if (state.generation, state.length) != (batch.generation, batch.at) {
                return Err(StoreError::Conflict);
            }
            if batch.count > 0 {
                state.length = batch.at.plus(u64::from(batch.count));
                self.set(keys::state(number), Some(state.encode()));
                let (generation, at, count, frames) = (batch.generation, batch.at, batch.count, batch.frames);
                entries.push(Entries { number, generation, at, count, frames });
            }
        }
        let ended = batch.head.as_ref().is_some_and(|head| !head.live);
        if let Some(head) = batch.head {
            let entry = self.existing(&batch.run)?;
            self.set_entry(&batch.run, Some(entry.class()), &Entry { head: Some(head), ..entry });
        }
        for act in batch.acts {
            entries.extend(self.act(&batch.run, number, act)?);
        }
        for entries in &entries {
            self.lengthen(entries);
        }
        if ended {
            self.claims.runs.remove(&batch.run);
        }
        Ok(Written::Done)
    }

    /// Does what an act of the run with this number says. Returns the entries that it brings.
    fn act(&mut self, run: &RunId, number: u64, act: Act) -> Result<Option<Entries>, StoreError> {
        match act {
            Act::Put { to, row } => {
                self.put(&to, &row, Addressee::Anyone)?;
            }
            Act::Take { row } => self.take(number, row)?,
            Act::Create { run: other, count, frames, head, owner, taken } => {
                if let Some((entries, _)) = self.create(&other, count, frames, head, owner)? {
                    return Ok(Some(entries));
                }
                let other = self.existing(&other)?.number;
                if self.owner(other)? != owner {
                    self.put(run, &taken, Addressee::Anyone)?;
                }
            }
            Act::Next { count, frames } => {
                let mut state = self.state(number)?;
                let length = state.length.0.to_be_bytes().to_vec();
                self.set(keys::closed_log(number, state.generation), Some(length));
                let generation = Generation(state.generation.0 + 1);
                (state.generation, state.length) = (generation, Seq(u64::from(count)));
                self.set(keys::state(number), Some(state.encode()));
                return Ok(Some(Entries { number, generation, at: Seq(0), count, frames }));
            }
            Act::Publish { name, value } => {
                let State { generation, length: len } = self.state(number)?;
                let published = Published { generation, len, value };
                self.set(keys::published(number, &name), Some(keys::encode_published(&published)));
            }
        }
        Ok(None)
    }

    fn put(&mut self, run: &RunId, row: &Row, to: Addressee) -> Result<Written, StoreError> {
        let (was, mut entry) = match self.entry(run)? {
            Some(entry) => (Some(entry.class()), entry),
            None if to == Addressee::Unfinished => return Err(StoreError::NoSuchRun),
            None => (None, Entry::new(self.new_number())),
        };
        if self.get(&keys::row_id(entry.number, row.id))?.is_some() {
            return Ok(Written::Exists);
        }
        if to == Addressee::Unfinished {
            match was {
                Some(Class::Live) => {}
                Some(Class::Ended) => return Ok(Written::Ended),
                Some(Class::Unborn) | None => return Err(StoreError::NoSuchRun),
            }
        }
        self.put_row(&mut entry, row);
        self.set_entry(run, was, &entry);
        Ok(Written::Done)
    }

    /// Puts a row whose id is new, but for the entry, which is to be set.
    fn put_row(&mut self, entry: &mut Entry, row: &Row) {
        let place = entry.version;
        entry.version += 1;
        self.set(keys::row_id(entry.number, row.id), Some(place.to_be_bytes().to_vec()));
        self.set(keys::row(entry.number, place), Some(keys::encode_row(row)));
    }

    fn take(&mut self, number: u64, row: u128) -> Result<(), StoreError> {
        let id = keys::row_id(number, row);
        let Some(place) = self.get(&id)? else { return Ok(()) };
        let Some(place) = place.first_chunk().map(|place| u64::from_be_bytes(*place)) else { return Ok(()) };
        self.set(id, Some(Vec::new()));
        self.set(keys::row(number, place), None);
        Ok(())
    }

    fn owner(&mut self, number: u64) -> Result<u128, StoreError> {
        let Some(value) = self.get(&keys::owner(number))? else { return Ok(0) };
        let owner = value.try_into().map_err(|_| self.medium.damaged("the owner of a run has no known form"))?;
        Ok(u128::from_be_bytes(owner))
    }

    /// Removes the run's entry, so that nothing of the run is found any more, and notes that the rest is to follow, see
    /// [`crate::store::sled::removal`].
    fn remove(&mut self, run: &RunId) -> Result<Written, StoreError> {
        let Some(entry) = self.entry(run)? else { return Ok(Written::Done) };
        match entry.class() {
            Class::Unborn => return Ok(Written::Done),
            Class::Live => return Ok(Written::Unfinished),
            Class::Ended => {}
        }
        self.set(Class::Ended.key(run), None);
        self.set(keys::removal(entry.number), Some(Vec::new()));
        // Whoever claimed it after its end can write no more: its number is nobody's now.
        self.claims.runs.remove(run);
        Ok(Written::Done)
    }

    fn restore(&mut self, run: &RunId, dump: Dump, staged: Option<u64>) -> Result<Written, StoreError> {
        check_dump(&dump)?;
        let early = match self.entry(run)? {
            Some(Entry { head: Some(_), .. }) => return Ok(Written::Exists),
            early => early.map(|entry| entry.number),
        };
        let number = match staged {
            Some(number) => {
                self.set(keys::removal(number), None);
                number
            }
            None => {
                let number = self.new_number();
                for (key, value) in restored(number, &dump) {
                    self.set(key, Some(value));
                }
                number
            }
        };
        let RunRecord { head, aside, wait, version } = dump.record;
        let newest = dump.logs.last().map(|(generation, records)| {
            let length = records.iter().map(|record| u64::from(record.count)).sum();
            (*generation, Seq(length))
        });
        let (generation, length) = newest.unwrap_or_default();
        self.set(keys::state(number), Some(State { generation, length }.encode()));
        let mut entry = Entry { number, version, wait, head: Some(head), aside };
        if let Some(early) = early {
            for (_, value) in self.range(keys::rows(early, 0))? {
                let row = keys::decode_row(&value).ok_or_else(|| self.medium.damaged("a row has no known form"))?;
                if self.get(&keys::row_id(number, row.id))?.is_none() {
                    self.put_row(&mut entry, &row);
                }
            }
            self.set(keys::removal(early), Some(Vec::new()));
        }
        self.set_entry(run, early.map(|_| Class::Unborn), &entry);
        Ok(Written::Created)
    }
}

/// What a restored run has under its number, but for its state.
pub(in crate::store::sled) fn restored(number: u64, dump: &Dump) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let records = dump.logs.iter().flat_map(move |(generation, records)| {
        records.iter().map(move |record| {
            let key = keys::record(number, *generation, record.first);
            (key, keys::encode_record(record.count, &record.frames))
        })
    });
    let closed = dump.logs.iter().rev().skip(1).map(move |(generation, records)| {
        let length: u64 = records.iter().map(|record| u64::from(record.count)).sum();
        (keys::closed_log(number, *generation), length.to_be_bytes().to_vec())
    });
    let rows = dump.rows.iter().flat_map(move |(nth, row)| {
        let place = nth - 1;
        let id = (keys::row_id(number, row.id), place.to_be_bytes().to_vec());
        [id, (keys::row(number, place), keys::encode_row(row))]
    });
    let taken = dump.taken.iter().map(move |id| (keys::row_id(number, *id), Vec::new()));
    let owner = (dump.owner != 0).then(|| (keys::owner(number), dump.owner.to_be_bytes().to_vec()));
    let published =
        dump.published.iter().map(move |(name, value)| (keys::published(number, name), keys::encode_published(value)));
    records.chain(closed).chain(rows).chain(taken).chain(owner).chain(published)
}
