//! A lower bound, outside sled, of how many groups of writes were made durable.
//!
//! sled opens a shortened file without a word. The store therefore counts its groups twice: in sled, in the same batch,
//! and here. If sled knows of fewer than this file, acknowledged writes are missing.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::id::StoreId;

/// Each slot has a block of the disk to itself, so that a torn write hits one of them only.
const SLOT_BYTES: u64 = 4096;

/// The file, open for writing.
///
/// It is written after each group and never waited for: after a loss of power it may be behind, which is harmless, but
/// it is never ahead.
#[derive(Debug)]
pub(super) struct HighWater {
    file: File,
    id: StoreId,
    /// The slot with the older number.
    older: u64,
}

impl HighWater {
    /// Makes the file with a count of 0 in both slots and has it on disk; the directory entry is the caller's to sync.
    ///
    /// A crash before or within leaves a file that is made again, because the store does not call itself ready yet.
    pub(super) fn create(path: &Path, id: StoreId) -> io::Result<HighWater> {
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        let mut water = HighWater { file, id, older: 0 };
        water.note(0)?;
        water.note(0)?;
        water.sync()?;
        Ok(water)
    }

    /// Opens the file and reads the count. `None`: neither slot can be trusted.
    pub(super) fn open(path: &Path, id: StoreId) -> io::Result<(HighWater, Option<u64>)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let counts = [0, 1].map(|slot| {
            let mut bytes = [0; 32];
            file.read_exact_at(&mut bytes, slot * SLOT_BYTES).ok()?;
            let count = u64::from_be_bytes(*bytes[16..].first_chunk()?);
            (bytes == encode(id, count)).then_some(count)
        });
        let older = u64::from(counts[1] < counts[0]);
        Ok((HighWater { file, id, older }, counts[0].max(counts[1])))
    }

    /// Writes a new count over the older one.
    ///
    /// A crash before leaves the old count, which is too low by what was just acknowledged; a crash within, a torn slot
    /// beside a whole one.
    pub(super) fn note(&mut self, count: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(self.id, count), self.older * SLOT_BYTES)?;
        self.older = 1 - self.older;
        Ok(())
    }

    /// Has the count on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn encode(id: StoreId, count: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&id.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&count.to_be_bytes());
    let sum = xxh3_64(&bytes[..24]);
    bytes[24..].copy_from_slice(&sum.to_be_bytes());
    bytes
}
