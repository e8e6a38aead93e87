//! The trait that a store implements, and what goes in and out of it.
//!
//! A store keeps bytes by run, generation and place in the log. It never knows what a workflow is.

use std::{fmt, path::PathBuf, sync::Arc};

use bytes::Bytes;

use crate::id::{Epoch, Generation, RunId, Seq, StoreId};

pub mod memory;
pub mod sled;

/// A durable log of many runs.
///
/// Everything that changes the store goes through [`Store::submit`], in the order of the calls. A store applies each
/// [`Write`] whole or not at all, and calls `done` only when it is as durable as [`About::durability`] says; it may
/// make many writes durable at once.
///
/// Reads see what has been applied, which may be more than is durable: whoever shows it to somebody waits for `done`
/// first. They may block the thread on the disk.
pub trait Store: Send + Sync + 'static {
    /// What store this is.
    fn about(&self) -> &About;

    /// Queues a write and returns at once; `done` is called exactly once, from any thread, and must not block.
    fn submit(&self, write: Write, done: Done);

    /// Reads records of a run's log, from the record that holds `from` on, until about `bytes_max` bytes are read (at
    /// least one record, if
    /// there is one). Nothing at or after `from`: an empty list.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if a record is missing or not what was written.
    fn read(&self, run: &RunId, generation: Generation, from: Seq, bytes_max: usize)
    -> Result<Vec<Record>, StoreError>;

    /// The rows in the mailbox of a run, oldest first.
    ///
    /// # Errors
    ///
    /// Those of the medium.
    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError>;

    /// What is known of one run beside its log; `None` if there is no such run.
    ///
    /// # Errors
    ///
    /// Those of the medium.
    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Up to `most` runs with ids after `after`, in the order of their ids' bytes, of one class or of both (`live` =
    /// `None`).
    ///
    /// # Errors
    ///
    /// Those of the medium.
    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError>;

    /// Waits until all that was submitted is done, and gives the medium free: it can be opened again when this returns.
    /// Writes submitted afterwards fail with [`StoreError::Closed`].
    ///
    /// # Errors
    ///
    /// Those of the medium.
    fn close(&self) -> Result<(), StoreError>;
}

/// A store that somebody else holds too.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn about(&self) -> &About {
        (**self).about()
    }

    fn submit(&self, write: Write, done: Done) {
        (**self).submit(write, done);
    }

    fn read(
        &self,
        run: &RunId,
        generation: Generation,
        from: Seq,
        bytes_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        (**self).read(run, generation, from, bytes_max)
    }

    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError> {
        (**self).rows(run)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        (**self).run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        (**self).runs(live, after, most)
    }

    fn close(&self) -> Result<(), StoreError> {
        (**self).close()
    }
}

/// Called with what became of a [`Write`].
pub type Done = Box<dyn FnOnce(Result<Written, StoreError>) + Send>;

/// What a store says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// Its name, which idempotency keys begin with.
    pub id: StoreId,
    /// What its acknowledgement is worth.
    pub durability: Durability,
    /// Where it is, for messages: a directory, or `memory`.
    pub place: String,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The death of the process and the loss of power, as far as disk and file system keep their word.
    Full,
    /// The death of the process. The loss of power: probably, see [`About::durability`]'s store for the reason.
    BestEffort,
    /// Nothing: it is gone with the process.
    Memory,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Full => "full",
            Durability::BestEffort => "best effort",
            Durability::Memory => "memory",
        })
    }
}

/// One change.
#[derive(Clone, Debug)]
pub enum Write {
    /// Makes a run with the first entries of its first log: [`Written::Created`]. If the run is there already nothing
    /// changes: [`Written::Exists`].
    Create {
        /// The run.
        run: RunId,
        /// Number of entries, at least 1.
        count: u32,
        /// The entries' frames, one after the other.
        frames: Bytes,
        /// The derived index.
        head: Head,
    },
    /// Takes the run for this process: [`Written::Claimed`] with an epoch later than any before, also than this
    /// process's own. Earlier epochs can
    /// write no more.
    Claim {
        /// The run.
        run: RunId,
    },
    /// Gives a claimed run back: [`Written::Done`], also if the epoch is not the run's any more.
    Release {
        /// The run.
        run: RunId,
        /// The claim's epoch.
        epoch: Epoch,
    },
    /// Appends entries under a claim, with acts in the same transaction: [`Written::Done`].
    Append(Batch),
    /// Puts a row into the mailbox of a run that may not exist yet: [`Written::Done`], also if a row with this id was
    /// ever put before (then nothing changes).
    Put {
        /// The run.
        run: RunId,
        /// The row.
        row: Row,
    },
    /// Sets or removes what is kept of a run beside its log (why it is parked, how often its replay killed the
    /// process):
    /// [`Written::Done`]. Needs no claim, but a run: [`StoreError::NoSuchRun`].
    Aside {
        /// The run.
        run: RunId,
        /// The new text, or none.
        value: Option<Bytes>,
    },
}

/// Entries of one run, and what must become true with them.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The run.
    pub run: RunId,
    /// The claim's epoch; another epoch: [`StoreError::Fenced`].
    pub epoch: Epoch,
    /// The log.
    pub generation: Generation,
    /// The log's length before the batch; another length or generation: [`StoreError::Conflict`]. The generation after
    /// the
    /// run's newest, at 0, begins the next log. Not compared if `count` is 0.
    pub at: Seq,
    /// Number of entries; may be 0 if there are acts.
    pub count: u32,
    /// The entries' frames, one after the other.
    pub frames: Bytes,
    /// What else becomes true in the same transaction.
    pub acts: Vec<Act>,
    /// The derived index, if it changed.
    pub head: Option<Head>,
}

/// What a batch carries beside entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// A row for a mailbox, as [`Write::Put`].
    Put {
        /// Whose mailbox.
        to: RunId,
        /// The row.
        row: Row,
    },
    /// Removes a row from the run's own mailbox. Its id stays known. Removing what is not there changes nothing.
    Take {
        /// The row's id.
        row: u128,
    },
}

/// A derived index of a run, written with the entries that change it, rebuildable from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The run's newest log.
    pub generation: Generation,
    /// False once the log has its terminal entry; the batch that says so gives a claimed run back, as
    /// [`Write::Release`].
    pub live: bool,
    /// What the runtime lists runs by; the store does not look inside.
    pub bytes: Bytes,
}

/// What a store knows of a run beside its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The derived index.
    pub head: Head,
    /// What was kept aside, see [`Write::Aside`].
    pub aside: Option<Bytes>,
}

/// One row of a mailbox: a fact for the run, put by whoever knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Unique per run; made so that a repeat of the same fact has the same id.
    pub id: u128,
    /// What the bytes are, for the runtime.
    pub kind: u8,
    /// The row itself.
    pub bytes: Bytes,
}

/// Entries of a log that were written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Place of the first one.
    pub first: Seq,
    /// How many.
    pub count: u32,
    /// Their frames, one after the other.
    pub frames: Bytes,
}

/// What became of a write that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is done.
    Done,
    /// The run is new.
    Created,
    /// The run was there before.
    Exists,
    /// The run is claimed.
    Claimed(Epoch),
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The epoch is not the run's: somebody else has claimed it since.
    Fenced,
    /// The log is not as long as the batch expects.
    Conflict,
    /// There is no such run to append to or to claim.
    NoSuchRun,
    /// Nothing was written, and the same write may succeed later: the disk is full, the server is down.
    Refused {
        /// Why.
        reason: Arc<str>,
    },
    /// It may or may not have been written; reading back tells.
    Unknown {
        /// Why.
        reason: Arc<str>,
    },
    /// Nothing was written, and this very write never will be.
    Rejected {
        /// Why.
        reason: Arc<str>,
    },
    /// The store cannot write any more until it is opened again. Whether this write was written is not known, unless it
    /// was
    /// submitted after another had failed like this.
    Poisoned {
        /// What happened.
        reason: Arc<str>,
    },
    /// The store was closed.
    Closed,
    /// Another process, or this one, has the store open.
    InUse {
        /// Where.
        path: PathBuf,
        /// The holder's process id, if it left one.
        pid: Option<u32>,
    },
    /// What was written is not there, or is not what was written.
    Damaged {
        /// Where.
        place: String,
        /// The run concerned, if it is one run.
        run: Option<RunId>,
        /// The place in its log, if it is one place.
        seq: Option<Seq>,
        /// What is wrong.
        what: Arc<str>,
    },
    /// The directory is no store, or one of a later version of this library.
    NotAStore {
        /// Where.
        path: PathBuf,
        /// What was found.
        what: Arc<str>,
    },
    /// The caller demanded [`Durability::Full`] and this place does not give it.
    NotDurable {
        /// Where.
        path: PathBuf,
        /// Why not.
        reason: Arc<str>,
    },
    /// The medium failed.
    Io {
        /// What was tried.
        doing: Arc<str>,
        /// What it said.
        error: Arc<str>,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Fenced => f.write_str("the run has been claimed by somebody else"),
            StoreError::Conflict => f.write_str("the log is not as long as expected"),
            StoreError::NoSuchRun => f.write_str("there is no such run"),
            StoreError::Refused { reason } => write!(f, "the store refuses for now: {reason}"),
            StoreError::Unknown { reason } => write!(f, "the store may or may not have written: {reason}"),
            StoreError::Rejected { reason } => write!(f, "the store will never take this write: {reason}"),
            StoreError::Poisoned { reason } => write!(f, "the store must be opened again: {reason}"),
            StoreError::Closed => f.write_str("the store is closed"),
            StoreError::InUse { path, pid: Some(pid) } => {
                write!(f, "the store {} is in use by pid {pid}", path.display())?;
                match *pid == std::process::id() {
                    true => f.write_str(
                        ", which is this process: it holds a Runtime or a Run of the store; shut that runtime down",
                    ),
                    false => f.write_str("; end that process, or use another store"),
                }
            }
            StoreError::InUse { path, pid: None } => write!(f, "the store {} is in use", path.display()),
            StoreError::Damaged { place, run, seq, what } => {
                write!(f, "the store {place} is damaged")?;
                if let Some(run) = run {
                    write!(f, " at run {run}")?;
                }
                if let Some(seq) = seq {
                    write!(f, ", seq {seq}")?;
                }
                write!(f, ": {what}")
            }
            StoreError::NotAStore { path, what } => write!(f, "{} is no store: {what}", path.display()),
            StoreError::NotDurable { path, reason } => {
                write!(f, "{} cannot make writes survive a loss of power: {reason}", path.display())
            }
            StoreError::Io { doing, error } => write!(f, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Refuses a write that says one thing about its entries and holds another.
fn check_entries(count: u32, least: u32, frames: &Bytes) -> Result<(), StoreError> {
    if count < least || (count == 0) != frames.is_empty() {
        let reason = format!("{count} entries in {} bytes", frames.len());
        return Err(StoreError::Rejected { reason: reason.into() });
    }
    Ok(())
}

/// Whether entries of `generation` at `at` follow a run's newest log, given as its generation and length: they go on
/// with it,
/// or begin the next.
fn continues(end: (Generation, Seq), generation: Generation, at: Seq) -> bool {
    end == (generation, at) || (end.0.0.checked_add(1) == Some(generation.0) && at == Seq(0))
}
