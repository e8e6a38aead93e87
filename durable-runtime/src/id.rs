//! Names of things: run ids, store ids, and the small numbers of the log.

use std::{borrow::Borrow, fmt, sync::Arc};

/// Longest run id, in bytes of UTF-8.
pub const RUN_ID_BYTES_MAX: usize = 512;

/// The name of a run: chosen by its starter, non-empty UTF-8 of at most 512 bytes, any characters.
///
/// Two ids are the same run only if they are the same bytes: nothing is trimmed, folded or normalised.
///
/// ```
/// use durable::RunId;
/// assert!(RunId::new("order 17/\u{1F600}").is_ok());
/// assert!(RunId::new("").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Makes a run id.
    ///
    /// # Errors
    ///
    /// [`RunIdError`] if `id` is empty or longer than 512 bytes.
    pub fn new(id: impl AsRef<str>) -> Result<RunId, RunIdError> {
        let id = id.as_ref();
        match id.len() {
            0 => Err(RunIdError::Empty),
            n if n > RUN_ID_BYTES_MAX => Err(RunIdError::TooLong { bytes: n }),
            _ => Ok(RunId(id.into())),
        }
    }

    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// So that what a [`crate::Hold`] or a [`crate::RunInfo`] names can be given back.
impl AsRef<str> for RunId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for RunId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Writes the id with control and direction-changing characters escaped, so that an id cannot forge a line of a log.
impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control()
                || matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
            {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                fmt::Write::write_char(f, c)?;
            }
        }
        Ok(())
    }
}

/// Why a text is no run id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunIdError {
    /// The text is empty.
    Empty,
    /// The text is longer than 512 bytes.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl fmt::Display for RunIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunIdError::Empty => f.write_str("a run id is empty; it must have 1 to 512 bytes"),
            RunIdError::TooLong { bytes } => {
                write!(f, "a run id of {bytes} bytes is too long; it must have 1 to 512 bytes")
            }
        }
    }
}

impl std::error::Error for RunIdError {}

/// The name of a store: 128 random bits, made when the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub u128);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The place of an entry in its run's log, from 0, without gaps.
    Seq(u64)
}
number! {
    /// The number of a step within a run's log, in the order in which the code asked, from 0.
    StepNo(u32)
}
number! {
    /// The number of an attempt at an effect, from 1; crashes count.
    Attempt(u32)
}
number! {
    /// Which log of a run: a run that goes on in a fresh log begins the next generation.
    Generation(u32)
}
number! {
    /// Which claim of a run: every claim is a later epoch, and a write under an earlier one is refused.
    Epoch(u64)
}

impl Seq {
    /// The place `n` entries later.
    #[must_use]
    pub fn plus(self, n: u64) -> Seq {
        Seq(self.0 + n)
    }
}
