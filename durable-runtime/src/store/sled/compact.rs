//! Giving the disk its room back: what is kept is copied into a fresh database, which then takes the old one's place.
//!
//! sled reuses the room of what was removed, and never gives it back. All happens in the store's own directory and under
//! its lock, so that nobody finds the store missing, and a store that is a mount point can be compacted too:
//!
//! | there is | after a crash, that means | and the next opening |
//! |---|---|---|
//! | `sled`, `sled.new` | the copy may not be whole | removes `sled.new` |
//! | `sled.old`, `sled.new` | the copy is whole and on disk | renames `sled.new` to `sled` |
//! | `sled`, `sled.old` | the copy has taken the place | removes `sled.old` once `sled` has opened |
//!
//! The copy counts more groups of writes than the original, so that the file `high-water` is true of both.

use std::{fs, io, path::Path};

use crate::store::{
    StoreError,
    sled::{
        SledOptions,
        identity::{self, Identity, SLED, SLED_NEW, SLED_OLD, io_error, sync_path},
        keys::{self, Class, Meta, Stored},
        medium::Medium,
        open::{self, Opened},
        read,
        writer::{FreeSpace, Room, Writer},
    },
};

/// Most keys written in one batch.
const BATCH_KEYS: usize = 4096;
/// A batch takes no further key once it holds this many bytes.
const BATCH_BYTES: usize = 1024 * 1024;

/// Which runs a compaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// All.
    All,
    /// Those that have not ended. The others are gone as after [`Write::Remove`](crate::store::Write::Remove).
    Unfinished,
}

/// What a compaction has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// How many runs were kept.
    pub runs: u64,
    /// The length of the files of the database before, in bytes.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
}

/// A compaction to be done, see [`super::SledStore::compact`].
pub(super) struct Compaction<'a> {
    pub(super) store: &'a Path,
    pub(super) options: &'a SledOptions,
    pub(super) keep: Keep,
    pub(super) progress: &'a mut dyn FnMut(u64, u64),
    /// Called between each two steps, for the tests, which end the process there.
    pub(super) between: &'a mut dyn FnMut(),
}

impl Compaction<'_> {
    pub(super) fn run(mut self, free_space: FreeSpace) -> Result<Compacted, StoreError> {
        let store = self.store;
        let Some(identity) = Identity::read(store)?.filter(|identity| identity.ready) else {
            let what = "there is no store to compact".into();
            return Err(StoreError::NotAStore { path: store.to_path_buf(), what });
        };
        let [current, new, old] = [SLED, SLED_NEW, SLED_OLD].map(|name| store.join(name));
        // Opening checks the store, and clears away what an earlier attempt has left.
        let Opened { writer, .. } = open::open(store, self.options, free_space)?;
        let Writer { shared, medium, meta, room, lock, .. } = writer;
        drop(shared);
        let copied = self.copy(&identity, &medium, meta, &room);
        let closed = medium.close(&current);
        if copied.is_err() {
            // What could not be removed is removed by the next opening.
            let _ = remove(&new);
        }
        let runs = copied?;
        closed?;
        (self.between)();
        let bytes_before = bytes_in(&current).map_err(|e| io_error("measure", &current, &e))?;
        let bytes_after = bytes_in(&new).map_err(|e| io_error("measure", &new, &e))?;

        rename(store, &current, &old)?;
        (self.between)();
        if let Err(error) = rename(store, &new, &current) {
            let _ = rename(store, &old, &current);
            return Err(error);
        }
        (self.between)();
        remove(&old).map_err(|e| io_error("remove", &old, &e))?;
        (self.between)();
        drop(lock);
        Ok(Compacted { runs, bytes_before, bytes_after })
    }

    /// Makes the copy and has it on disk. Returns how many runs are in it.
    fn copy(&mut self, identity: &Identity, from: &Medium, meta: Meta, room: &Room) -> Result<u64, StoreError> {
        let (store, options) = (self.store, self.options);
        let new = store.join(SLED_NEW);
        (self.between)();
        identity::create_directories(&new).map_err(|e| io_error("make", &new, &e))?;
        // A synchronous database stays so; where the file system does not give the flags, all is synced at the end.
        let best_effort = options.best_effort && !identity::is_synchronous(&store.join(SLED)).unwrap_or(false);
        open::full(store, open::synchronous(&new, &options.clone().best_effort(best_effort)), options)?;
        (self.between)();
        let to = Medium::open(store, &new, identity.segment_bytes, options.cache_bytes)?;
        let mut copy = Copy { from, to: &to, room, batch: sled::Batch::default(), keys: 0, bytes: 0, digest: 0 };
        let copied = copy.runs(self).and_then(|runs| {
            let meta = Meta { commits: meta.commits + 1, digest: copy.digest, ..meta };
            copy.batch.insert(keys::META, keys::encode(keys::META, &meta.encode()));
            copy.write()?;
            to.flush()?;
            match read::digest(&to)? == meta.digest {
                true => Ok(runs),
                false => Err(to.damaged("the copy of its index is not what was copied")),
            }
        });
        (self.between)();
        let closed = to.close(&new);
        let runs = copied?;
        closed?;
        (self.between)();
        sync_all(&new).and_then(|()| sync_path(store)).map_err(|e| io_error("sync", &new, &e))?;
        (self.between)();
        Ok(runs)
    }
}

/// A copy under way. Values are copied as they stand, so one that is damaged is found damaged in the copy too.
struct Copy<'a> {
    from: &'a Medium,
    to: &'a Medium,
    room: &'a Room,
    batch: sled::Batch,
    keys: usize,
    bytes: usize,
    digest: u128,
}

impl Copy<'_> {
    /// Copies the runs that are kept, and the mailboxes of those that do not exist yet. Returns how many runs there are.
    fn runs(&mut self, compaction: &mut Compaction<'_>) -> Result<u64, StoreError> {
        let (from, keep) = (self.from, compaction.keep);
        let mut numbers = Vec::new();
        let mut runs = 0;
        for class in Class::ALL {
            if class == Class::Ended && keep == Keep::Unfinished {
                continue;
            }
            from.scan(vec![class.tag()]..vec![class.tag() + 1], |key, stored| {
                let number = keys::number_of_entry(&from.value(key, stored)?);
                numbers.push((number.ok_or_else(|| from.damaged("an entry has no known form"))?, class));
                self.take(key, stored)?;
                self.take_chunks(key, stored)?;
                Ok(true)
            })?;
            if class != Class::Unborn {
                runs = numbers.len() as u64;
            }
        }
        numbers.sort_unstable_by_key(|(number, _)| *number);
        // Each kind of key is gone through once, in its order, which is also that of the numbers.
        let mut done = 0;
        (compaction.progress)(done, runs);
        for tag in keys::BEFORE_NUMBER {
            let mut kept = numbers.iter().copied().peekable();
            let counts = tag == [keys::RECORD];
            from.scan(keys::with_number(tag, 0)..keys::with_number(tag, u64::MAX), |key, stored| {
                let number = keys::number_after(tag, key);
                while let Some((_, class)) = kept.next_if(|(kept, _)| Some(*kept) < number) {
                    if counts && class != Class::Unborn {
                        done += 1;
                        (compaction.progress)(done, runs);
                    }
                }
                if kept.peek().map(|(kept, _)| *kept) == number && self.take(key, stored)? {
                    (compaction.between)();
                }
                Ok(true)
            })?;
        }
        self.write()?;
        // The last ones, which have no successor, and any that have lost all their records.
        (done + 1..=runs).for_each(|done| (compaction.progress)(done, runs));
        Ok(runs)
    }

    /// Copies the chunks of an entry, which do not stand among the run's keys.
    fn take_chunks(&mut self, key: &[u8], stored: &[u8]) -> Result<(), StoreError> {
        let Some((_, Stored::Chunks { count, .. })) = keys::decode(stored) else { return Ok(()) };
        for index in 0..count {
            let chunk = keys::chunk(key, index);
            if let Some(stored) = self.from.stored(&chunk)? {
                self.take(&chunk, &stored)?;
            }
        }
        Ok(())
    }

    /// Copies what stands under a key. True if a batch was full and has been written.
    fn take(&mut self, key: &[u8], stored: &[u8]) -> Result<bool, StoreError> {
        if keys::is_index(key) {
            self.digest = self.digest.wrapping_add(keys::digest(key, stored));
        }
        self.batch.insert(key, stored);
        self.keys += 1;
        self.bytes += key.len() + stored.len();
        let full = self.keys >= BATCH_KEYS || self.bytes >= BATCH_BYTES;
        if full {
            self.write()?;
        }
        Ok(full)
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if let Some(reason) = self.room.lacks(self.bytes) {
            return Err(StoreError::Refused { reason });
        }
        (self.keys, self.bytes) = (0, 0);
        self.to.apply(std::mem::take(&mut self.batch))
    }
}

/// Goes on with a compaction that was cut short when its copy was whole, before the database is looked for.
pub(super) fn finish(store: &Path) -> Result<(), StoreError> {
    let [current, new, old] = [SLED, SLED_NEW, SLED_OLD].map(|name| store.join(name));
    if !current.exists() && new.exists() && old.exists() {
        rename(store, &new, &current)?;
    }
    Ok(())
}

/// Removes what a compaction has left, once the database that is in its place has opened.
pub(super) fn clear(store: &Path) -> Result<(), StoreError> {
    for left in [SLED_NEW, SLED_OLD].map(|name| store.join(name)) {
        remove(&left).map_err(|e| io_error("remove", &left, &e))?;
    }
    Ok(())
}

/// Renames within the store's directory, durably.
fn rename(store: &Path, from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).and_then(|()| sync_path(store)).map_err(|e| io_error("rename", from, &e))
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Has a directory and all in it on disk.
fn sync_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_all(&entry.path())?;
        } else if kind.is_file() {
            sync_path(&entry.path())?;
        }
    }
    sync_path(directory)
}

fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { bytes_in(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
