//! Removing what belongs to no run, a piece at a time.
//!
//! A run is removed by one write that takes its entry away: from then on it is not listed, not read, and its id is free.
//! The same write leaves the key [`keys::removal`] with the run's number. What is left under that number is found by
//! nobody, and it goes in pieces between the groups of other writes, each piece a group of its own; the last one takes the
//! key too. After a crash, or a closing, the keys that are still there say what is to be gone on with.

use sled::IVec;

use crate::store::{
    StoreError,
    sled::{
        keys::{self, Meta},
        medium::{Changes, Medium},
    },
};

/// Most keys in one piece.
const PIECE_KEYS: usize = 512;
/// A piece takes no further key once it holds this many bytes of values.
const PIECE_BYTES: usize = 1024 * 1024;

/// Part of what is to be removed.
pub(super) struct Piece {
    pub(super) changes: Changes,
    pub(super) meta: Meta,
    keys: usize,
    bytes: usize,
}

impl Piece {
    /// The next piece, and the store's knowledge of itself as it will be; `None`: nothing is to be removed.
    pub(super) fn next(medium: &Medium, meta: Meta) -> Result<Option<Piece>, StoreError> {
        let mut numbers = Vec::new();
        medium.scan(keys::removals(), |key, stored| {
            let number = keys::number_of(key).ok_or_else(|| medium.damaged("a removal has no known form"))?;
            numbers.push((number, stored.to_vec()));
            Ok(numbers.len() < PIECE_KEYS)
        })?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let mut piece = Piece { changes: Changes::default(), meta, keys: 0, bytes: 0 };
        for (number, stored) in numbers {
            if !piece.take(medium, number)? {
                break;
            }
            piece.remove(&keys::removal(number), &stored);
        }
        piece.meta.commits += 1;
        Ok(Some(piece))
    }

    /// Takes what is under a number. False: there may be more of it.
    fn take(&mut self, medium: &Medium, number: u64) -> Result<bool, StoreError> {
        for range in keys::of_run(number) {
            if self.is_full() {
                return Ok(false);
            }
            medium.scan(range, |key, stored| {
                self.remove(key, stored);
                Ok(!self.is_full())
            })?;
        }
        Ok(!self.is_full())
    }

    fn remove(&mut self, key: &[u8], stored: &[u8]) {
        if keys::is_index(key) {
            self.meta.digest = self.meta.digest.wrapping_sub(keys::digest(key, stored));
        }
        self.changes.set(key.to_vec(), Some(IVec::from(stored)), None);
        self.keys += 1;
        self.bytes += stored.len();
    }

    fn is_full(&self) -> bool {
        self.keys >= PIECE_KEYS || self.bytes >= PIECE_BYTES
    }
}
