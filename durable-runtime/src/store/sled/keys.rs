//! The keys of the one tree, and how values are kept under them.
//!
//! | key | value |
//! |---|---|
//! | `M` | [`Meta`] |
//! | `E` number generation first | one record of a log |
//! | `X` key index | a chunk of the value of that key |
//! | `d` id, `l` id, `u` id | [`Entry`] of an ended run, of a live run, of a run that has only a mailbox so far |
//! | `g` number generation | length of a log that is not the run's newest |
//! | `i` number row-id | the place of a row in the mailbox, or nothing once it was taken |
//! | `m` number place | a row |
//! | `s` number | [`State`] |
//!
//! All numbers are big-endian and of fixed width, and a run id stands only at the end of a key, so no id can run into
//! another key. A run's number is made by the store: keys are short, and the bytes of the id do not matter.
//!
//! The lower-case keys are the *index*. The index is small, and it is covered as a whole by [`Meta::digest`], because
//! sled may come back from damage with some pages older than others and no word about it. A record needs no such cover:
//! its state says how many there must be, and its checksum that it is the one.

use crate::{
    id::{Generation, RunId, Seq, StoreId},
    store::Head,
};
use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128_with_seed};

/// A value longer than this is cut into chunks of this length: a page of sled holds up to 17 values, and pages should
/// stay well below the size from which sled keeps them in files of their own.
pub(super) const CHUNK_BYTES: usize = 32 * 1024;

pub(super) const META: &[u8] = b"M";
/// Everything in the index is at or after this key.
pub(super) const INDEX: &[u8] = b"a";

const RECORD: u8 = b'E';
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

pub(super) fn rows(number: u64) -> Vec<u8> {
    [&b"m"[..], &number.to_be_bytes()].concat()
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

/// Where a run's log and mailbox end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The newest log.
    pub(super) generation: Generation,
    /// Its length.
    pub(super) length: Seq,
    /// The place of the next row.
    pub(super) next_row: u64,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.generation.0.to_be_bytes()[..], &self.length.0.to_be_bytes(), &self.next_row.to_be_bytes()].concat()
    }

    pub(super) fn decode(value: &[u8]) -> Option<State> {
        let mut n = Numbers(value);
        Some(State { generation: Generation(n.u32()?), length: Seq(n.u64()?), next_row: n.u64()? })
    }
}

/// What stands under a run's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: u64,
    /// `None`: not created yet.
    pub(super) head: Option<Head>,
    pub(super) aside: Option<Bytes>,
}

impl Entry {
    pub(super) fn class(&self) -> Class {
        Class::of(self.head.as_ref())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = self.number.to_be_bytes().to_vec();
        let Some(head) = &self.head else { return value };
        value.extend_from_slice(&head.generation.0.to_be_bytes());
        // The length is off by one, so that 0 can say that there is none.
        value.extend_from_slice(&(self.aside.as_ref().map_or(0, |aside| aside.len() as u64 + 1)).to_be_bytes());
        value.extend_from_slice(self.aside.as_deref().unwrap_or_default());
        value.extend_from_slice(&head.bytes);
        value
    }

    pub(super) fn decode(class: Class, value: &[u8]) -> Option<Entry> {
        let mut n = Numbers(value);
        let number = n.u64()?;
        if class == Class::Unborn {
            return Some(Entry { number, head: None, aside: None });
        }
        let generation = Generation(n.u32()?);
        let aside = match usize::try_from(n.u64()?).ok()?.checked_sub(1) {
            None => None,
            Some(bytes) => Some(Bytes::copy_from_slice(n.slice(bytes)?)),
        };
        let head = Head { generation, live: class == Class::Live, bytes: Bytes::copy_from_slice(n.0) };
        Some(Entry { number, head: Some(head), aside })
    }
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
pub(super) fn encode_row(row: &crate::store::Row) -> Vec<u8> {
    [&row.id.to_be_bytes()[..], &[row.kind], &row.bytes].concat()
}

pub(super) fn decode_row(value: &[u8]) -> Option<crate::store::Row> {
    let (id, rest) = value.split_first_chunk()?;
    let (kind, bytes) = rest.split_first()?;
    Some(crate::store::Row { id: u128::from_be_bytes(*id), kind: *kind, bytes: Bytes::copy_from_slice(bytes) })
}
