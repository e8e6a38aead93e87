//! sled, kept at arm's length: its errors are typed, its panics are caught, its lock is really free when it is closed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    ops::RangeBounds,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use sled::IVec;

use crate::store::{
    StoreError,
    sled::{
        identity::{damaged, io_error},
        keys::{self, CHUNK_BYTES, Meta, Stored, Undo},
    },
};

/// How often sled cleans up old segments, in milliseconds. Flushing does not depend on it.
const CLEAN_EVERY_MS: u64 = 500;
/// What takes a group back has at most so many bytes: it is one value of the tree, and not cut into chunks.
const UNDO_BYTES: usize = CHUNK_BYTES / 2;
/// How long closing waits for sled's threads and for its lock, in milliseconds.
const CLOSE_WAIT_MS: u32 = 10_000;

/// The open database.
#[derive(Clone)]
pub(super) struct Medium {
    db: sled::Db,
    store: PathBuf,
}

impl Medium {
    /// Opens or makes the database in `directory`.
    ///
    /// sled may panic on damaged files, so it runs on a thread of its own and under `catch_unwind`, and an attempt that
    /// failed is waited for until it has let go of the lock.
    pub(super) fn open(
        store: &Path,
        directory: &Path,
        segment_bytes: usize,
        cache_bytes: u64,
    ) -> Result<Medium, StoreError> {
        remove_unfinished_snapshots(directory).map_err(|e| io_error("clean", directory, &e))?;
        let config = sled::Config::new()
            .path(directory)
            .segment_size(segment_bytes)
            .cache_capacity(cache_bytes)
            .flush_every_ms(Some(CLEAN_EVERY_MS));
        let open = thread::Builder::new().name(String::from("durable-store-open")).spawn(move || {
            // The store's own lock is held, so whoever has sled's is about to let go of it: a process that was just
            // killed, or a child forked while an earlier opening was under way.
            for _ in 0..50 {
                match catch_unwind(AssertUnwindSafe(|| config.open())) {
                    Ok(Err(sled::Error::Io(e))) if e.to_string().contains("could not acquire lock") => {
                        thread::sleep(Duration::from_millis(10));
                    }
                    Ok(opened) => return Some(opened.map_err(Fault::Sled)),
                    Err(panic) => return Some(Err(Fault::Panic(panic_text(&*panic)))),
                }
            }
            None
        });
        let open = open.map_err(|e| io_error("start a thread for", directory, &e))?;
        let opened = open.join().unwrap_or_else(|panic| Some(Err(Fault::Panic(panic_text(&*panic)))));
        match opened {
            Some(Ok(db)) => Ok(Medium { db, store: store.to_path_buf() }),
            None => Err(StoreError::InUse { path: store.to_path_buf(), pid: None }),
            Some(Err(fault)) => {
                wait_until_unlocked(directory);
                Err(fault.into_store_error(store, "open the database"))
            }
        }
    }

    /// Runs a piece of sled.
    fn guarded<T>(&self, doing: &str, f: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, StoreError> {
        match catch_unwind(AssertUnwindSafe(|| f(&self.db))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Fault::Sled(error).into_store_error(&self.store, doing)),
            Err(panic) => Err(Fault::Panic(panic_text(&*panic)).into_store_error(&self.store, doing)),
        }
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> StoreError {
        damaged(&self.store, what.into())
    }

    /// What stands under a key, as it stands.
    pub(super) fn stored(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        self.guarded("read a key", |db| db.get(key))
    }

    /// The value of a key, checked.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.stored(key)?.map(|stored| self.value(key, &stored)).transpose()
    }

    /// The value that stands under a key as `stored`, checked.
    pub(super) fn value(&self, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, StoreError> {
        let Some((sum, place)) = keys::decode(stored) else {
            return Err(self.damaged("a value has no known form"));
        };
        let value = match place {
            Stored::Whole(value) => value.to_vec(),
            Stored::Chunks { count, bytes } => {
                let mut value = Vec::new();
                for index in 0..count {
                    let chunk = self.stored(&keys::chunk(key, index))?;
                    value.extend_from_slice(&chunk.ok_or_else(|| self.damaged("a part of a value is missing"))?);
                }
                if value.len() != bytes {
                    return Err(self.damaged("a part of a value has the wrong length"));
                }
                value
            }
        };
        if keys::checksum(key, &value) != sum {
            return Err(self.damaged("a value is not what was written"));
        }
        Ok(value)
    }

    /// The first pair in a range, or the last.
    pub(super) fn end_of(
        &self,
        range: impl RangeBounds<Vec<u8>>,
        last: bool,
    ) -> Result<Option<(IVec, IVec)>, StoreError> {
        self.guarded("look for a key", |db| {
            let mut pairs = db.range(range);
            if last { pairs.next_back() } else { pairs.next() }.transpose()
        })
    }

    /// Shows the pairs of a range in order, until `see` has had enough and returns false.
    pub(super) fn scan(
        &self,
        range: impl RangeBounds<Vec<u8>>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.guarded("read a range of keys", |db| {
            for pair in db.range(range) {
                let (key, stored) = pair?;
                match see(&key, &stored) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(()))
        })?
    }

    /// Makes changes, whole, and what the store knows of itself with them: after a crash and [`Medium::roll_back`] there
    /// are all of them or none. They are visible from now on, and durable after
    /// [`Medium::flush`].
    ///
    /// sled's own batches cost two writes to the disk, one after the other, and each is waited for. What sled is told key by
    /// key it writes in that order, and after a crash it finds as much of the order as had been written, without a gap. So
    /// what stood under the keys goes first, then the changes, and last of all `meta`, which says that they are all there.
    /// Where that would mean to write much twice it is one of sled's batches.
    pub(super) fn commit(&self, changes: Changes, meta: &Meta) -> Result<(), StoreError> {
        let meta_value = keys::encode(keys::META, &meta.encode());
        if let Some(undo) = changes.undo(meta.commits) {
            return self.guarded("write a group", |db| {
                if !changes.0.is_empty() {
                    db.insert(keys::UNDO, undo)?;
                }
                for (key, Change { value, .. }) in changes.0 {
                    set(db, key, value)?;
                }
                db.insert(keys::META, meta_value).map(drop)
            });
        }
        let mut batch = sled::Batch::default();
        for (key, Change { value, .. }) in changes.0 {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        batch.insert(keys::META, meta_value);
        self.apply(batch)
    }

    /// Takes back what a crash has left of a group that came after so many, if it has left a part. A crash within leaves
    /// that to be done again.
    pub(super) fn roll_back(&self, commits: u64) -> Result<(), StoreError> {
        let Some(undo) = self.get(keys::UNDO)? else { return Ok(()) };
        let undo = Undo::decode(&undo).ok_or_else(|| self.damaged("what takes a group back has no known form"))?;
        if undo.commits != commits + 1 {
            return Ok(());
        }
        self.guarded("take back a part of a group", |db| {
            for (key, stood) in undo.stood {
                set(db, key, stood)?;
            }
            Ok(())
        })
    }

    /// Applies one of sled's batches: a crash leaves all of it or nothing. It is durable after [`Medium::flush`].
    pub(super) fn apply(&self, batch: sled::Batch) -> Result<(), StoreError> {
        self.guarded("write a batch", |db| db.apply_batch(batch))
    }

    /// Waits until all that was written to sled is on its way through the operating system, which in a synchronous directory
    /// means: on the disk.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.guarded("flush", |db| db.flush()).map(drop)
    }

    /// Lets go of the database; this must be the last clone. The store can be opened again when this returns.
    ///
    /// sled's destructor waits for its threads, for ever if one of them has died, so it gets a thread of its own and a
    /// limit.
    pub(super) fn close(self, directory: &Path) -> Result<(), StoreError> {
        let (ended, end) = mpsc::channel();
        let db = self.db;
        let closing = thread::Builder::new().name(String::from("durable-store-close")).spawn(move || {
            let dropped = catch_unwind(AssertUnwindSafe(move || drop(db)));
            let _ = ended.send(dropped.map_err(|panic| panic_text(&*panic)));
        });
        closing.map_err(|e| io_error("start a thread for", directory, &e))?;
        let error = match end.recv_timeout(Duration::from_millis(u64::from(CLOSE_WAIT_MS))) {
            Ok(Ok(())) if wait_until_unlocked(directory) => return Ok(()),
            Ok(Ok(())) => "sled keeps its lock".into(),
            Ok(Err(panic)) => panic.into(),
            Err(_) => "sled's threads do not end".into(),
        };
        Err(StoreError::Io { doing: format!("close {}", self.store.display()).into(), error })
    }
}

/// What a group changes, by key.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<Vec<u8>, Change>);

/// `None` is nothing.
#[derive(Debug)]
struct Change {
    stood: Option<IVec>,
    value: Option<Vec<u8>>,
}

impl Changes {
    /// `stood`: what stands under the key now, as it stands.
    pub(super) fn set(&mut self, key: Vec<u8>, stood: Option<IVec>, value: Option<Vec<u8>>) {
        self.0.insert(key, Change { stood, value });
    }

    /// What takes them back, as it is to stand; `None` if that is too long.
    fn undo(&self, commits: u64) -> Option<Vec<u8>> {
        let mut undo = Undo::encode(commits);
        for (key, Change { stood, .. }) in &self.0 {
            undo.push(key, stood.as_deref());
            if undo.len() > UNDO_BYTES {
                return None;
            }
        }
        Some(keys::encode(keys::UNDO, undo.as_bytes()))
    }
}

fn set(db: &sled::Db, key: Vec<u8>, value: Option<Vec<u8>>) -> sled::Result<()> {
    match value {
        Some(value) => db.insert(key, value)?,
        None => db.remove(key)?,
    };
    Ok(())
}

/// What can go wrong within sled.
enum Fault {
    Sled(sled::Error),
    Panic(String),
}

impl Fault {
    fn into_store_error(self, store: &Path, doing: &str) -> StoreError {
        match self {
            Fault::Panic(text) => damaged(store, format!("sled panicked when it should {doing}: {text}")),
            Fault::Sled(sled::Error::Io(e)) if !tells_of_damage(e.kind()) => {
                io_error(&format!("{doing} of"), store, &e)
            }
            Fault::Sled(error) => damaged(store, format!("sled cannot {doing}: {error}")),
        }
    }
}

/// Whether an error of the system means that a file is shorter than it was, or gone.
fn tells_of_damage(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| String::from(*text));
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| String::from("no message"))
}

/// Removes snapshots that sled had not finished when it was killed; it would take them for finished ones and refuse to
/// open (spacejam/sled#1527). A snapshot only saves sled the reading of its log.
fn remove_unfinished_snapshots(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("snap.") && name.to_string_lossy().ends_with(".generating") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Waits until nobody has sled's lock: its file may outlive the database for a moment, in the hands of sled's threads.
/// False if that takes too long.
fn wait_until_unlocked(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join("db")) else { return true };
    for _ in 0..CLOSE_WAIT_MS {
        if file.try_lock().is_ok() {
            return file.unlock().is_ok();
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}
