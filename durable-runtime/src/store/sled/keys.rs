//! The keys of the one tree, and how values are kept under them.
//!
//! | key | value |
//! |---|---|
//! | `M` | [`Meta`] |
//! | `E` number generation first | one record of a log |
//! | `U` | [`Undo`] of the newest group of writes |
//! | `X` key index | a chunk of the value of that key |
//! | `d` id, `l` id, `u` id | [`Entry`] of an ended run, of a live run, of a run that has only a mailbox so far |
//! | `g` number generation | length of a log that is not the run's newest |
//! | `i` number row-id | the place of a row in the mailbox, or nothing once it was taken |
//! | `m` number place | a row; its number is one more than its place |
//! | `o` number | who made the run, if another run did |
//! | `p` number name | a value that the run has published |
//! | `r` number | nothing: what else is under this number belongs to no run and is to be removed |
//! | `s` number | [`State`] |
//!
//! All numbers are big-endian and of fixed width, and a run id or a name stands only at the end of a key, so none can run
//! into another key. A run's number is made by the store and never used again: keys are short, and the bytes of the id do
//! not matter.
//!
//! The lower-case keys are the *index*. The index is small, and it is covered as a whole by [`Meta::digest`], because
//! sled may come back from damage with some pages older than others and no word about it. A record needs no such cover:
//! its state says how many there must be, and its checksum that it is the one.

use std::ops::Range;

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128_with_seed};

use crate::{
    id::{Generation, RunId, Seq, StoreId},
    store::{Head, Published, Row, Wait},
};

/// A value longer than this is cut into chunks of this length: a page of sled holds up to 17 values, and pages should
/// stay well below the size from which sled keeps them in files of their own.
pub(super) const CHUNK_BYTES: usize = 32 * 1024;

pub(super) const META: &[u8] = b"M";
pub(super) const UNDO: &[u8] = b"U";
/// Everything in the index is at or after this key.
pub(super) const INDEX: &[u8] = b"a";

pub(super) const RECORD: u8 = b'E';
const CHUNK: u8 = b'X';

/// Which of the three places the entry of a run stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Live,
    Ended,
    /// Somebody put a row for a run that does not exist yet.
    Unborn,
}

impl Class {
    pub(super) const ALL: [Class; 3] = [Class::Live, Class::Ended, Class::Unborn];

    pub(super) fn of(head: Option<&Head>) -> Class {
        match head {
            Some(head) if head.live => Class::Live,
            Some(_) => Class::Ended,
            None => Class::Unborn,
        }
    }

    pub(super) fn tag(self) -> u8 {
        match self {
            Class::Live => b'l',
            Class::Ended => b'd',
            Class::Unborn => b'u',
        }
    }

    pub(super) fn key(self, run: &RunId) -> Vec<u8> {
        [&[self.tag()], run.as_str().as_bytes()].concat()
    }
}

pub(super) fn record(number: u64, generation: Generation, first: Seq) -> Vec<u8> {
    [&[RECORD][..], &number.to_be_bytes(), &generation.0.to_be_bytes(), &first.0.to_be_bytes()].concat()
}

/// Where the records of a log end.
pub(super) fn after_records(number: u64, generation: Generation) -> Vec<u8> {
    [&[RECORD][..], &number.to_be_bytes(), &generation.0.to_be_bytes(), &[0xFF; 9]].concat()
}

/// The place of the first entry of the record under a key made by [`record`].
pub(super) fn first_of(key: &[u8]) -> Option<Seq> {
    Some(Seq(u64::from_be_bytes(key.get(13..)?.try_into().ok()?)))
}

/// What stands before a run's number in its keys and in those of their chunks; its records, of which there are most, last.
pub(super) const BEFORE_NUMBER: [&[u8]; 10] = [b"s", b"g", b"i", b"m", b"Xm", b"o", b"p", b"Xp", b"XE", b"E"];

/// All keys of a run but for its entry and [`removal`], in ranges.
pub(super) fn of_run(number: u64) -> impl Iterator<Item = Range<Vec<u8>>> {
    BEFORE_NUMBER.into_iter().map(move |tag| with_number(tag, number)..with_number(tag, number + 1))
}

/// Where the keys begin that have a tag and a number.
pub(super) fn with_number(tag: &[u8], number: u64) -> Vec<u8> {
    [tag, &number.to_be_bytes()].concat()
}

/// The number behind the tag of a key.
pub(super) fn number_after(tag: &[u8], key: &[u8]) -> Option<u64> {
    key.strip_prefix(tag)?.first_chunk().map(|number| u64::from_be_bytes(*number))
}

/// The largest number that any key says, given the last key at or before one.
pub(super) fn last_number<E>(
    mut last_before: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<u64>, E> {
    let mut last = None;
    for tag in BEFORE_NUMBER.into_iter().chain([&b"r"[..]]) {
        let key = last_before(&[tag, &[0xFF; 9]].concat())?;
        last = last.max(key.as_deref().and_then(|key| number_after(tag, key)));
    }
    Ok(last)
}

pub(super) fn chunk(key: &[u8], index: u32) -> Vec<u8> {
    [&[CHUNK], key, &index.to_be_bytes()].concat()
}

pub(super) fn state(number: u64) -> Vec<u8> {
    [&b"s"[..], &number.to_be_bytes()].concat()
}

pub(super) fn closed_log(number: u64, generation: Generation) -> Vec<u8> {
    [&b"g"[..], &number.to_be_bytes(), &generation.0.to_be_bytes()].concat()
}

pub(super) fn row_id(number: u64, id: u128) -> Vec<u8> {
    [&b"i"[..], &number.to_be_bytes(), &id.to_be_bytes()].concat()
}

pub(super) fn row(number: u64, place: u64) -> Vec<u8> {
    [&b"m"[..], &number.to_be_bytes(), &place.to_be_bytes()].concat()
}

/// The place of the row under a key made by [`row`].
pub(super) fn place_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(9..)?.try_into().ok()?))
}

pub(super) fn row_ids(number: u64) -> Range<Vec<u8>> {
    row_id(number, 0)..[&b"i"[..], &(number + 1).to_be_bytes()].concat()
}

/// The id of the row under a key made by [`row_id`].
pub(super) fn id_of(key: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(key.get(9..)?.try_into().ok()?))
}

/// The rows of a mailbox from a place on.
pub(super) fn rows(number: u64, from: u64) -> Range<Vec<u8>> {
    row(number, from)..[&b"m"[..], &(number + 1).to_be_bytes()].concat()
}

pub(super) fn closed_logs(number: u64) -> Range<Vec<u8>> {
    closed_log(number, Generation(0))..[&b"g"[..], &(number + 1).to_be_bytes()].concat()
}

/// The generation of the log under a key made by [`closed_log`].
pub(super) fn generation_of(key: &[u8]) -> Option<Generation> {
    Some(Generation(u32::from_be_bytes(key.get(9..)?.try_into().ok()?)))
}

pub(super) fn owner(number: u64) -> Vec<u8> {
    [&b"o"[..], &number.to_be_bytes()].concat()
}

pub(super) fn published(number: u64, name: &str) -> Vec<u8> {
    [&b"p"[..], &number.to_be_bytes(), name.as_bytes()].concat()
}

pub(super) fn all_published(number: u64) -> Range<Vec<u8>> {
    published(number, "")..published(number + 1, "")
}

/// The name under a key made by [`published`].
pub(super) fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(9..)?).ok()
}

pub(super) fn removal(number: u64) -> Vec<u8> {
    [&b"r"[..], &number.to_be_bytes()].concat()
}

pub(super) fn removals() -> Range<Vec<u8>> {
    b"r".to_vec()..b"s".to_vec()
}

/// The number under a key that ends with it.
pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    key.last_chunk().map(|number| u64::from_be_bytes(*number))
}

/// Whether a key belongs to the index.
pub(super) fn is_index(key: &[u8]) -> bool {
    key >= INDEX
}

/// What a key and its stored value add to [`Meta::digest`]. A sum, so that the order does not matter and a value can be
/// taken out again.
pub(super) fn digest(key: &[u8], stored: &[u8]) -> u128 {
    xxh3_128_with_seed(stored, xxh3_64(key))
}

/// How a value stands in the tree.
pub(super) enum Stored<'a> {
    Whole(&'a [u8]),
    Chunks { count: u32, bytes: usize },
}

/// Ties a value to its key, so that neither a changed nor a misplaced value passes.
pub(super) fn checksum(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64(key))
}

/// What goes under the key itself; the chunks, if there are any, go under keys of their own.
pub(super) fn encode(key: &[u8], value: &[u8]) -> Vec<u8> {
    let sum = checksum(key, value).to_be_bytes();
    if value.len() <= CHUNK_BYTES {
        return [&[0][..], &sum, value].concat();
    }
    [&[1][..], &sum, &(value.len() as u64).to_be_bytes()].concat()
}

/// Takes apart what [`encode`] made: the checksum and where the value is. `None`: it is not of that make.
pub(super) fn decode(stored: &[u8]) -> Option<(u64, Stored<'_>)> {
    let (kind, rest) = stored.split_first()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let value = match kind {
        0 => Stored::Whole(rest),
        1 => {
            let bytes = usize::try_from(u64::from_be_bytes(rest.try_into().ok()?)).ok()?;
            Stored::Chunks { count: u32::try_from(bytes.div_ceil(CHUNK_BYTES)).ok()?, bytes }
        }
        _ => return None,
    };
    Some((u64::from_be_bytes(*sum), value))
}

/// Reads the fixed-width numbers at the front of a value.
struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn slice(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take()?))
    }
}

/// What the store knows of itself; written with every group of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) id: StoreId,
    /// How often the store was opened; the upper half of all epochs given out since.
    pub(super) openings: u64,
    /// The number of the next run.
    pub(super) next_number: u64,
    /// How many groups were written. What the file `high-water` is compared with.
    pub(super) commits: u64,
    /// The sum of [`digest`] over the whole index.
    pub(super) digest: u128,
}

impl Meta {
    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [self.openings, self.next_number, self.commits].map(u64::to_be_bytes);
        [&self.id.0.to_be_bytes()[..], numbers.as_flattened(), &self.digest.to_be_bytes()].concat()
    }

    pub(super) fn decode(value: &[u8]) -> Option<Meta> {
        let mut n = Numbers(value);
        let id = StoreId(u128::from_be_bytes(n.take()?));
        let (openings, next_number, commits) = (n.u64()?, n.u64()?, n.u64()?);
        Some(Meta { id, openings, next_number, commits, digest: u128::from_be_bytes(n.take()?) })
    }
}

/// What stood under the keys that a group of writes changes, so that a part of the group can be taken back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undo {
    /// [`Meta::commits`] with the group: it is whole if the store's has come so far.
    pub(super) commits: u64,
    /// Each key and what stood under it, as it stood.
    pub(super) stood: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// An [`Undo`] as it is written.
pub(super) struct UndoBytes(Vec<u8>);

impl UndoBytes {
    pub(super) fn push(&mut self, key: &[u8], stood: Option<&[u8]>) {
        self.0.extend_from_slice(&(key.len() as u64).to_be_bytes());
        self.0.extend_from_slice(key);
        // The length is off by one, so that 0 can say that there was nothing.
        self.0.extend_from_slice(&stood.map_or(0, |stood| stood.len() as u64 + 1).to_be_bytes());
        self.0.extend_from_slice(stood.unwrap_or_default());
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Undo {
    /// Begins to write one.
    pub(super) fn encode(commits: u64) -> UndoBytes {
        UndoBytes(commits.to_be_bytes().to_vec())
    }

    /// `None`: it is of no known form.
    pub(super) fn decode(value: &[u8]) -> Option<Undo> {
        let mut n = Numbers(value);
        let mut undo = Undo { commits: n.u64()?, stood: Vec::new() };
        while !n.0.is_empty() {
            let bytes = usize::try_from(n.u64()?).ok()?;
            let key = n.slice(bytes)?.to_vec();
            let stood = match usize::try_from(n.u64()?).ok()?.checked_sub(1) {
                Some(bytes) => Some(n.slice(bytes)?.to_vec()),
                None => None,
            };
            undo.stood.push((key, stood));
        }
        Some(undo)
    }
}

/// Where a run's newest log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) generation: Generation,
    pub(super) length: Seq,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.generation.0.to_be_bytes()[..], &self.length.0.to_be_bytes()].concat()
    }

    pub(super) fn decode(value: &[u8]) -> Option<State> {
        let mut n = Numbers(value);
        let state = State { generation: Generation(n.u32()?), length: Seq(n.u64()?) };
        n.0.is_empty().then_some(state)
    }
}

/// What stands under a run's id: all that a list of runs shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: u64,
    /// How many rows were ever put: the number of the last one, the place of the next.
    pub(super) version: u64,
    pub(super) wait: Option<Wait>,
    /// `None`: not created yet.
    pub(super) head: Option<Head>,
    pub(super) aside: Option<Bytes>,
}

impl Entry {
    pub(super) fn new(number: u64) -> Entry {
        Entry { number, version: 0, wait: None, head: None, aside: None }
    }

    pub(super) fn class(&self) -> Class {
        Class::of(self.head.as_ref())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = self.number.to_be_bytes().to_vec();
        let Some(head) = &self.head else {
            value.extend_from_slice(&self.version.to_be_bytes());
            return value;
        };
        value.extend_from_slice(&head.generation.0.to_be_bytes());
        // The length is off by one, so that 0 can say that there is none.
        let aside_length = self.aside.as_ref().map_or(0, |aside| aside.len() as u64 + 1);
        value.extend_from_slice(&aside_length.to_be_bytes());
        value.extend_from_slice(&self.version.to_be_bytes());
        match self.wait {
            None => value.push(0),
            Some(Wait { due, seen, code }) => {
                value.push(if due.is_some() { 2 } else { 1 });
                let numbers = [Some(seen), Some(code), due].into_iter().flatten();
                value.extend(numbers.flat_map(u64::to_be_bytes));
            }
        }
        value.extend_from_slice(self.aside.as_deref().unwrap_or_default());
        value.extend_from_slice(&head.bytes);
        value
    }

    /// `None`: it is of no known form.
    pub(super) fn decode(class: Class, value: &[u8]) -> Option<Entry> {
        let mut n = Numbers(value);
        let mut entry = Entry::new(n.u64()?);
        if class == Class::Unborn {
            entry.version = n.u64()?;
            return n.0.is_empty().then_some(entry);
        }
        let (generation, aside_length) = (Generation(n.u32()?), n.u64()?);
        entry.version = n.u64()?;
        let [kind] = n.take()?;
        entry.wait = match kind {
            0 => None,
            1 => Some(Wait { seen: n.u64()?, code: n.u64()?, due: None }),
            2 => Some(Wait { seen: n.u64()?, code: n.u64()?, due: Some(n.u64()?) }),
            _ => return None,
        };
        if let Some(bytes) = usize::try_from(aside_length).ok()?.checked_sub(1) {
            entry.aside = Some(Bytes::copy_from_slice(n.slice(bytes)?));
        }
        entry.head = Some(Head { generation, live: class == Class::Live, bytes: Bytes::copy_from_slice(n.0) });
        Some(entry)
    }
}

/// The run's number, from the value of its entry.
pub(super) fn number_of_entry(value: &[u8]) -> Option<u64> {
    Numbers(value).u64()
}

/// The value of a record: how many entries, and their frames.
pub(super) fn encode_record(count: u32, frames: &[u8]) -> Vec<u8> {
    [&count.to_be_bytes()[..], frames].concat()
}

pub(super) fn decode_record(value: &[u8]) -> Option<(u32, &[u8])> {
    let (count, frames) = value.split_first_chunk()?;
    Some((u32::from_be_bytes(*count), frames))
}

/// The value of a row.
pub(super) fn encode_row(row: &Row) -> Vec<u8> {
    [&row.id.to_be_bytes()[..], &[row.kind], &row.bytes].concat()
}

pub(super) fn decode_row(value: &[u8]) -> Option<Row> {
    let (id, rest) = value.split_first_chunk()?;
    let (kind, bytes) = rest.split_first()?;
    Some(Row { id: u128::from_be_bytes(*id), kind: *kind, bytes: Bytes::copy_from_slice(bytes) })
}

/// The value of a published value.
pub(super) fn encode_published(Published { generation, len, value }: &Published) -> Vec<u8> {
    [&generation.0.to_be_bytes()[..], &len.0.to_be_bytes(), value].concat()
}

pub(super) fn decode_published(value: &[u8]) -> Option<Published> {
    let mut n = Numbers(value);
    let (generation, len) = (Generation(n.u32()?), Seq(n.u64()?));
    Some(Published { generation, len, value: Bytes::copy_from_slice(n.0) })
}
