//! How the command ends.

use std::{fmt, io, process::ExitCode};

use durable::{StoreError, store::sled::LOSS};
use durable_runtime::control::{Refusal, Sort};

/// The exit codes, for `--help` too.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  no: something was found (doctor), or what was asked does not fit the state of things
     (answered before, not in doubt, not parked, ended otherwise than asked)
  2  the command line, an id or a value makes no sense
  3  there is no such run, question or code
  4  the store cannot be used: in use without a control socket, damaged, not there
  5  anything else";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    No = 1,
    Usage = 2,
    NotFound = 3,
    Store = 4,
    Other = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why the command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) exit: Exit,
    /// The stable code of the library's error.
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    /// Whoever read the output has gone: nobody is to be told.
    pub(crate) silent: bool,
    /// The process that held the store has gone in the middle of an answer.
    pub(crate) gone: bool,
    /// The store does not open because its newest writes may be missing: it opens without them.
    pub(crate) loss: bool,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failed {
        Failed { exit, code: None, message: message.into(), silent: false, gone: false, loss: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failed {
        Failed::new(Exit::Usage, message)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failed {}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        let exit = match refusal.sort {
            Sort::Invalid => Exit::Usage,
            Sort::NotFound => Exit::NotFound,
            Sort::No => Exit::No,
            Sort::Store => Exit::Store,
            _ => Exit::Other,
        };
        Failed { exit, code: refusal.code, message: refusal.message, silent: false, gone: false, loss: false }
    }
}

impl From<durable::Error> for Failed {
    fn from(error: durable::Error) -> Failed {
        let loss = matches!(error.store(), Some(StoreError::Damaged { what, .. }) if what.starts_with(LOSS));
        Failed { loss, ..Refusal::from(error).into() }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        match error.kind() {
            // As `durable log RUN | head` ends: all that was wanted was read.
            io::ErrorKind::BrokenPipe => Failed { silent: true, ..Failed::new(Exit::Done, "") },
            _ => Failed::new(Exit::Other, error.to_string()),
        }
    }
}
