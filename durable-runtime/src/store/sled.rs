//! The store for one process: [`SledStore`], on the embedded database sled.
//!
//! A store is a directory:
//!
//! | name | what |
//! |---|---|
//! | `STORE` | which store this is; its format; whether it was ever ready |
//! | `LOCK` | locked while the store is open; holds the process id |
//! | `high-water` | how many groups of writes were made durable at least |
//! | `sled/` | the database, written synchronously |
//! | `sled.new/`, `sled.old/` | there while the store is compacted, or after a crash of that |
//!
//! Other things may lie there too. To copy a store, close it first, or copy all of it at one instant.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, ThreadId},
};

use crate::{
    id::{Generation, RunId, Seq, StoreId},
    store::{About, Done, Dump, Published, Record, Row, RunRecord, Store, StoreError, Write},
};

mod compact;
mod group;
mod high_water;
mod identity;
mod keys;
mod medium;
mod open;
mod read;
mod removal;
mod writer;

#[cfg(test)]
mod tests;

pub use compact::{Compacted, Keep};
use medium::Medium;
pub use writer::Counts;
use writer::Shared;

/// The largest write the store takes, in bytes of entries, rows, head and aside together: 64 MiB. Only
/// [`Write::Restore`] may be larger.
pub const WRITE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The room that is kept free on the disk unless [`SledOptions::reserve_bytes`] says otherwise: 16 MiB.
pub const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// How much of the database is kept in memory unless [`SledOptions::cache_bytes`] says otherwise: 16 MiB.
pub const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// What the text of a [`StoreError::Damaged`] begins with for which [`SledOptions::accept_loss`] is a way on. For any other damage it is
/// none.
pub const LOSS: &str = "its newest writes may be missing: ";

/// How to open a [`SledStore`].
///
/// ```
/// use durable::store::sled::SledOptions;
/// let options = SledOptions::new().require_full(true);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SledOptions {
    require_full: bool,
    best_effort: bool,
    accept_loss: bool,
    reserve_bytes: u64,
    cache_bytes: u64,
    id: Option<StoreId>,
    existing: bool,
}

impl SledOptions {
    /// What suits nearly everybody: full durability where the file system gives it, best effort elsewhere.
    pub fn new() -> SledOptions {
        SledOptions {
            require_full: false,
            best_effort: false,
            accept_loss: false,
            reserve_bytes: RESERVE_BYTES,
            cache_bytes: CACHE_BYTES,
            id: None,
            existing: false,
        }
    }

    /// Whether to open only a store that is there, and never to make one: [`StoreError::NotAStore`] where there is none.
    pub fn existing(mut self, existing: bool) -> SledOptions {
        self.existing = existing;
        self
    }

    /// Whether to fail with [`StoreError::NotDurable`] rather than to open with less than
    /// [`Durability::Full`](crate::store::Durability::Full).
    pub fn require_full(mut self, require: bool) -> SledOptions {
        self.require_full = require;
        self
    }

    /// Whether to do without the inode flag for synchronous writes even where the file system has it, and to sync the
    /// database after each group instead: for a file system that takes the flag and does not honour it.
    /// [`Durability::BestEffort`](crate::store::Durability::BestEffort), unless the store's directory has the flag
    /// already.
    pub fn best_effort(mut self, without: bool) -> SledOptions {
        self.best_effort = without;
        self
    }

    /// Whether to open a store that has lost acknowledged writes, as it is. It opens like any other afterwards.
    ///
    /// Runs may have lost the ends of their logs, or be missing: their effects may be executed again. Keep a copy of
    /// the directory first.
    pub fn accept_loss(mut self, accept: bool) -> SledOptions {
        self.accept_loss = accept;
        self
    }

    /// Room to keep free on the disk, in bytes; without four times a group's size beyond it the group's writes fail
    /// with [`StoreError::Refused`]. sled neither survives a full disk nor opens on one. Default: [`RESERVE_BYTES`].
    pub fn reserve_bytes(mut self, bytes: u64) -> SledOptions {
        self.reserve_bytes = bytes;
        self
    }

    /// About how much of the database to keep in memory, in bytes as they stand on disk. Default: [`CACHE_BYTES`].
    ///
    /// What is kept takes more in memory than on disk, and each run some hundred bytes beside: a process with 100,000
    /// small waiting runs has 45 to 80 MB with the default and 70 to 130 MB with 64 MiB.
    pub fn cache_bytes(mut self, bytes: u64) -> SledOptions {
        self.cache_bytes = bytes;
        self
    }

    /// The id of the store, if it is made by this opening; a store that is there and has another id does not open. For a
    /// store that takes the place of another one: what the runs sent out carries the store's id.
    pub fn id(mut self, id: StoreId) -> SledOptions {
        self.id = Some(id);
        self
    }
}

impl Default for SledOptions {
    fn default() -> SledOptions {
        SledOptions::new()
    }
}

/// A store in a directory, for one process at a time.
///
/// [`Durability::Full`](crate::store::Durability::Full) where the file system can be told to write a directory
/// synchronously (`chattr +S`, for which no privilege is needed; tested on ext4 and xfs), else
/// [`Durability::BestEffort`](crate::store::Durability::BestEffort): the database is synced after each group of writes,
/// but what sled rewrites in between may be torn by a loss of power, and the directory is not what was tested to
/// survive one.
///
/// Dropping it without [`Store::close`] closes it too, with nobody to tell of errors.
pub struct SledStore {
    about: About,
    shared: Arc<Shared>,
    writer: ThreadId,
}

impl SledStore {
    /// Opens the store in a directory, or makes one in a new or empty directory.
    ///
    /// Reads all but the logs, about as long as listing all runs takes.
    ///
    /// # Errors
    ///
    /// - [`StoreError::InUse`] within a second, if this or another process has it open; no file was changed.
    /// - [`StoreError::NotAStore`] if there is something else, or the store of a later version.
    /// - [`StoreError::Damaged`] if the store does not hold what it must, be it only fewer writes than it acknowledged:
    ///   it never opens shorter or empty instead. See [`SledOptions::accept_loss`].
    /// - [`StoreError::NotDurable`] if [`SledOptions::require_full`] was asked and is not to be had.
    /// - [`StoreError::Refused`] if the disk is full.
    /// - [`StoreError::Io`] for other failures of the medium.
    pub fn open(path: impl AsRef<Path>, options: SledOptions) -> Result<SledStore, StoreError> {
        let store = path.as_ref().to_path_buf();
        let free_space = free_space(store.clone());
        SledStore::open_with(store, &options, free_space)
    }

    /// Gives the room of what was removed back to the disk: copies what the store in a directory holds into a fresh
    /// database, which then takes the place of the old one. The store must not be open.
    ///
    /// Needs as much room as what is kept, for as long as it takes. Whatever happens, and whenever the process is killed,
    /// the store is there as it was before or as it is after; the next opening clears away the rest.
    ///
    /// Tells `progress` how many runs are done, of how many.
    ///
    /// # Errors
    ///
    /// Those of [`SledStore::open`], but no store is made; and [`StoreError::Refused`] if there is not enough room.
    ///
    /// ```no_run
    /// # use durable::store::{StoreError, sled::{Keep, SledOptions, SledStore}};
    /// # fn main() -> Result<(), StoreError> {
    /// let options = SledOptions::new();
    /// let compacted = SledStore::compact("runs", options, Keep::Unfinished, |done, of| eprint!("\r{done} of {of}"))?;
    /// eprintln!("\n{} bytes, before {}", compacted.bytes_after, compacted.bytes_before);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact(
        path: impl AsRef<Path>,
        options: SledOptions,
        keep: Keep,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Compacted, StoreError> {
        let store = path.as_ref();
        let (options, progress) = (&options, &mut progress);
        compact::Compaction { store, options, keep, progress, between: &mut || {} }.run(free_space(store.to_path_buf()))
    }

    /// What was written since the store was opened.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    fn open_with(
        store: PathBuf,
        options: &SledOptions,
        free_space: writer::FreeSpace,
    ) -> Result<SledStore, StoreError> {
        let opened = open::open(&store, options, free_space)?;
        SledStore::start(&store, opened)
    }

    fn start(store: &Path, opened: open::Opened) -> Result<SledStore, StoreError> {
        let open::Opened { durability, writer } = opened;
        let about = About { id: writer.meta.id, durability, place: store.display().to_string() };
        let shared = Arc::clone(&writer.shared);
        let thread = thread::Builder::new().name(String::from("durable-store")).spawn(move || writer.run());
        let thread = thread.map_err(|e| identity::io_error("start the writer of", store, &e))?;
        Ok(SledStore { about, shared, writer: thread.thread().id() })
    }

    fn medium<T>(&self, read: impl FnOnce(&Medium) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.shared.view().as_ref().ok_or(StoreError::Closed).and_then(read)
    }
}

impl Store for SledStore {
    fn about(&self) -> &About {
        &self.about
    }

    fn submit(&self, write: Write, done: Done) {
        self.shared.submit(write, done);
    }

    fn read(
        &self,
        run: &RunId,
        generation: Generation,
        from: Seq,
        bytes_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.medium(|medium| read::records(medium, run, generation, from, bytes_max))
    }

    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        self.medium(|medium| read::rows(medium, run, after, most))
    }

    fn published(&self, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
        self.medium(|medium| read::published(medium, run))
    }

    fn dump(&self, run: &RunId) -> Result<Option<Dump>, StoreError> {
        self.medium(|medium| read::dump(medium, run))
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.medium(|medium| read::run(medium, run))
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        self.medium(|medium| read::runs(medium, live, after, most))
    }

    fn close(&self) -> Result<(), StoreError> {
        self.shared.stop();
        if thread::current().id() == self.writer {
            let error = "it cannot be waited for within a callback of a write".into();
            return Err(StoreError::Io { doing: format!("close {}", self.about.place).into(), error });
        }
        self.shared.wait()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "a store was not closed in order");
        }
    }
}

impl std::fmt::Debug for SledStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledStore").field("about", &self.about).finish_non_exhaustive()
    }
}

/// Asks the file system of a directory how much room it has.
fn free_space(store: PathBuf) -> writer::FreeSpace {
    Box::new(move || {
        let room = rustix::fs::statvfs(&store).ok()?;
        Some(room.f_bavail.saturating_mul(room.f_frsize))
    })
}
