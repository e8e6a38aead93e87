//! What people and programs see of runs: states, holds, questions, tables of steps, and logs as typed entries and as JSON lines.

use std::time::SystemTime;

use serde_json::Value as Json;

use crate::{
    clock::{Millis, system_time},
    id::{Attempt, RunId, StepNo},
};

mod asked;
mod log;
mod look;
mod status;
mod steps;
mod stored;
mod token;

pub(crate) use asked::{AskedEnd, AskedLog};
pub use log::LogEntry;
pub(crate) use log::LogReader;
pub(crate) use look::{Look, OpenAsk, status_of_end};
pub use status::{Status, StatusKind, StatusKindError};
pub(crate) use steps::StepTable;
pub use steps::{StepKind, StepState, StepView};
pub(crate) use stored::{Stored, ended_children, fold_log};
pub(crate) use token::Token;

/// A run in a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its id.
    pub id: RunId,
    /// Recorded name of its workflow.
    pub workflow: String,
    /// The module of its workflow.
    pub module: String,
    /// Where it stands.
    pub status: Status,
    /// When it was started.
    pub started_at: SystemTime,
    /// Since when it stands there, as far as that is known: the last entry of its log, the parking, its end.
    pub since: SystemTime,
    /// The run that spawned it.
    pub parent: Option<RunId>,
}

/// A step in doubt that waits for a person.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hold {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepNo,
    /// Its path; `undo[n]` if it undoes something.
    pub path: String,
    /// The effect.
    pub effect: String,
    /// The attempt in doubt: what [`crate::Runtime::resolve`] must name.
    pub attempt: Attempt,
    /// The arguments.
    pub args: Json,
    /// The key under which the provider may know the call.
    pub key: String,
    /// Why nobody knows.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
    /// How many words of people on it there were that are of no use: they were kept for the run, and do not fit the effect's type, or were
    /// corrected by a later word.
    pub set_aside: u32,
    /// Why the last of them is of none.
    pub set_aside_why: Option<String>,
}

/// A question that waits for an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// The run.
    pub run: RunId,
    /// What [`crate::Runtime::answer`] must name. The same for as long as the question is open, in whatever process; made of
    /// letters, digits and `-_./@:+,%` only.
    pub token: String,
    /// The step's path.
    pub path: String,
    /// What is asked, in one line.
    pub title: String,
    /// What is to be approved, whole.
    pub about: Json,
    /// Who may answer; nobody named: anybody.
    pub by: Vec<String>,
    /// When it was asked.
    pub asked_at: SystemTime,
    /// When nobody can answer any more.
    pub expires_at: Option<SystemTime>,
    /// How many answers there were that are none of the type that was asked for.
    pub set_aside: u32,
    /// Why the last of them is none.
    pub set_aside_why: Option<String>,
}

/// A message that a run has not taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnreadMessage {
    /// The signal's name.
    pub name: String,
    /// The value.
    pub value: Json,
    /// 32 hexadecimal digits that are its own in its run.
    pub id: String,
    /// When it was sent.
    pub sent_at: SystemTime,
}

/// RFC 3339 in UTC; milliseconds since 1970 where that has no date.
pub(crate) fn time(at: Millis) -> String {
    // The last millisecond of the year 9999.
    const LAST: Millis = 253_402_300_799_999;
    if at <= LAST {
        humantime::format_rfc3339_millis(system_time(at)).to_string()
    } else {
        format!("{at} ms after 1970")
    }
}
