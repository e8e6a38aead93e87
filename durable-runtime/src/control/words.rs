//! What goes over the socket: requests and answers, one JSON object a line.
//!
//! Both ends may be of different versions: an object's unknown fields are passed over, a missing one has its default. What an
//! older one cannot leave out without a lie is a new request.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::rows::{Finding, HoldRow, QuestionRow, RunRow, Show, StatusRow};
use crate::{
    clock::Millis,
    error::{Code, Error, Kind},
    id::RunId,
    store::StoreError,
    view::{Status, StatusKind, StatusKindError},
};

/// The version of this protocol. The first line of a connection names it, and another one is refused.
pub const PROTOCOL: u32 = 1;

/// [`Done::note`] of a signal whose id was there before: it is that message, and no other was sent.
pub const WAS_THERE: &str = "was there before";

/// The first line of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// [`PROTOCOL`] of whoever asks.
    pub protocol: u32,
    /// What is asked.
    pub request: Request,
}

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// The runs that fit, those started last first: [`Answer::Run`] each. [`Done::total`]: how many fit.
    Runs(RunFilter),
    /// All about one run: [`Answer::Show`].
    Show {
        /// The run.
        run: String,
        /// Of the steps that are over, only so many of the last.
        steps: usize,
    },
    /// A run's log: [`Answer::Entry`] each. [`Done::seq`]: the place of the next entry.
    Log {
        /// The run.
        run: String,
        /// Which log; `None`: the newest.
        generation: Option<u32>,
        /// The place of the first entry.
        from: u64,
        /// Whether to go on with the run's later logs, and to wait for more until it has ended. On a store that no process holds nothing
        /// is waited for.
        follow: bool,
    },
    /// Sends a signal.
    Signal {
        /// The run.
        run: String,
        /// The signal's name.
        name: String,
        /// The value.
        value: Json,
        /// The sender's id for it: the same id twice is one message, and [`Done::note`] is [`WAS_THERE`] then.
        id: Option<String>,
    },
    /// The open questions of all runs: [`Answer::Question`] each. [`Done::left`]: the runs with an answer that waits for a process.
    Questions,
    /// Answers a question.
    Answer {
        /// The question's token.
        token: String,
        /// How.
        reply: Reply,
        /// By whom.
        by: Option<String>,
    },
    /// The steps in doubt that wait for a person: [`Answer::Hold`] each. [`Done::left`]: the runs with a word that waits for a process.
    Holds,
    /// Says what a step in doubt did. [`Done::note`] where that is kept until the run goes on.
    Resolve {
        /// The run.
        run: String,
        /// The step.
        step: u32,
        /// The attempt that is in doubt.
        attempt: u32,
        /// What it did.
        verdict: Verdict,
        /// Who says so.
        by: Option<String>,
    },
    /// Cancels a run and waits until it has ended: [`Done::status`]. [`Done::in_doubt`].
    Cancel {
        /// The run.
        run: String,
        /// Why.
        reason: String,
        /// Who asks.
        by: Option<String>,
    },
    /// Goes on with a parked run.
    Retry {
        /// The run.
        run: String,
    },
    /// A run as lines of text that [`Request::Import`] takes: [`Answer::Line`] each. [`Done::children`]: the runs that it waits for,
    /// which are exported by requests of their own.
    Export {
        /// The run.
        run: String,
        /// Whether each entry is also there in words.
        readable: bool,
    },
    /// Makes a run of exported lines, which follow the request. [`Done::run`]: its id. [`Done::children`]: the runs that it waits for
    /// and that are not in this store.
    Import {
        /// Whether a run that has not ended is taken too, and goes on.
        unfinished: bool,
    },
    /// Removes runs that have ended: [`Answer::Progress`] now and then, [`Done::total`] of those that were there.
    Remove {
        /// The runs.
        runs: Vec<String>,
    },
    /// Verifies every run: [`Answer::Finding`] each, [`Done::total`] runs.
    Doctor,
    /// The workflows of the process: [`Answer::Workflow`] each.
    Workflows,
}

/// How a question is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// Yes, with a value.
    Granted(Json),
    /// No, and why.
    Refused(String),
}

/// What a step in doubt did.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// See [`crate::Resolution::succeeded`].
    Succeeded(Json),
    /// See [`crate::Resolution::failed`].
    Failed(String),
    /// See [`crate::Resolution::failed_with`].
    FailedWith(Json),
    /// See [`crate::Resolution::run_again`].
    RunAgain,
}

/// Which runs are listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFilter {
    /// Words of [`Status::as_str`], or `awaiting`, `unfinished`, `ended` for several: a run fits that is in one of these states; none: any state.
    pub status: Vec<String>,
    /// Recorded name of the workflow.
    pub workflow: Option<String>,
    /// Started at least so many milliseconds ago.
    pub older_ms: Option<Millis>,
    /// Started at most so many milliseconds ago.
    pub newer_ms: Option<Millis>,
    /// In this state for at least so many milliseconds: for an ended run, since its end.
    pub settled_ms: Option<Millis>,
    /// A text that its id or its arguments hold.
    pub text: Option<String>,
    /// At most so many; 0: all.
    pub limit: usize,
}

/// What comes back: any number of others, then [`Answer::Done`] or [`Answer::Refused`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// A run.
    Run(RunRow),
    /// All about a run.
    Show(Box<Show>),
    /// An entry of a log.
    Entry {
        /// Which log.
        generation: u32,
        /// [`crate::LogEntry::to_json`].
        entry: Json,
    },
    /// An open question.
    Question(QuestionRow),
    /// A step in doubt.
    Hold(HoldRow),
    /// A line of an exported run, without its end.
    Line(String),
    /// What is wrong.
    Finding(Finding),
    /// A workflow with its steps, as [`crate::WorkflowInfo`].
    Workflow(Json),
    /// The request is taken, and its end is waited for.
    Accepted,
    /// How far it is.
    Progress {
        /// So many.
        done: u64,
        /// Of so many, as far as that is known.
        of: Option<u64>,
    },
    /// Last: it is done.
    Done(Done),
    /// Last: it was not done.
    Refused(Refusal),
}

/// What there is to say at the end; most requests have nothing but that it is done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// A run's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// A place in a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Where the run stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusRow>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Runs that the run waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// Steps of a cancelled run that nobody knows the outcome of, nor is asked about any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<String>,
    /// Runs for which something was said that waits for a process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The stable code, if it is an [`Error`].
    pub code: Option<String>,
    /// What it means for whoever asked.
    pub sort: Sort,
    /// In words.
    pub message: String,
}

/// What a refusal means for whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sort {
    /// The request makes no sense: an id that is none, a value of the wrong type.
    Invalid,
    /// What it is about is not there.
    NotFound,
    /// What it is about is not in the state for it: answered before, not in doubt, ended.
    No,
    /// The store cannot be used.
    Store,
    /// Whatever else.
    Other,
}

impl Refusal {
    pub(super) fn new(sort: Sort, message: impl Into<String>) -> Refusal {
        Refusal { code: None, sort, message: message.into() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let code = error.code();
        let message = match in_command(error.kind()) {
            Some(text) => format!("{text} ({code})"),
            None => error.to_string(),
        };
        Refusal { code: Some(code.to_string()), sort: Sort::of(code), message }
    }
}

/// An error whose own text names what a program calls, for a person who has the command.
fn in_command(error: &Kind) -> Option<String> {
    Some(match error {
        Kind::RunNotFound(run) => {
            format!("there is no run {run} in this store; durable runs lists those that are there")
        }
        Kind::StaleAttempt { run, step, given, current } => format!(
            "run {run}, step {step}: attempt {given} is not the one in doubt, attempt {current} is; look at durable holds again"
        ),
        Kind::NotInDoubt { run, step, state } => {
            format!("run {run}, step {step} is not in doubt: {state}; durable holds lists the steps that are")
        }
        Kind::LogNotFound { run, log, newest } => {
            format!("run {run} has no log {log}: its newest is log {newest}")
        }
        Kind::QuestionNotFound { token } => {
            format!("there is no question {token:?} in this store; durable ask lists those that are open")
        }
        Kind::MayNotAnswer { .. } => format!("{error} with --by"),
        Kind::Parked { run, parked } => format!("run {run} is parked: {}; {}", parked.why, retried(&parked.next, run)),
        _ => return None,
    })
}

/// What a person can do now about a run, with the command. `observing`: no process has the store.
pub(super) fn next(run: &RunId, status: &Status, observing: bool) -> Option<String> {
    const OPEN: &str = "open the store with a process that has its code";
    let next = match status {
        Status::Held { .. } => {
            "find out what the held step did, and say so with durable resolve; durable holds shows it".into()
        }
        Status::AwaitingAnswer { tokens } => {
            let first = tokens.first().map(String::as_str).unwrap_or_default();
            format!("answer the question {first} with durable answer; durable ask shows all of it")
        }
        Status::AwaitingSignal { names } => {
            let first = names.first().map(String::as_str).unwrap_or_default();
            format!("send the signal {first:?} with durable signal when it is time")
        }
        Status::AwaitingCancel => "cancel it with durable cancel when it is time".into(),
        Status::WaitingForCode { workflow, module } => {
            format!("open the store with a process that has {module}::{workflow}")
        }
        Status::Parked(parked) => retried(&parked.next, run),
        status => match status.next_action() {
            Some(next) => next,
            None if observing && !status.is_terminal() => OPEN.into(),
            None => return None,
        },
    };
    Some(next)
}

/// What to do about a parked run, where that is to try it again.
fn retried(next: &str, run: &RunId) -> String {
    next.replace("call retry", &format!("call durable retry {run}"))
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        Error::from(error).into()
    }
}

impl Sort {
    /// What an error with this code means.
    pub fn of(code: Code) -> Sort {
        match code {
            Code::InvalidRunId
            | Code::ArgumentNotRecordable
            | Code::TooLarge
            | Code::ValueDoesNotFit
            | Code::AnswerDoesNotFit
            | Code::SignalDoesNotFit => Sort::Invalid,
            Code::RunNotFound | Code::LogNotFound | Code::QuestionNotFound => Sort::NotFound,
            Code::StoreInUse
            | Code::StoreDamaged
            | Code::NotAStore
            | Code::NotDurable
            | Code::StorageFailed
            | Code::Observing
            | Code::Closed => Sort::Store,
            Code::OtherArguments
            | Code::OtherWorkflow
            | Code::RunCancelled
            | Code::RunEnded
            | Code::RunUnfinished
            | Code::StaleAttempt
            | Code::NotInDoubt
            | Code::NotParked
            | Code::NotCancelledYet
            | Code::QuestionClosed
            | Code::QuestionAnswered
            | Code::QuestionExpired
            | Code::MayNotAnswer => Sort::No,
            _ => Sort::Other,
        }
    }
}

/// The states that a list is to have.
pub(super) struct States(Vec<StatusKind>);

impl States {
    /// Reads words as a person writes them: `awaiting-signal` too, and `awaiting`, `unfinished` and `ended` for several at once.
    pub(super) fn of(words: &[String]) -> Result<States, Refusal> {
        let mut states = Vec::new();
        for word in words {
            let plain = word.trim().to_lowercase().replace(['-', '_'], " ");
            let several: fn(StatusKind) -> bool = match &*plain {
                "ended" => StatusKind::is_terminal,
                "unfinished" => |kind| !kind.is_terminal(),
                "awaiting" => |kind| kind.as_str().starts_with("awaiting "),
                plain => {
                    let kind = plain.parse().map_err(|error: StatusKindError| {
                        let what = format!("{error}; and awaiting, unfinished, ended for several at once");
                        Refusal::new(Sort::Invalid, what)
                    })?;
                    states.push(kind);
                    continue;
                }
            };
            states.extend(StatusKind::ALL.iter().copied().filter(|kind| several(*kind)));
        }
        Ok(States(states))
    }

    /// Whether all of them are of runs that have not ended, or all of runs that have.
    pub(super) fn class(&self) -> Option<bool> {
        let first = self.0.first()?.is_terminal();
        self.0.iter().all(|kind| kind.is_terminal() == first).then_some(!first)
    }

    pub(super) fn hold(&self, status: &Status) -> bool {
        self.0.is_empty() || self.0.contains(&status.kind())
    }
}

/// An id that a person gave.
pub(super) fn run_id(id: &str) -> Result<RunId, Refusal> {
    RunId::new(id).map_err(|error| Error::from(error).into())
}
