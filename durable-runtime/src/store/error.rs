//! Why a store did not do what it was asked.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::id::{RunId, Seq};

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
    /// The caller demanded [`Durability::Full`](super::Durability::Full) and this place does not give it.
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

impl StoreError {
    /// Whether it may be over by itself, so that asking again is of use.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, StoreError::Refused { .. } | StoreError::Unknown { .. } | StoreError::Io { .. })
    }
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
