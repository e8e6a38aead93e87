//! What a log says of one question.

use super::Stored;
use crate::{
    core::Stop,
    entry::{Answered, Entry, Kind, Question},
    fold::RunState,
    id::{RunId, StepNo},
    store::Store,
};

/// One question, as far as its log was read.
#[derive(Debug)]
pub(crate) struct AskedLog {
    path: String,
    pub(crate) log: Stored,
    pub(crate) asked: Option<Asked>,
}

/// A question that was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) step: StepNo,
    pub(crate) question: Question<'static>,
    /// The rows that were of no use, and why.
    pub(crate) set_aside: Vec<(u128, String)>,
    pub(crate) end: Option<AskedEnd>,
}

/// How a question came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedEnd {
    /// Somebody answered: yes with a value, or no with a reason.
    Answered { by: String, verdict: Result<Vec<u8>, String> },
    /// Nobody did in time.
    Expired,
    /// The code does not wait for it any more.
    Closed,
}

impl AskedLog {
    pub(crate) fn new(log: Stored, path: String) -> AskedLog {
        AskedLog { path, log, asked: None }
    }

    /// Reads what was appended since. Blocks on the store.
    pub(crate) fn read_on(&mut self, store: &dyn Store, run: &RunId) -> Result<(), Stop> {
        let AskedLog { path, log, asked } = self;
        log.read_on(store, run, |before, entry| take(path, asked, before, entry))
    }
}

fn take(path: &str, asked: &mut Option<Asked>, before: &RunState, entry: &Entry<'_>) {
    let Some(asked) = asked else {
        if let Kind::QuestionAsked { path: at, question, .. } = &entry.kind
            && at.to_string() == path
        {
            let (step, question) = (before.next_step, question.clone().into_owned());
            *asked = Some(Asked { step, question, set_aside: Vec::new(), end: None });
        }
        return;
    };
    if asked.end.is_some() {
        return;
    }
    asked.end = match &entry.kind {
        Kind::QuestionAnswered { step, answer, by } if *step == asked.step => {
            let by = by.to_string();
            Some(match answer {
                Answered::Granted(value) => AskedEnd::Answered { by, verdict: Ok(value.to_vec()) },
                Answered::Refused(reason) => AskedEnd::Answered { by, verdict: Err(reason.to_string()) },
                Answered::Expired => AskedEnd::Expired,
            })
        }
        Kind::SignalSetAside { step, signal, reason } if *step == asked.step => {
            asked.set_aside.push((signal.id, reason.to_string()));
            None
        }
        Kind::StepClosed { step } if *step == asked.step => Some(AskedEnd::Closed),
        Kind::RunEnding(_) | Kind::RunEnded(_) => Some(AskedEnd::Closed),
        _ => None,
    };
}
