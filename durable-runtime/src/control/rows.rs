//! What answers hold: runs, steps, holds, questions, findings, each as one JSON object.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::words;
use crate::{
    clock::{Millis, millis},
    error::Parked,
    id::RunId,
    runtime::{self, Answered, RunningBody},
    view::{Hold, OpenQuestion, RunInfo, Status, StepKind, StepState, StepView, UnreadMessage, time},
};

/// A [`Status`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusRow {
    /// [`Status::as_str`].
    pub state: String,
    /// Whether the run has ended.
    pub ended: bool,
    /// What it waits for, or why it stands there, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The code of the reason why it is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What a person can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl StatusRow {
    /// `observing`: no process has the store.
    pub(super) fn new(run: &RunId, status: &Status, observing: bool) -> StatusRow {
        let code = match status {
            Status::Parked(Parked { code, .. }) => Some(code.to_string()),
            _ => None,
        };
        StatusRow {
            state: status.as_str().to_owned(),
            ended: status.is_terminal(),
            detail: detail(status),
            code,
            next: words::next(run, status, observing),
        }
    }
}

fn detail(status: &Status) -> Option<String> {
    Some(match status {
        Status::Sleeping { until } => format!("until {}", at(*until)),
        Status::Retrying { path, attempt, at: due } => {
            format!("{path}: attempt {attempt} failed, the next one is due {}", at(*due))
        }
        Status::Reconciling { path } => path.clone(),
        Status::Held { steps } => {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            format!("step {}", steps.join(", "))
        }
        Status::StorageTrouble { reason } => reason.clone(),
        Status::WaitingForCode { workflow, module } => format!("{module}::{workflow}"),
        Status::Parked(parked) => parked.why.clone(),
        Status::Failed { message } => message.clone(),
        Status::AwaitingSignal { names } => names.join(", "),
        Status::AwaitingAnswer { tokens } => tokens.join(", "),
        Status::AwaitingChild { runs } => {
            let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
            runs.join(", ")
        }
        Status::Cancelling { settling_until: Some(until) } | Status::Undoing { settling_until: Some(until) } => {
            format!("settling until {}", at(*until))
        }
        Status::Cancelled { reason } => reason.clone(),
        _ => return None,
    })
}

/// A run in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRow {
    /// Its id.
    pub run: String,
    /// Recorded name of its workflow.
    pub workflow: String,
    /// The module of its workflow.
    pub module: String,
    /// Where it stands.
    #[serde(flatten)]
    pub status: StatusRow,
    /// When it was started.
    pub started_at: String,
    /// Since when it stands there.
    pub since: String,
    /// What was left for it, in words, that it takes when a process goes on with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl RunRow {
    pub(super) fn new(info: &RunInfo, left: Vec<String>, observing: bool) -> RunRow {
        RunRow {
            run: info.id.as_str().to_owned(),
            workflow: info.workflow.clone(),
            module: info.module.clone(),
            status: StatusRow::new(&info.id, &info.status, observing),
            started_at: at(info.started_at),
            since: at(info.since),
            left,
        }
    }
}

/// All about one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Show {
    /// What a list shows.
    #[serde(flatten)]
    pub run: RunRow,
    /// What it was started with.
    pub args: Json,
    /// What it returned, or its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Json>,
    /// Which log is shown, and so how often the run went on in a fresh one.
    pub generation: u32,
    /// Entries of that log.
    pub entries: u64,
    /// Version of the library that began that log.
    pub build: String,
    /// The run that spawned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Steps that are over and are left out before the first that is shown.
    pub steps_left_out: u64,
    /// Its steps, in the order in which the code asked.
    pub steps: Vec<StepRow>,
    /// Steps in doubt that wait for a person.
    pub holds: Vec<HoldRow>,
    /// Open questions.
    pub questions: Vec<QuestionRow>,
    /// Runs that it spawned, with where they stand.
    pub children: Vec<ChildRow>,
    /// Messages that nobody has taken.
    pub messages: Vec<Json>,
    /// Bodies of effects that are under way.
    pub bodies: Vec<Json>,
    /// It is to be cancelled as soon as a process has it: nobody need do anything for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_cancel: bool,
}

/// One step: a [`StepView`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRow {
    /// Its number in the log.
    pub step: u32,
    /// Its path.
    pub path: String,
    /// [`crate::StepKind::as_str`].
    pub kind: String,
    /// What it calls or waits for: an effect, a signal's name, a question's title, a run, a time.
    pub what: String,
    /// The contract of an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// Attempts of an effect that were begun.
    pub attempts: u32,
    /// [`StepState::as_str`].
    pub state: String,
    /// Whether nothing more will be said of it.
    pub over: bool,
    /// The code does not wait for it any more.
    pub dropped: bool,
    /// When the code asked for it.
    pub asked_at: String,
    /// From then until it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<Millis>,
    /// What it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Json>,
    /// Why nobody knows what it did; when it is tried again, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How many messages, answers or words were of no use to it, and why the last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
    /// File and line of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

impl From<&StepView> for StepRow {
    fn from(step: &StepView) -> StepRow {
        let lasted = |over_at| millis(over_at).saturating_sub(millis(step.asked_at));
        StepRow {
            step: step.step.0,
            path: step.path.clone(),
            kind: step.kind.as_str().to_owned(),
            what: step.what.clone(),
            contract: step.contract.map(|contract| contract.as_str().to_owned()),
            attempts: step.attempts,
            state: state(step).to_owned(),
            over: step.state.is_over(),
            dropped: step.dropped,
            asked_at: at(step.asked_at),
            duration_ms: step.over_at.map(lasted),
            outcome: step.outcome.clone(),
            detail: match &step.state {
                StepState::InDoubt { reason } => Some(reason.clone()),
                StepState::Retrying { at: due } => Some(match &step.outcome {
                    Some(error) => {
                        format!("again {}, as attempt {} failed: {}", at(*due), step.attempts, in_words(error))
                    }
                    None => format!("again {}", at(*due)),
                }),
                _ => None,
            },
            set_aside: set_aside(step.set_aside, step.set_aside_why.as_deref()),
            site: step.site.clone(),
        }
    }
}

/// An error as a step has it: what a failure says, or the value itself.
fn in_words(error: &Json) -> String {
    let message = error.as_str().or_else(|| error.get("message")?.as_str());
    message.map_or_else(|| error.to_string(), str::to_owned)
}

/// Where a step stands: a no to a question is no failure.
fn state(step: &StepView) -> &'static str {
    match (step.kind, &step.state, &step.outcome) {
        (StepKind::Question, StepState::Failed, Some(_)) => "refused",
        (StepKind::Question, StepState::Failed, None) => "expired",
        (_, state, _) => state.as_str(),
    }
}

/// A run that was spawned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChildRow {
    /// Its id.
    pub run: String,
    /// The step that spawned it.
    pub step: u32,
    /// Where it stands; `None` if it is not in the store.
    pub state: Option<String>,
    /// What it was started with, as JSON text: two children of one workflow are told apart by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// Its parent does not have its end yet.
    #[serde(default)]
    pub open: bool,
}

/// A step in doubt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldRow {
    /// The run.
    pub run: String,
    /// The step.
    pub step: u32,
    /// The attempt in doubt.
    pub attempt: u32,
    /// Its path.
    pub path: String,
    /// The effect.
    pub effect: String,
    /// The arguments, whole.
    pub args: Json,
    /// The key under which the provider may know the call.
    pub key: String,
    /// Why nobody knows.
    pub reason: String,
    /// Since when.
    pub since: String,
    /// How many words on it were of no use, and why the last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

impl From<&Hold> for HoldRow {
    fn from(hold: &Hold) -> HoldRow {
        HoldRow {
            run: hold.run.as_str().to_owned(),
            step: hold.step.0,
            attempt: hold.attempt.0,
            path: hold.path.clone(),
            effect: hold.effect.clone(),
            args: hold.args.clone(),
            key: hold.key.clone(),
            reason: hold.reason.clone(),
            since: at(hold.since),
            set_aside: set_aside(hold.set_aside, hold.set_aside_why.as_deref()),
        }
    }
}

/// An open question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuestionRow {
    /// What [`super::Request::Answer`] names.
    pub token: String,
    /// The run.
    pub run: String,
    /// The step's path.
    pub path: String,
    /// What is asked.
    pub title: String,
    /// What is to be approved, whole.
    pub about: Json,
    /// Who may answer; nobody named: anybody.
    pub by: Vec<String>,
    /// When it was asked.
    pub asked_at: String,
    /// When nobody can answer any more.
    pub expires_at: Option<String>,
    /// How many answers were of no use, and why the last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

/// What is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The run; `None`: the store.
    pub run: Option<String>,
    /// Which of its logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The place in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// One or two words: `damaged`, `illegal`, `index`, `mailbox`, `stranded`, ..
    pub sort: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: String,
}

impl From<&OpenQuestion> for QuestionRow {
    fn from(question: &OpenQuestion) -> QuestionRow {
        QuestionRow {
            token: question.token.clone(),
            run: question.run.as_str().to_owned(),
            path: question.path.clone(),
            title: question.title.clone(),
            about: question.about.clone(),
            by: question.by.clone(),
            asked_at: at(question.asked_at),
            expires_at: question.expires_at.map(at),
            set_aside: set_aside(question.set_aside, question.set_aside_why.as_deref()),
        }
    }
}

impl From<&runtime::Finding> for Finding {
    fn from(found: &runtime::Finding) -> Finding {
        Finding {
            run: Some(found.run.as_str().to_owned()),
            generation: None,
            seq: None,
            sort: found.kind.as_str().to_owned(),
            what: found.what.clone(),
            next: found.next.replace("call Runtime::cancel", &format!("call durable cancel {}", found.run)),
        }
    }
}

/// A message that nobody has taken.
pub(super) fn message(message: &UnreadMessage) -> Json {
    json!({ "name": message.name, "value": message.value, "id": message.id, "sent_at": at(message.sent_at) })
}

/// A body that is under way.
pub(super) fn body(body: &RunningBody) -> Json {
    json!({ "effect": body.effect, "path": body.path, "attempt": body.attempt.0, "since": at(body.since) })
}

/// What became of an answer, in a word.
pub(super) fn answered(answered: Answered) -> &'static str {
    match answered {
        Answered::Taken => "taken",
        Answered::Kept => "kept until the run goes on",
    }
}

/// What came for a step and is of no use, in words.
fn set_aside(times: u32, why: Option<&str>) -> Option<String> {
    (times > 0).then(|| format!("{times} set aside, the last because: {}", why.unwrap_or_default()))
}

/// A time as answers have it.
pub(super) fn at(at: SystemTime) -> String {
    time(millis(at))
}
