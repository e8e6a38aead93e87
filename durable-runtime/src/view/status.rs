//! Where a run stands.

use std::{fmt, str::FromStr, time::SystemTime};

use crate::{
    error::Parked,
    id::{Attempt, RunId, StepNo},
};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It is being replayed, or waits for its turn.
    Opening,
    /// Its code or at least one body of an effect is under way, or waits for a free slot.
    Running,
    /// Only sleeps, and this one is over first.
    Sleeping {
        /// When.
        until: SystemTime,
    },
    /// An attempt at an effect failed, and nothing else is under way.
    Retrying {
        /// The step's path.
        path: String,
        /// The attempt that failed.
        attempt: Attempt,
        /// When the next one is due.
        at: SystemTime,
    },
    /// At least one step is in doubt and is being settled: its reconcile function is asked, or a person's "run again" waits until
    /// no request of the earlier attempt can be under way any more.
    Reconciling {
        /// The step's path.
        path: String,
    },
    /// At least one step is in doubt and waits for a person; nothing else is under way. See [`crate::Runtime::holds`].
    Held {
        /// The steps.
        steps: Vec<StepNo>,
    },
    /// At least one question waits for an answer; nothing else is under way. See [`crate::Runtime::questions`].
    AwaitingAnswer {
        /// The questions.
        tokens: Vec<String>,
    },
    /// It waits for at least one signal; nothing else is under way.
    AwaitingSignal {
        /// The signals' names.
        names: Vec<String>,
    },
    /// It waits for at least one other run that it has spawned.
    AwaitingChild {
        /// Those runs.
        runs: Vec<RunId>,
    },
    /// It waits for nothing but to be cancelled.
    AwaitingCancel,
    /// It is cancelled, and what was begun comes to its end: bodies, children, what a shield encloses, and what undoes.
    Cancelling {
        /// Until when no request of an attempt whose outcome is unknown is waited for any more: nothing is undone before.
        settling_until: Option<SystemTime>,
    },
    /// Its workflow returned an error, and what was done is undone.
    Undoing {
        /// As for [`Status::Cancelling`].
        settling_until: Option<SystemTime>,
    },
    /// The code is over; bodies that nobody waits for are still under way, or children.
    Ending,
    /// The process that had it is gone, or lets go of it: it goes on when a process that has its code opens the store.
    Interrupted,
    /// The store does not take the run's entries; it is tried again.
    StorageTrouble {
        /// Why.
        reason: String,
    },
    /// Its workflow is not in this binary.
    WaitingForCode {
        /// The recorded name.
        workflow: String,
        /// The module it was in.
        module: String,
    },
    /// It is not gone on with.
    Parked(Parked),
    /// It completed.
    Completed,
    /// Its workflow returned an error.
    Failed {
        /// The error in words.
        message: String,
    },
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: String,
    },
}

macro_rules! kinds {
    ($($kind:ident = $word:literal,)*) => {
        /// A [`Status`] without what belongs to it: what runs are filtered by.
        ///
        /// ```
        /// use durable::{Filter, StatusKind};
        /// let held = Filter::unfinished().status(StatusKind::Held);
        /// assert_eq!("waiting for code".parse(), Ok(StatusKind::WaitingForCode));
        /// assert!("asleep".parse::<StatusKind>().unwrap_err().to_string().contains("sleeping"));
        /// # drop(held);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum StatusKind {
            $(#[doc = concat!("[`Status::", stringify!($kind), "`]")] $kind,)*
        }

        impl StatusKind {
            /// Every kind.
            pub const ALL: &'static [StatusKind] = &[$(StatusKind::$kind),*];

            /// As people read it: `sleeping`, `waiting for code`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(StatusKind::$kind => $word,)*
                }
            }
        }
    };
}

kinds! {
    Opening = "opening",
    Running = "running",
    Sleeping = "sleeping",
    Retrying = "retrying",
    Reconciling = "reconciling",
    Held = "held",
    AwaitingAnswer = "awaiting answer",
    AwaitingSignal = "awaiting signal",
    AwaitingChild = "awaiting child",
    AwaitingCancel = "awaiting cancel",
    Cancelling = "cancelling",
    Undoing = "undoing",
    Ending = "ending",
    Interrupted = "interrupted",
    StorageTrouble = "storage trouble",
    WaitingForCode = "waiting for code",
    Parked = "parked",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
}

impl StatusKind {
    /// Whether a run in this state has its terminal entry.
    pub const fn is_terminal(self) -> bool {
        matches!(self, StatusKind::Completed | StatusKind::Failed | StatusKind::Cancelled)
    }
}

impl fmt::Display for StatusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no [`StatusKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusKindError(String);

impl fmt::Display for StatusKindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = StatusKind::ALL.iter().map(|kind| kind.as_str()).collect();
        write!(f, "{:?} is no state of a run; there are: {}", self.0, known.join(", "))
    }
}

impl std::error::Error for StatusKindError {}

impl FromStr for StatusKind {
    type Err = StatusKindError;

    fn from_str(text: &str) -> Result<StatusKind, StatusKindError> {
        let kind = StatusKind::ALL.iter().copied().find(|kind| kind.as_str() == text);
        kind.ok_or_else(|| StatusKindError(text.to_owned()))
    }
}

impl Status {
    /// Whether the run has its terminal entry.
    pub fn is_terminal(&self) -> bool {
        self.kind().is_terminal()
    }

    /// The state alone.
    pub fn kind(&self) -> StatusKind {
        match self {
            Status::Opening => StatusKind::Opening,
            Status::Running => StatusKind::Running,
            Status::Sleeping { .. } => StatusKind::Sleeping,
            Status::Retrying { .. } => StatusKind::Retrying,
            Status::Reconciling { .. } => StatusKind::Reconciling,
            Status::Held { .. } => StatusKind::Held,
            Status::AwaitingAnswer { .. } => StatusKind::AwaitingAnswer,
            Status::AwaitingSignal { .. } => StatusKind::AwaitingSignal,
            Status::AwaitingChild { .. } => StatusKind::AwaitingChild,
            Status::AwaitingCancel => StatusKind::AwaitingCancel,
            Status::Cancelling { .. } => StatusKind::Cancelling,
            Status::Undoing { .. } => StatusKind::Undoing,
            Status::Ending => StatusKind::Ending,
            Status::Interrupted => StatusKind::Interrupted,
            Status::StorageTrouble { .. } => StatusKind::StorageTrouble,
            Status::WaitingForCode { .. } => StatusKind::WaitingForCode,
            Status::Parked(_) => StatusKind::Parked,
            Status::Completed => StatusKind::Completed,
            Status::Failed { .. } => StatusKind::Failed,
            Status::Cancelled { .. } => StatusKind::Cancelled,
        }
    }

    /// The state in words: [`StatusKind::as_str`].
    pub fn as_str(&self) -> &'static str {
        self.kind().as_str()
    }

    /// What a person can do now, if anything is for a person to do.
    pub fn next_action(&self) -> Option<String> {
        match self {
            Status::Held { .. } => Some("find out what the held step did, and call Runtime::resolve".into()),
            Status::AwaitingAnswer { tokens } => {
                let first = tokens.first().map(String::as_str).unwrap_or_default();
                Some(format!("answer the question {first} with Runtime::answer; Runtime::questions shows all of it"))
            }
            Status::AwaitingSignal { names } => {
                let first = names.first().map(String::as_str).unwrap_or_default();
                Some(format!("send the signal {first:?} with Runtime::signal when it is time"))
            }
            Status::AwaitingCancel => Some("cancel it with Runtime::cancel when it is time".into()),
            Status::Interrupted => Some("open the store with a process that has its code".into()),
            Status::StorageTrouble { .. } => {
                Some("make the store writable again: free space, restart the server".into())
            }
            Status::WaitingForCode { workflow, .. } => {
                Some(format!("open the store with a binary that has {workflow}"))
            }
            Status::Parked(parked) => Some(parked.next.clone()),
            Status::Opening
            | Status::Running
            | Status::Sleeping { .. }
            | Status::Retrying { .. }
            | Status::Reconciling { .. }
            | Status::AwaitingChild { .. }
            | Status::Cancelling { .. }
            | Status::Undoing { .. }
            | Status::Ending
            | Status::Completed
            | Status::Failed { .. }
            | Status::Cancelled { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_one_state() {
        for kind in StatusKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
            assert_eq!(kind.to_string(), kind.as_str());
        }
        assert!("".parse::<StatusKind>().is_err());
        assert!("Running".parse::<StatusKind>().is_err());
    }
}
