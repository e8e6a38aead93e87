//! The trait that a store implements, and what goes in and out of it.
//!
//! A store keeps bytes by run, generation and place in the log. It never knows what a workflow is.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::id::{Epoch, Generation, RunId, Seq, StoreId};

mod check;
mod error;
pub mod memory;
pub mod sled;

pub use error::StoreError;

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
    /// least one record, if there is one). Nothing at or after `from`: an empty list.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if a record is missing or not what was written.
    fn read(&self, run: &RunId, generation: Generation, from: Seq, bytes_max: usize)
    -> Result<Vec<Record>, StoreError>;

    /// Up to `most` rows of a run's mailbox that were put after row number `after`, oldest first, with their numbers.
    ///
    /// # Errors
    ///
    /// Those of the medium.
    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError>;

    /// The values that a run has published, the last one of each name, in the order of the names' bytes.
    ///
    /// # Errors
    ///
    /// Those of the medium.
    fn published(&self, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError>;

    /// All that the store holds of a run, to be put into another store by [`Write::Restore`]; `None` if there is no
    /// such run.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    fn dump(&self, run: &RunId) -> Result<Option<Dump>, StoreError>;

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

    fn rows(&self, run: &RunId, after: u64, most: usize) -> Result<Vec<(u64, Row)>, StoreError> {
        (**self).rows(run, after, most)
    }

    fn published(&self, run: &RunId) -> Result<Vec<(Arc<str>, Published)>, StoreError> {
        (**self).published(run)
    }

    fn dump(&self, run: &RunId) -> Result<Option<Dump>, StoreError> {
        (**self).dump(run)
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
    /// Makes a run with the first entries of its first log, and takes it for this process: [`Written::Made`]. If the run is
    /// there already nothing changes: [`Written::Exists`].
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
    /// process's own. Earlier epochs can write no more. What the run waited for ([`Write::Release`]) is forgotten.
    Claim {
        /// The run.
        run: RunId,
        /// What is kept beside the log from now on, see [`Write::Aside`].
        aside: Option<Bytes>,
    },
    /// Gives a claimed run back: [`Written::Done`], also if the epoch is not the run's any more; then nothing changes.
    Release {
        /// The run.
        run: RunId,
        /// The claim's epoch.
        epoch: Epoch,
        /// What the run waits for; `None`: it is to go on as soon as somebody can.
        wait: Option<Wait>,
    },
    /// Appends entries under a claim, with acts in the same transaction: [`Written::Done`].
    Append(Batch),
    /// Puts a row into the mailbox of a run: [`Written::Done`]; [`Written::Exists`] if a row with this id was ever put
    /// before, then nothing changes.
    Put {
        /// The run.
        run: RunId,
        /// The row.
        row: Row,
        /// Which runs take it.
        to: Addressee,
    },
    /// Sets or removes what is kept of a run beside its log (why it is parked, how often its replay killed the
    /// process): [`Written::Done`]. Needs no claim, but a run: [`StoreError::NoSuchRun`].
    Aside {
        /// The run.
        run: RunId,
        /// The new text, or none.
        value: Option<Bytes>,
    },
    /// Removes a run that has ended, with its logs, its mailbox and what it published: [`Written::Done`], also if there
    /// is no such run. One that has not ended stays: [`Written::Unfinished`]. The id is free from then on, as if it had
    /// never been used. Rows for a run that does not exist yet stay.
    Remove {
        /// The run.
        run: RunId,
    },
    /// Makes a run as it was in another store: [`Written::Created`]. If the run is there already nothing changes:
    /// [`Written::Exists`]. Rows that were put for it before follow those of the dump, each id once.
    Restore {
        /// The run.
        run: RunId,
        /// What the other store held.
        dump: Box<Dump>,
    },
    /// Changes nothing: [`Written::Done`] once all that was submitted before is durable.
    Barrier,
}

/// Which runs take a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Addressee {
    /// Any, also one that does not exist yet or has ended.
    Anyone,
    /// Only one that exists, else [`StoreError::NoSuchRun`], and has not ended, else [`Written::Ended`]. A row whose id
    /// was put before is answered with [`Written::Exists`] in either case.
    Unfinished,
}

/// What a run that is in no process's memory waits for: it is to be claimed when `due` has come, or when its mailbox has
/// got a row with a number above `seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// On the wall clock, in milliseconds since 1970; `None`: nothing but a row wakes it.
    pub due: Option<u64>,
    /// The number of the last row that was looked at.
    pub seen: u64,
    /// A digest of the code that the run was replayed with: other code may say something else about it.
    pub code: u64,
}

/// A value that a run has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// In which log.
    pub generation: Generation,
    /// The log's length with the batch that published it: durable when that is.
    pub len: Seq,
    /// The value; the store does not look inside.
    pub value: Bytes,
}

/// All that a store holds of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// See [`RunRecord`].
    pub record: RunRecord,
    /// See [`Act::Create`].
    pub owner: u128,
    /// Its logs, oldest first.
    pub logs: Vec<(Generation, Vec<Record>)>,
    /// Its mailbox.
    pub rows: Vec<(u64, Row)>,
    /// The ids of the rows that were taken from it, ascending.
    pub taken: Vec<u128>,
    /// What it published, by name.
    pub published: Vec<(Arc<str>, Published)>,
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
    /// The log's length before the batch; another length, or a generation that is not the run's newest:
    /// [`StoreError::Conflict`]. Not compared if `count` is 0 and no act is [`Act::Next`].
    pub at: Seq,
    /// Number of entries; may be 0 if there are acts.
    pub count: u32,
    /// The entries' frames, one after the other.
    pub frames: Bytes,
    /// What else becomes true in the same transaction, after the entries and one after the other.
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
    /// Makes another run, as [`Write::Create`]. If it is there already nothing changes, but for `taken`, which is put into
    /// the mailbox of the run that the batch is about unless the other one has the same owner.
    Create {
        /// The run.
        run: RunId,
        /// Number of entries, at least 1.
        count: u32,
        /// The entries' frames, one after the other.
        frames: Bytes,
        /// The derived index.
        head: Head,
        /// By whom; a run made by [`Write::Create`] has owner 0.
        owner: u128,
        /// Says that the id is taken.
        taken: Row,
    },
    /// Begins the run's next log, of the generation after the batch's, with these entries. The batch's head must be that
    /// log's. The claim stays. Once per batch.
    Next {
        /// Number of entries, at least 1.
        count: u32,
        /// The entries' frames, one after the other.
        frames: Bytes,
    },
    /// Publishes a value of the run under a name, in place of the one before. After [`Act::Next`] in the same batch it is
    /// published in the next log.
    Publish {
        /// The name.
        name: Arc<str>,
        /// The value.
        value: Bytes,
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
    /// What it waits for, if it was released so and not claimed since.
    pub wait: Option<Wait>,
    /// The number of the last row ever put into its mailbox; rows are numbered from 1.
    pub version: u64,
}

impl RunRecord {
    /// Whether nothing can happen to the run before `wait.due`: it is in no memory and has no unseen row.
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some_and(|wait| wait.seen >= self.version)
    }
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
    /// The run is new, and claimed.
    Made {
        /// As of [`Written::Claimed`].
        epoch: Epoch,
        /// How many rows were put for it before, see [`RunRecord::version`].
        version: u64,
    },
    /// The run is new here.
    Created,
    /// The run, or the row, was there before.
    Exists,
    /// The run has ended: the row was not put.
    Ended,
    /// The run has not ended: it was not removed.
    Unfinished,
    /// The run is claimed.
    Claimed(Epoch),
}
