//! The one public error, with a stable code for each kind. `docs/errors.md` says the cause and the remedy of each.

use std::{fmt, time::SystemTime};

use crate::{
    id::{Attempt, Generation, RunId, RunIdError, StepNo},
    script::Divergence,
    store::StoreError,
    value::{Value, ValueError},
};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// A stable code: `DUR-` and four digits. What each means and what to do: `docs/errors.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];
        }
    };
}

codes! {
    /// A text is no run id.
    InvalidRunId = 1,
    /// There is no such run.
    RunNotFound = 2,
    /// The run exists with other arguments.
    OtherArguments = 3,
    /// The run exists with another workflow.
    OtherWorkflow = 4,
    /// An argument, or a value that is sent or given, cannot be recorded.
    ArgumentNotRecordable = 5,
    /// A value is longer than the limit.
    TooLarge = 6,
    /// The run was cancelled.
    RunCancelled = 7,
    /// The run has ended: it takes no message.
    RunEnded = 8,
    /// The run has not ended.
    RunUnfinished = 9,
    /// The workflow returned an error.
    RunFailed = 10,
    /// Parked: the code and the log disagree.
    Diverged = 11,
    /// Parked: the workflow's code panicked.
    Panicked = 12,
    /// Parked: a recorded value does not decode.
    Undecodable = 13,
    /// The workflow is not in this binary.
    WaitingForCode = 14,
    /// Parked: the process died again and again while the run was replayed.
    DiedInReplay = 15,
    /// Parked: the workflow awaited what is no step.
    ForeignAwait = 16,
    /// Parked: a fault came up, and the effect's error type takes none.
    FaultNotTaken = 17,
    /// Parked: the workflow's result cannot be recorded.
    ResultNotRecordable = 18,
    /// Parked: the log is damaged.
    LogDamaged = 19,
    /// Parked: the store will never take a record of the run.
    RecordRejected = 20,
    /// Parked: a value that is to be sent, published, asked about or handed on cannot be recorded.
    ValueNotRecordable = 21,
    /// Parked: the run waits for nothing that could ever come.
    WaitsForNothing = 22,
    /// Parked: what is to be undone needs an effect that is not in this binary.
    EffectMissing = 23,
    /// The run has no log of that number.
    LogNotFound = 24,
    /// Another process has the store open.
    StoreInUse = 30,
    /// The store is damaged.
    StoreDamaged = 31,
    /// The directory is no store.
    NotAStore = 32,
    /// The place cannot make writes survive a loss of power.
    NotDurable = 33,
    /// The store failed.
    StorageFailed = 34,
    /// The runtime was shut down.
    Closed = 35,
    /// The runtime only observes: no run goes on in it.
    Observing = 36,
    /// Effects need resources that were not given.
    MissingResources = 40,
    /// Two workflows, or two effects, could be taken for each other.
    NameTwice = 41,
    /// A resolution is about an attempt that is not the current one.
    StaleAttempt = 50,
    /// The step is not in doubt.
    NotInDoubt = 51,
    /// The value given does not fit the effect's type.
    ValueDoesNotFit = 52,
    /// The run is not parked.
    NotParked = 53,
    /// What a run returned, or has published, was asked for as another type.
    OtherType = 54,
    /// The run is not cancelled yet; the request stands.
    NotCancelledYet = 55,
    /// There is no such question.
    QuestionNotFound = 60,
    /// The run does not wait for an answer any more.
    QuestionClosed = 61,
    /// Somebody else has answered before.
    QuestionAnswered = 62,
    /// Nobody can answer any more: the time is over.
    QuestionExpired = 63,
    /// Who answers is none of those who may.
    MayNotAnswer = 64,
    /// The answer is none that the question takes.
    AnswerDoesNotFit = 65,
    /// The message is none that the run, which waits for one of that name, takes.
    SignalDoesNotFit = 66,
}

impl Code {
    pub(crate) fn from_number(number: u16) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| *code as u16 == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DUR-{:04}", *self as u16)
    }
}

/// Everything that can go wrong with a runtime and its runs. What a workflow or an effect returns is not here: that is data.
pub struct Error(Box<Kind>);

/// Why a run is not gone on with. Its log is untouched: nothing is lost, and it can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parked {
    /// The kind of reason.
    pub code: Code,
    /// The reason: for a divergence both sides, with file and line.
    pub why: String,
    /// The one next action.
    pub next: String,
    /// Since when.
    pub since: SystemTime,
}

#[derive(Debug)]
pub(crate) enum Kind {
    RunId(RunIdError),
    RunNotFound(RunId),
    OtherArguments { run: RunId, workflow: String, recorded: String, given: String },
    OtherWorkflow { run: RunId, recorded: String, given: String },
    Argument { workflow: String, error: ValueError },
    NotRecordable { what: String, error: ValueError },
    TooLarge { what: String, size: usize, limit: usize },
    RunFailed { run: RunId, message: String, value: Value },
    RunCancelled { run: RunId, reason: String, by: String },
    RunEnded { run: RunId, state: String },
    RunUnfinished { run: RunId, state: String },
    Parked { run: RunId, parked: Parked },
    WaitingForCode { run: RunId, workflow: String, module: String },
    Store(StoreError),
    Closed,
    MissingResources(Vec<String>),
    NameTwice { name: String, first: String, second: String },
    StaleAttempt { run: RunId, step: StepNo, given: Attempt, current: Attempt },
    NotInDoubt { run: RunId, step: StepNo, state: String },
    ValueDoesNotFit { run: RunId, effect: String, error: ValueError },
    NotParked { run: RunId, state: String },
    OtherType { run: RunId, error: ValueError },
    PublishedType { run: RunId, name: String, error: ValueError },
    LogNotFound { run: RunId, log: Generation, newest: Generation },
    Observing { run: RunId },
    NotCancelledYet { run: RunId, why: String },
    QuestionNotFound { token: String },
    QuestionClosed { token: String },
    QuestionAnswered { token: String, by: String },
    QuestionExpired { token: String },
    MayNotAnswer { token: String, who: Option<String>, may: Vec<String> },
    AnswerDoesNotFit { token: String, reason: String },
    SignalDoesNotFit { run: RunId, name: String, reason: String },
}

impl Error {
    /// The stable code of this kind of error.
    pub fn code(&self) -> Code {
        match &*self.0 {
            Kind::RunId(_) => Code::InvalidRunId,
            Kind::RunNotFound(_) => Code::RunNotFound,
            Kind::OtherArguments { .. } => Code::OtherArguments,
            Kind::OtherWorkflow { .. } => Code::OtherWorkflow,
            Kind::Argument { .. } | Kind::NotRecordable { .. } => Code::ArgumentNotRecordable,
            Kind::TooLarge { .. } => Code::TooLarge,
            Kind::RunFailed { .. } => Code::RunFailed,
            Kind::RunCancelled { .. } => Code::RunCancelled,
            Kind::RunEnded { .. } => Code::RunEnded,
            Kind::RunUnfinished { .. } => Code::RunUnfinished,
            Kind::Parked { parked, .. } => parked.code,
            Kind::WaitingForCode { .. } => Code::WaitingForCode,
            Kind::Store(StoreError::InUse { .. }) => Code::StoreInUse,
            Kind::Store(StoreError::Damaged { .. }) => Code::StoreDamaged,
            Kind::Store(StoreError::NotAStore { .. }) => Code::NotAStore,
            Kind::Store(StoreError::NotDurable { .. }) => Code::NotDurable,
            Kind::Store(StoreError::Closed) | Kind::Closed => Code::Closed,
            Kind::Store(_) => Code::StorageFailed,
            Kind::MissingResources(_) => Code::MissingResources,
            Kind::NameTwice { .. } => Code::NameTwice,
            Kind::StaleAttempt { .. } => Code::StaleAttempt,
            Kind::NotInDoubt { .. } => Code::NotInDoubt,
            Kind::ValueDoesNotFit { .. } => Code::ValueDoesNotFit,
            Kind::NotParked { .. } => Code::NotParked,
            Kind::OtherType { .. } | Kind::PublishedType { .. } => Code::OtherType,
            Kind::LogNotFound { .. } => Code::LogNotFound,
            Kind::Observing { .. } => Code::Observing,
            Kind::NotCancelledYet { .. } => Code::NotCancelledYet,
            Kind::QuestionNotFound { .. } => Code::QuestionNotFound,
            Kind::QuestionClosed { .. } => Code::QuestionClosed,
            Kind::QuestionAnswered { .. } => Code::QuestionAnswered,
            Kind::QuestionExpired { .. } => Code::QuestionExpired,
            Kind::MayNotAnswer { .. } => Code::MayNotAnswer,
            Kind::AnswerDoesNotFit { .. } => Code::AnswerDoesNotFit,
            Kind::SignalDoesNotFit { .. } => Code::SignalDoesNotFit,
        }
    }

    /// What is wrong, for who says it in other words.
    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }

    /// The run exists with other arguments or another workflow.
    pub fn is_conflict(&self) -> bool {
        matches!(self.code(), Code::OtherArguments | Code::OtherWorkflow)
    }

    /// There is no such run.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::RunNotFound
    }

    /// The workflow returned an error.
    pub fn is_run_failed(&self) -> bool {
        self.code() == Code::RunFailed
    }

    /// The run was cancelled.
    pub fn is_run_cancelled(&self) -> bool {
        self.code() == Code::RunCancelled
    }

    /// The run has ended, and takes no message any more.
    pub fn is_run_ended(&self) -> bool {
        self.code() == Code::RunEnded
    }

    /// Who has answered the question before, if that is what is wrong.
    pub fn answered_by(&self) -> Option<&str> {
        match &*self.0 {
            Kind::QuestionAnswered { by, .. } => Some(by),
            _ => None,
        }
    }

    /// The run is parked, and why.
    pub fn parked(&self) -> Option<&Parked> {
        match &*self.0 {
            Kind::Parked { parked, .. } => Some(parked),
            _ => None,
        }
    }

    /// The store's own error.
    pub fn store(&self) -> Option<&StoreError> {
        match &*self.0 {
            Kind::Store(error) => Some(error),
            _ => None,
        }
    }

    /// The error value that the workflow returned, as JSON, if the run failed.
    pub fn failure(&self) -> Option<serde_json::Value> {
        match &*self.0 {
            Kind::RunFailed { value, .. } => {
                let mut json = value.to_json();
                Some(json.get_mut("Err").map(serde_json::Value::take).unwrap_or(json))
            }
            _ => None,
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Error(Box::new(kind))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Kind::Store(error).into()
    }
}

impl From<RunIdError> for Error {
    fn from(error: RunIdError) -> Self {
        Kind::RunId(error).into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.0)
    }
}

/// The text with the code behind it, by which `docs/errors.md` is searched.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.code())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::RunId(e) => e.fmt(f),
            Kind::RunNotFound(run) => {
                write!(f, "there is no run {run} in this store; start it, or look for its id with Runtime::runs")
            }
            Kind::OtherArguments { run, workflow, recorded, given } => write!(
                f,
                "run {run} of workflow {workflow} exists with the arguments {recorded}, and was started again with {given}; take another run id"
            ),
            Kind::OtherWorkflow { run, recorded, given } => {
                write!(
                    f,
                    "run {run} exists with workflow {recorded}, and was started with {given}; take another run id"
                )
            }
            Kind::Argument { workflow, error } => {
                write!(
                    f,
                    "an argument of workflow {workflow} cannot be recorded: {error}; pass what serde writes and reads back equal"
                )
            }
            Kind::TooLarge { what, size, limit } => {
                write!(
                    f,
                    "{what} has {size} bytes, more than the limit of {limit}; pass a reference to where the data is kept"
                )
            }
            Kind::RunFailed { run, message, .. } => write!(f, "run {run} failed: {message}"),
            Kind::RunCancelled { run, reason, by } => write!(f, "run {run} was cancelled by {by}: {reason}"),
            Kind::RunEnded { run, state } => {
                write!(f, "run {run} takes no message any more: it is {state}; start another run")
            }
            Kind::RunUnfinished { run, state } => {
                write!(f, "run {run} has not ended: it is {state}; cancel it first, or wait for its end")
            }
            Kind::Parked { run, parked } => write!(f, "run {run} is parked: {}; {}", parked.why, parked.next),
            Kind::WaitingForCode { run, workflow, module } => write!(
                f,
                "run {run} waits for its code: workflow {workflow} of module {module} is not in this binary; start a binary that has it"
            ),
            Kind::Store(e) => e.fmt(f),
            Kind::Closed => f.write_str("the runtime was shut down; open the store again"),
            Kind::MissingResources(missing) => {
                write!(
                    f,
                    "effects need resources that Runtime::builder().resource(..) was not given: {}",
                    missing.join("; ")
                )
            }
            Kind::NameTwice { name, first, second } => {
                write!(f, "the name {name:?} is given twice, at {first} and at {second}; give one of them another")
            }
            Kind::StaleAttempt { run, step, given, current } => {
                write!(
                    f,
                    "run {run}, step {step}: attempt {given} is not the one in doubt, attempt {current} is; look at Runtime::holds again"
                )
            }
            Kind::NotInDoubt { run, step, state } => {
                write!(f, "run {run}, step {step} is not in doubt: {state}; Runtime::holds lists the steps that are")
            }
            Kind::ValueDoesNotFit { run, effect, error } => {
                write!(f, "run {run}: the value is none that effect {effect} can return: {error}; give one of its type")
            }
            Kind::NotParked { run, state } => {
                write!(
                    f,
                    "run {run} is not parked: it is {state}; only a parked run, or one that waits for code, is retried"
                )
            }
            Kind::OtherType { run, error } => {
                write!(f, "run {run} has an output of another type: {error}; ask for what its workflow returns")
            }
            Kind::NotRecordable { what, error } => {
                write!(f, "{what} cannot be recorded: {error}; give what serde writes and reads back equal")
            }
            Kind::PublishedType { run, name, error } => {
                write!(
                    f,
                    "run {run} has published another type as {name:?}: {error}; ask for what its workflow publishes"
                )
            }
            Kind::LogNotFound { run, log, newest } => {
                write!(f, "run {run} has no log {log}: its newest is log {newest}; look at AnyRun::generations")
            }
            Kind::Observing { run } => write!(
                f,
                "run {run} goes on in no process: this runtime only observes; open the store with a process that has its code"
            ),
            Kind::NotCancelledYet { run, why } => {
                write!(
                    f,
                    "run {run} is not cancelled yet: {why}; the request stands and is taken as soon as that is over"
                )
            }
            Kind::QuestionNotFound { token } => {
                write!(f, "there is no question {token:?} in this store; Runtime::questions lists those that are open")
            }
            Kind::QuestionClosed { token } => {
                write!(
                    f,
                    "question {token} is open no more: its run does not wait for the answer; nothing is for you to do"
                )
            }
            Kind::QuestionAnswered { token, by } => {
                write!(f, "question {token} was answered by {by} before; the first answer counts")
            }
            Kind::QuestionExpired { token } => {
                write!(f, "question {token} has expired; its run has gone on without an answer, or is about to")
            }
            Kind::MayNotAnswer { token, who, may } => {
                let who = who.as_deref().map_or_else(|| "nobody by name".to_owned(), |who| format!("{who:?}"));
                write!(
                    f,
                    "question {token} is answered by {who}, and only these may: {}; say who answers",
                    may.join(", ")
                )
            }
            Kind::AnswerDoesNotFit { token, reason } => {
                write!(f, "question {token} takes a value of another type: {reason}; give one of that type")
            }
            Kind::SignalDoesNotFit { run, name, reason } => {
                write!(
                    f,
                    "run {run} waits for a signal {name:?} of another type: {reason}; nothing was sent: send one of that type"
                )
            }
        }
    }
}

impl std::error::Error for Error {}

/// A divergence in words, with what to do.
pub(crate) fn divergence_why(divergence: &Divergence) -> String {
    format!("the code and the log disagree: {divergence}")
}
