//! The ready-made error of workflows and effects, and what the engine itself finds.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::value::Value;

/// What bodies of workflows and effects return if they have no error type of their own.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The ready-made error: plain data that is recorded and comes back the same on every replay.
///
/// `?` turns every [`std::error::Error`] and every [`anyhow::Error`] into it. What is kept is text: the message and its
/// chain of causes, never a backtrace, a thread's name or an address. A [`Fault`] stays one.
///
/// It is not itself a `std::error::Error`: then `?` could not tell it from what it converts.
///
/// ```
/// # use durable_runtime::{Failure, Result};
/// fn cents(text: &str) -> Result<u32> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(cents("ten").unwrap_err().message(), "invalid digit found in string");
///
/// let failure = Failure::new("card declined").with_kind("declined").with_value(&["4000", "0002"]);
/// assert_eq!(failure.to_string(), "card declined");
/// assert_eq!(failure.kind(), Some("declined"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    message: String,
    /// From the nearest cause to the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Never null: that would come back as `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<Fault>,
}

impl Failure {
    /// A failure with a message and nothing else.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), causes: Vec::new(), kind: None, value: None, fault: None }
    }

    /// Keeps the text of an error that `?` does not take, such as a `Box<dyn Error>`.
    ///
    /// ```
    /// # use durable_runtime::Failure;
    /// let boxed: Box<dyn std::error::Error> = "no route".into();
    /// assert_eq!(Failure::from_error(&*boxed).message(), "no route");
    /// ```
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Failure {
        Failure::from_chain(std::iter::successors(Some(error), |error| error.source()))
    }

    fn from_chain<'a>(chain: impl Iterator<Item = &'a (dyn std::error::Error + 'static)>) -> Failure {
        let mut failure = Failure::new("");
        for (n, error) in chain.enumerate() {
            match n {
                0 => failure.message = error.to_string(),
                _ => failure.causes.push(error.to_string()),
            }
            if failure.fault.is_none() {
                failure.fault = error.downcast_ref().cloned();
            }
            if error.is::<Elapsed>() {
                failure.kind = Some("elapsed".to_owned());
            }
        }
        failure
    }

    /// Sets the kind: a word for code to match on, free to choose.
    pub fn with_kind(mut self, kind: impl Into<String>) -> Failure {
        self.kind = Some(kind.into());
        self
    }

    /// Adds data as JSON, for the code that handles the failure and for people who read it. Where JSON cannot say a value
    /// it is put in words, as in [`Value::to_json`]; what encodes as null is as good as no value.
    pub fn with_value<T: Serialize + ?Sized>(mut self, value: &T) -> Failure {
        let json = match Value::encode(value) {
            Ok(value) => value.to_json(),
            Err(error) => serde_json::json!({ "$unrecorded": error.to_string() }),
        };
        self.value = Some(json).filter(|json| !json.is_null());
        self
    }

    /// What happened, in words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Why, from the nearest cause to the root.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// The kind that was set, else that of the fault; `elapsed` of an [`Elapsed`].
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref().or(self.fault.as_ref().map(Fault::kind))
    }

    /// The data that was added.
    pub fn value(&self) -> Option<&serde_json::Value> {
        self.value.as_ref()
    }

    /// What the engine found, if it was the engine that failed the step.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

impl fmt::Display for Failure {
    /// The message and its causes, with colons between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        let error = error.into();
        let mut failure = Failure::from_chain(error.chain());
        // A fault given as context is no link of the chain of its own type.
        if failure.fault.is_none() {
            failure.fault = error.downcast_ref().cloned();
        }
        failure
    }
}

/// What the engine found, where the body itself returned nothing.
///
/// It becomes the effect's error by `E: From<Fault>`; where the error type takes none, the run is parked with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// An attempt did not end within the effect's timeout. Whether it happened is unknown: it may still be running.
    TimedOut {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// The timeout in milliseconds.
        timeout_ms: u64,
    },
    /// All attempts failed or were cut off.
    AttemptsUsedUp {
        /// The effect's name.
        effect: String,
        /// Bodies begun.
        attempts: u32,
        /// How the last attempt ended, in words.
        last: String,
        /// Whether the last attempt ended by the death of the process; then whether it happened is unknown.
        crashed: bool,
    },
    /// The body panicked.
    Panicked {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// The panic's message.
        message: String,
    },
    /// An argument or the result cannot be recorded. Of an argument: the body never ran. Of the result: it ran.
    NotRecordable {
        /// The effect's name.
        effect: String,
        /// Which field, and why not.
        reason: String,
        /// Encoded size in bytes, if that is the reason.
        size: Option<u64>,
        /// The limit in bytes, if the size is the reason.
        limit: Option<u64>,
    },
    /// Whether the body did what it does is unknown.
    InDoubt {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// Why it is unknown.
        reason: String,
    },
    /// The step was in doubt, and a person said that it failed.
    ResolvedAsFailed {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// What the person said.
        reason: String,
    },
}

impl Fault {
    /// The variant in one word, as [`Failure::kind`] says it: `timed_out`, `attempts_used_up`, `panicked`,
    /// `not_recordable`, `in_doubt`, `resolved_as_failed`.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::TimedOut { .. } => "timed_out",
            Fault::AttemptsUsedUp { .. } => "attempts_used_up",
            Fault::Panicked { .. } => "panicked",
            Fault::NotRecordable { .. } => "not_recordable",
            Fault::InDoubt { .. } => "in_doubt",
            Fault::ResolvedAsFailed { .. } => "resolved_as_failed",
        }
    }

    /// The name of the effect it is about.
    pub fn effect(&self) -> &str {
        match self {
            Fault::TimedOut { effect, .. }
            | Fault::AttemptsUsedUp { effect, .. }
            | Fault::Panicked { effect, .. }
            | Fault::NotRecordable { effect, .. }
            | Fault::InDoubt { effect, .. }
            | Fault::ResolvedAsFailed { effect, .. } => effect,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TimedOut { effect, attempt, timeout_ms } => {
                let timeout = Duration::from_millis(*timeout_ms);
                write!(
                    f,
                    "attempt {attempt} of `{effect}` did not end within {timeout:?}; whether it happened is unknown"
                )
            }
            Fault::AttemptsUsedUp { effect, attempts, last, crashed } => {
                let how = if *crashed { "was cut off by a crash" } else { "failed" };
                let times = if *attempts == 1 { "attempt is" } else { "attempts are" };
                write!(f, "{attempts} {times} used up for `{effect}`; the last {how}: {last}")
            }
            Fault::Panicked { effect, attempt, message } => {
                write!(f, "attempt {attempt} of `{effect}` panicked: {message}")
            }
            Fault::NotRecordable { effect, reason, .. } => write!(f, "`{effect}` is not recordable: {reason}"),
            Fault::InDoubt { effect, attempt, reason } => {
                write!(f, "whether attempt {attempt} of `{effect}` happened is unknown: {reason}")
            }
            Fault::ResolvedAsFailed { effect, attempt, reason } => {
                write!(f, "attempt {attempt} of `{effect}` was resolved as failed: {reason}")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// What a reconcile function found out about a step in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled<T> {
    /// It happened, and this is what the effect would have returned as its `Ok`.
    Happened(T),
    /// It did not happen and no request of the earlier attempt can make it happen any more: the body may run.
    CannotHappen,
    /// Not known now: ask again later.
    Unknown,
}

/// The time given to `durable::timeout` was over before the step was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elapsed {
    limit_ms: u64,
}

impl Elapsed {
    /// Of a step that was given `limit_ms` milliseconds.
    pub const fn new(limit_ms: u64) -> Elapsed {
        Elapsed { limit_ms }
    }

    /// The time that was given, in milliseconds.
    pub const fn limit_ms(self) -> u64 {
        self.limit_ms
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not ready within {:?}", Duration::from_millis(self.limit_ms))
    }
}

impl std::error::Error for Elapsed {}
