//! What was left for a run that nobody goes on with: it lies in the run's mailbox, and its log does not say it yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use super::StepRow;
use crate::{
    entry::Parent,
    error::Error,
    id::{Attempt, Generation, RunId, StepNo},
    mailbox::{Message, Reply, Verdict},
    runtime::Runtime,
    store::{Store, StoreError, Write},
    value::Value,
    view::{Hold, OpenQuestion, RunInfo, Status, StepKind, StepState, StepView},
};

/// What whoever goes on with a run finds in its mailbox.
#[derive(Default)]
pub(super) struct Left {
    /// No process has the run: what was under way in one is not any more.
    gone: bool,
    /// About its newest log, or about all of it.
    messages: Vec<Message>,
    /// The signals that it waits for, as far as they are there.
    signals: BTreeSet<String>,
}

/// What was left for those of some runs that nobody goes on with here. The state of one that has something to go on with now is
/// corrected: its log alone says that it waits.
pub(super) async fn of(runtime: &Runtime, infos: &mut [RunInfo]) -> Result<BTreeMap<RunId, Left>, Error> {
    let observing = runtime.shared().observing;
    let stands = |info: &&RunInfo| match &info.status {
        Status::Parked(_) | Status::WaitingForCode { .. } => true,
        status => observing && !status.is_terminal(),
    };
    let runs = infos.iter().filter(stands).map(|info| info.id.clone()).collect();
    let mut left = read(runtime, runs).await?;
    let asks = |info: &RunInfo| matches!(info.status, Status::AwaitingAnswer { .. });
    let mut expired = BTreeSet::new();
    if observing && infos.iter().any(asks) {
        let now = crate::clock::system_time(runtime.shared().clock.wall());
        let over = runtime.questions().await?.into_iter().filter(|question| is_expired(question, now));
        expired.extend(over.map(|question| question.token));
    }
    for info in infos {
        let Some(left) = left.get_mut(&info.id) else { continue };
        if let Status::AwaitingSignal { names } = &info.status {
            let there = |name: &&String| {
                left.messages.iter().any(|m| matches!(m, Message::Signal(mail) if mail.name == **name))
            };
            left.signals = names.iter().filter(there).cloned().collect();
        }
        if observing && left.moves(&info.status, &expired) {
            info.status = Status::Interrupted;
        }
    }
    Ok(left)
}

/// The questions that somebody is to answer: those without an answer that only waits to be taken. And the runs that have such a one: nobody
/// knows yet whether it fits.
pub(super) async fn open_questions(runtime: &Runtime) -> Result<(Vec<OpenQuestion>, BTreeSet<RunId>), Error> {
    let mut questions = runtime.questions().await?;
    let left = read(runtime, questions.iter().map(|question| question.run.clone()).collect()).await?;
    let now = crate::clock::system_time(runtime.shared().clock.wall());
    let answered = |question: &&OpenQuestion| {
        left.get(&question.run).is_some_and(|left| left.answers(&question.path).next().is_some())
    };
    let answered = questions.iter().filter(answered).map(|question| question.run.clone()).collect();
    questions.retain(|question| left.get(&question.run).is_none_or(|left| left.is_open(question, now)));
    Ok((questions, answered))
}

/// The steps in doubt that somebody is to say something about. And the runs with one that somebody has spoken of: nobody knows yet whether
/// that fits.
pub(super) async fn open_holds(runtime: &Runtime) -> Result<(Vec<Hold>, BTreeSet<RunId>), Error> {
    let mut holds = runtime.holds().await?;
    let left = read(runtime, holds.iter().map(|hold| hold.run.clone()).collect()).await?;
    let is_open = |hold: &Hold| left.get(&hold.run).is_none_or(|left| left.word_on(hold.step, hold.attempt).is_none());
    let spoken = holds.iter().filter(|hold| !is_open(hold)).map(|hold| hold.run.clone()).collect();
    holds.retain(is_open);
    Ok((holds, spoken))
}

/// Who has asked before that a run be cancelled, and why, if nobody has taken that yet.
pub(super) async fn asked_to_cancel(runtime: &Runtime, run: &RunId) -> Result<Option<String>, Error> {
    let left = read(runtime, BTreeSet::from([run.clone()])).await?;
    Ok(left.get(run).and_then(|left| left.messages.iter().find_map(cancels)))
}

fn cancels(message: &Message) -> Option<String> {
    match message {
        Message::Cancel { reason, by, parent: None } => Some(format!("by {by}: {reason}")),
        _ => None,
    }
}

async fn read(runtime: &Runtime, runs: BTreeSet<RunId>) -> Result<BTreeMap<RunId, Left>, Error> {
    if runs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let shared = runtime.shared();
    let gone = shared.observing;
    let read = move |store: &dyn Store| {
        let of = |run: RunId| Ok((run.clone(), Left { gone, messages: messages(store, &run)?, ..Left::default() }));
        runs.into_iter().map(of).collect::<Result<BTreeMap<_, _>, StoreError>>()
    };
    let left = shared.read(read).await?;
    // What was read may not be durable yet, and nobody may see that.
    shared.write(Write::Barrier).await?;
    Ok(left)
}

/// What a run has not taken, but for what is about an earlier log.
fn messages(store: &dyn Store, run: &RunId) -> Result<Vec<Message>, StoreError> {
    let Some(record) = store.run(run)?.filter(|record| record.version > 0) else { return Ok(Vec::new()) };
    let newest = record.head.generation;
    let concerns = |message: &Message| match message {
        Message::Outcome { generation, .. }
        | Message::Resolve { generation, .. }
        | Message::Child { parent: Parent { generation, .. }, .. } => *generation == newest,
        Message::Reply(reply) => Generation(reply.generation) == newest,
        Message::Signal(_) | Message::Cancel { .. } => true,
    };
    let rows = store.rows(run, 0, usize::MAX)?;
    Ok(rows.iter().filter_map(|(_, row)| Message::read(row)).filter(concerns).collect())
}

fn is_expired(question: &OpenQuestion, now: SystemTime) -> bool {
    question.expires_at.is_some_and(|at| at <= now)
}

impl Left {
    /// Whether a run in this state goes on as soon as a process has it, by what was left or because a question has expired.
    fn moves(&self, status: &Status, expired: &BTreeSet<String>) -> bool {
        let any = |is: &dyn Fn(&Message) -> bool| self.messages.iter().any(is);
        match status {
            Status::Parked(_) | Status::WaitingForCode { .. } => false,
            _ if any(&|message| matches!(message, Message::Cancel { .. })) => true,
            Status::AwaitingAnswer { tokens } => {
                any(&|message| matches!(message, Message::Reply(_)))
                    || tokens.iter().any(|token| expired.contains(token))
            }
            Status::AwaitingSignal { .. } => !self.signals.is_empty(),
            Status::AwaitingChild { .. } => any(&|message| matches!(message, Message::Child { .. })),
            Status::Held { .. } => any(&|message| matches!(message, Message::Resolve { .. } | Message::Outcome { .. })),
            _ => false,
        }
    }

    /// Each thing that was left, in words.
    pub(super) fn words(&self) -> Vec<String> {
        let signals = self.signals.iter().map(|name| format!("the signal {name}"));
        self.messages.iter().filter_map(in_words).chain(signals).collect()
    }

    /// Whether it was asked that the run be cancelled.
    pub(super) fn cancels(&self) -> bool {
        self.messages.iter().any(|message| matches!(message, Message::Cancel { .. }))
    }

    /// The last word that was left on an attempt in doubt, which corrects those before it.
    pub(super) fn word_on(&self, step: StepNo, attempt: Attempt) -> Option<&Message> {
        let is_it = |message: &&Message| matches!(message, Message::Resolve { step: s, attempt: a, .. } if (*s, *a) == (step, attempt));
        self.messages.iter().rfind(is_it)
    }

    fn answers(&self, path: &str) -> impl Iterator<Item = &Reply> {
        self.messages.iter().filter_map(move |message| match message {
            Message::Reply(reply) if reply.path == path => Some(reply),
            _ => None,
        })
    }

    /// Whether anybody is to answer a question: nobody has, and nobody is too late.
    pub(super) fn is_open(&self, question: &OpenQuestion, now: SystemTime) -> bool {
        self.answers(&question.path).next().is_none() && !(self.gone && is_expired(question, now))
    }

    /// Says of an open step what was left for it, and what its log cannot say: that no process has it.
    pub(super) fn tell(
        &self,
        step: &StepView,
        holds: &[Hold],
        questions: &[OpenQuestion],
        now: SystemTime,
        row: &mut StepRow,
    ) {
        const WHEN: &str = "taken when a process that has its code opens the store";
        const IF_IT_FITS: &str = "taken, if it fits, when a process that has its code opens the store";
        let found = match (&step.state, step.kind) {
            (StepState::UnderWay, _) => {
                let outcome = |m: &Message| matches!(m, Message::Outcome { step: s, .. } if *s == step.step);
                match holds.iter().find(|hold| hold.step == step.step) {
                    _ if self.messages.iter().any(outcome) => Some(("ended", format!("its outcome is {WHEN}"))),
                    Some(hold) => Some(("in doubt", hold.reason.clone())),
                    None if self.gone => Some(("interrupted", "the process that ran it is gone".to_owned())),
                    None => None,
                }
            }
            (StepState::InDoubt { .. }, _) => {
                let word = |m: &&Message| matches!(m, Message::Resolve { step: s, .. } if *s == step.step);
                let word = self.messages.iter().rfind(word).and_then(in_words);
                word.map(|word| ("resolved", format!("{word}; {IF_IT_FITS}")))
            }
            (StepState::Waiting, StepKind::Question) => match self.answers(&step.path).next() {
                Some(reply) => Some(("answered", format!("{}; {IF_IT_FITS}", said(reply)))),
                None => {
                    let over = |question: &OpenQuestion| question.path == step.path && is_expired(question, now);
                    let over = self.gone && questions.iter().any(over);
                    over.then(|| ("expired", "nobody answered in time".to_owned()))
                }
            },
            _ => None,
        };
        if let Some((state, detail)) = found {
            (row.state, row.detail) = (state.to_owned(), Some(detail));
        }
    }
}

fn in_words(message: &Message) -> Option<String> {
    Some(match message {
        Message::Signal(_) => return None,
        Message::Cancel { parent: Some(_), .. } => "the request of its parent to cancel it".to_owned(),
        Message::Cancel { reason, by, parent: None } => format!("the request of {by} to cancel it: {reason}"),
        Message::Reply(reply) => format!("the answer to {}: {}", reply.path, said(reply)),
        Message::Resolve { step, attempt, how, by, .. } => {
            let how = match how {
                Verdict::Succeeded(value) | Verdict::Unchecked { ok: true, plain: value, .. } => {
                    format!("succeeded with {}", value.to_json())
                }
                Verdict::FailedWith(value) | Verdict::Unchecked { ok: false, plain: value, .. } => {
                    format!("failed with {}", value.to_json())
                }
                Verdict::Failed(why) => format!("failed: {why}"),
                Verdict::RunAgain => "to be run again".to_owned(),
            };
            format!("the word of {by} on step {step}, attempt {attempt}: {how}")
        }
        Message::Outcome { step, attempt, .. } => format!("the outcome of step {step}, attempt {attempt}"),
        Message::Child { child, .. } => format!("the end of run {child}"),
    })
}

fn said(reply: &Reply) -> String {
    match &reply.verdict {
        Ok(value) => format!("{} by {}", Value::from_bytes(value.clone()).to_json(), reply.by),
        Err(why) => format!("refused by {}: {why}", reply.by),
    }
}
