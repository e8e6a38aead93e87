//! What can be asked of the database, and the check that an opened one is whole.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;

use crate::{
    id::{Generation, RunId, Seq},
    store::{
        Dump, Published, Record, Row, RunRecord, StoreError,
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
    let Some(entry) = entry(medium, run).map_err(about_run)?.filter(|entry| entry.head.is_some()) else {
        return Ok(Vec::new());
    };
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
        let value = Bytes::from(medium.value(key, stored)?);
        let (count, frames) = match keys::decode_record(&value) {
            Some((count, frames)) if first == Some(next) && count > 0 => (count, value.slice_ref(frames)),
            _ => return Err(medium.damaged("the entry is missing")),
        };
        bytes += frames.len().max(1);
        records.push(Record { first: next, count, frames });
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
    let state = state(medium, number)?.ok_or_else(|| medium.damaged("the run's state is missing"))?;
    if state.generation == generation {
        return Ok(state.length);
    }
    let closed = medium.get(&keys::closed_log(number, generation))?;
    let length = closed.as_deref().and_then(<[u8]>::first_chunk).map_or(0, |length| u64::from_be_bytes(*length));
    Ok(Seq(length))
}

fn state(medium: &Medium, number: u64) -> Result<Option<State>, StoreError> {
    let Some(state) = medium.get(&keys::state(number))? else { return Ok(None) };
    State::decode(&state).map(Some).ok_or_else(|| medium.damaged("the run's state has no known form"))
}

/// A page of rows of a run's mailbox, see [`crate::store::Store::rows`].
pub(super) fn rows(medium: &Medium, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
    let about_run = |error| concerning(error, run, None);
    match entry(medium, run).map_err(about_run)? {
        Some(entry) => rows_of(medium, entry.number, after, most).map_err(about_run),
        None => Ok(Vec::new()),
    }
}

pub(super) fn rows_of(medium: &Medium, number: u64, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
    let mut rows = Vec::new();
    if most == 0 {
        return Ok(rows);
    }
    // The row after the one with number `after` stands at the place `after`.
    medium.scan(keys::rows(number, after), |key, stored| {
        let (place, row) = (keys::place_of(key), keys::decode_row(&medium.value(key, stored)?));
        let (Some(place), Some(row)) = (place, row) else { return Err(medium.damaged("a row has no known form")) };
        rows.push((place + 1, row));
        Ok(rows.len() < most)
    })?;
    Ok(rows)
}

/// What a run has published, by name.
pub(super) fn published(medium: &Medium, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
    let about_run = |error| concerning(error, run, None);
    match entry(medium, run).map_err(about_run)? {
        Some(entry) => published_of(medium, entry.number).map_err(about_run),
        None => Ok(Vec::new()),
    }
}

fn published_of(medium: &Medium, number: u64) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
    let mut published = Vec::new();
    medium.scan(keys::all_published(number), |key, stored| {
        let value = medium.value(key, stored)?;
        let (name, value) = (keys::name_of(key), keys::decode_published(&value));
        let (Some(name), Some(value)) = (name, value) else {
            return Err(medium.damaged("a published value has no known form"));
        };
        published.push((name.into(), value));
        Ok(true)
    })?;
    Ok(published)
}

/// Everything of a run.
pub(super) fn dump(medium: &Medium, run: &RunId) -> Result<Option<Dump>, StoreError> {
    let about_run = |error| concerning(error, run, None);
    let Some(entry) = entry(medium, run).map_err(about_run)? else { return Ok(None) };
    let number = entry.number;
    let Some(record) = record_of(entry) else { return Ok(None) };
    let state = state(medium, number).map_err(about_run)?;
    let state = state.ok_or_else(|| about_run(medium.damaged("the run's state is missing")))?;
    let owner = owner(medium, number).map_err(about_run)?;

    let mut generations = Vec::new();
    let scanned = medium.scan(keys::closed_logs(number), |key, _| {
        generations.extend(keys::generation_of(key));
        Ok(true)
    });
    scanned.map_err(about_run)?;
    generations.push(state.generation);
    let log = |generation| Ok((generation, records(medium, run, generation, Seq(0), usize::MAX)?));
    let logs = generations.into_iter().map(log).collect::<Result<_, StoreError>>()?;

    let mut taken = Vec::new();
    let scanned = medium.scan(keys::row_ids(number), |key, stored| {
        if medium.value(key, stored)?.is_empty() {
            taken.push(keys::id_of(key).ok_or_else(|| medium.damaged("the id of a row is none"))?);
        }
        Ok(true)
    });
    scanned.map_err(about_run)?;
    let rows = rows_of(medium, number, 0, usize::MAX).map_err(about_run)?;
    let published = published_of(medium, number).map_err(about_run)?;
    Ok(Some(Dump { record, owner, logs, rows, taken, published }))
}

/// Who made a run; 0: nobody in particular.
pub(super) fn owner(medium: &Medium, number: u64) -> Result<u128, StoreError> {
    let Some(value) = medium.get(&keys::owner(number))? else { return Ok(0) };
    let owner = value.try_into().map_err(|_| medium.damaged("the owner of a run has no known form"))?;
    Ok(u128::from_be_bytes(owner))
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
        let value = medium.value(key, stored).and_then(|value| decode(medium, class, &value));
        let entry = value.map_err(|error| concerning(error, &id, None))?;
        page.extend(record_of(entry).map(|record| (id, record)));
        Ok(page.len() < most)
    })?;
    Ok(page)
}

fn entry(medium: &Medium, run: &RunId) -> Result<Option<Entry>, StoreError> {
    for class in Class::ALL {
        if let Some(value) = medium.get(&class.key(run))? {
            return decode(medium, class, &value).map(Some);
        }
    }
    Ok(None)
}

fn decode(medium: &Medium, class: Class, value: &[u8]) -> Result<Entry, StoreError> {
    Entry::decode(class, value).ok_or_else(|| medium.damaged("an entry has no known form"))
}

fn record_of(entry: Entry) -> Option<RunRecord> {
    let Entry { version, wait, head, aside, .. } = entry;
    Some(RunRecord { head: head?, aside, wait, version })
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
