//! What can be asked of the database, and the check that an opened one is whole.

use std::ops::Bound;

use bytes::Bytes;

use crate::{
    id::{Generation, RunId, Seq},
    store::{
        Record, Row, RunRecord, StoreError,
        sled::{
            keys::{self, Class, Entry, Meta, State},
            medium::Medium,
        },
    },
};

/// The records of a log from the one that holds `from`, see [`crate::store::Store::read`].
pub(super) fn records(
    medium: &Medium,
    run: &RunId,
    generation: Generation,
    from: Seq,
    bytes_max: usize,
) -> Result<Vec<Record>, StoreError> {
    let about_run = |error| concerning(error, run, None);
    let Some(entry) = entry(medium, run).map_err(about_run)? else { return Ok(Vec::new()) };
    let number = entry.number;
    let length = length(medium, number, generation).map_err(about_run)?;
    if from >= length {
        return Ok(Vec::new());
    }
    let missing = |seq| concerning(medium.damaged("the entry is missing"), run, Some(seq));

    // The record that holds `from` begins there or before.
    let up_to = keys::record(number, generation, Seq(0))..=keys::record(number, generation, from);
    let at_from = |error| concerning(error, run, Some(from));
    let start = medium.end_of(up_to, true).map_err(at_from)?.ok_or_else(|| missing(from))?.0;
    let mut next = keys::first_of(&start).ok_or_else(|| missing(from))?;

    let (mut records, mut bytes) = (Vec::new(), 0);
    let scanned = medium.scan(start.to_vec()..keys::after_records(number, generation), |key, stored| {
        let first = keys::first_of(key);
        let value = medium.value(key, stored)?;
        let (count, frames) = match keys::decode_record(&value) {
            Some((count, frames)) if first == Some(next) && count > 0 => (count, frames),
            _ => return Err(medium.damaged("the entry is missing")),
        };
        bytes += frames.len().max(1);
        records.push(Record { first: next, count, frames: Bytes::copy_from_slice(frames) });
        next = next.plus(u64::from(count));
        Ok(bytes < bytes_max && next < length)
    });
    scanned.map_err(|error| concerning(error, run, Some(next)))?;
    // Either there was enough, or the log is through; anything else is a gap. The first record must reach `from`.
    let first_reaches = records.first().is_some_and(|record| record.first.plus(u64::from(record.count)) > from);
    if !first_reaches || next > length || (next < length && bytes < bytes_max) {
        return Err(missing(next.max(from)));
    }
    Ok(records)
}

/// The length of a log.
fn length(medium: &Medium, number: u64, generation: Generation) -> Result<Seq, StoreError> {
    let state = medium.get(&keys::state(number))?.ok_or_else(|| medium.damaged("the run's state is missing"))?;
    let state = State::decode(&state).ok_or_else(|| medium.damaged("the run's state has no known form"))?;
    if state.generation == generation {
        return Ok(state.length);
    }
    let closed = medium.get(&keys::closed_log(number, generation))?;
    let length = closed.as_deref().and_then(<[u8]>::first_chunk).map_or(0, |length| u64::from_be_bytes(*length));
    Ok(Seq(length))
}

/// The rows of a run's mailbox, oldest first.
pub(super) fn rows(medium: &Medium, run: &RunId) -> Result<Vec<Row>, StoreError> {
    let about_run = |error| concerning(error, run, None);
    let Some(entry) = entry(medium, run).map_err(about_run)? else { return Ok(Vec::new()) };
    let prefix = keys::rows(entry.number);
    let end = [&prefix[..], &[0xFF; 9]].concat();
    let mut rows = Vec::new();
    let scanned = medium.scan(prefix..end, |key, stored| {
        let row = keys::decode_row(&medium.value(key, stored)?);
        rows.push(row.ok_or_else(|| medium.damaged("a row has no known form"))?);
        Ok(true)
    });
    scanned.map_err(about_run)?;
    Ok(rows)
}

/// What is known of a run beside its log.
pub(super) fn run(medium: &Medium, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
    Ok(entry(medium, run).map_err(|error| concerning(error, run, None))?.and_then(record_of))
}

/// A page of runs, see [`crate::store::Store::runs`].
pub(super) fn runs(
    medium: &Medium,
    live: Option<bool>,
    after: Option<&RunId>,
    most: usize,
) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
    let mut page = match live {
        Some(true) => runs_of(medium, Class::Live, after, most)?,
        Some(false) => runs_of(medium, Class::Ended, after, most)?,
        None => {
            let mut both = runs_of(medium, Class::Live, after, most)?;
            both.extend(runs_of(medium, Class::Ended, after, most)?);
            both.sort_by(|(a, _), (b, _)| a.cmp(b));
            both
        }
    };
    page.truncate(most);
    Ok(page)
}

fn runs_of(
    medium: &Medium,
    class: Class,
    after: Option<&RunId>,
    most: usize,
) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
    let mut page = Vec::new();
    if most == 0 {
        return Ok(page);
    }
    let from = after.map_or_else(|| vec![class.tag()], |after| class.key(after));
    let range = (Bound::Excluded(from), Bound::Excluded(vec![class.tag() + 1]));
    medium.scan(range, |key, stored| {
        let id = std::str::from_utf8(&key[1..]).ok().and_then(|id| RunId::new(id).ok());
        let id = id.ok_or_else(|| medium.damaged("the id of a run is none"))?;
        let value = medium.value(key, stored).map_err(|error| concerning(error, &id, None))?;
        let entry = Entry::decode(class, &value).and_then(record_of);
        let record = entry.ok_or_else(|| concerning(medium.damaged("an entry has no known form"), &id, None))?;
        page.push((id, record));
        Ok(page.len() < most)
    })?;
    Ok(page)
}

fn entry(medium: &Medium, run: &RunId) -> Result<Option<Entry>, StoreError> {
    for class in Class::ALL {
        if let Some(value) = medium.get(&class.key(run))? {
            let entry = Entry::decode(class, &value);
            return entry.map(Some).ok_or_else(|| medium.damaged("an entry has no known form"));
        }
    }
    Ok(None)
}

fn record_of(entry: Entry) -> Option<RunRecord> {
    Some(RunRecord { head: entry.head?, aside: entry.aside })
}

/// Says of a damage which run and which place in its log it concerns.
fn concerning(error: StoreError, about: &RunId, at: Option<Seq>) -> StoreError {
    match error {
        StoreError::Damaged { place, run, seq, what } => {
            StoreError::Damaged { place, run: run.or_else(|| Some(about.clone())), seq: seq.or(at), what }
        }
        other => other,
    }
}

/// What the database says of itself. `None`: it says nothing, as a new one.
pub(super) fn meta(medium: &Medium) -> Result<Option<Meta>, StoreError> {
    let Some(value) = medium.get(keys::META)? else { return Ok(None) };
    Meta::decode(&value).map(Some).ok_or_else(|| medium.damaged("the store's own record has no known form"))
}

/// The sum over the index as it is; compared with [`Meta::digest`] it tells whether all of the index has come back, and
/// in the version that was last written.
///
/// sled's recovery passes over what it cannot read, so that an older version of a page may stand for a newer one.
/// Records need no such check: [`records`] finds each one that is missing.
pub(super) fn digest(medium: &Medium) -> Result<u128, StoreError> {
    let mut sum = 0_u128;
    medium.scan(keys::INDEX.to_vec().., |key, stored| {
        sum = sum.wrapping_add(keys::digest(key, stored));
        Ok(true)
    })?;
    Ok(sum)
}
