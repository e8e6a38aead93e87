//! A log as a table of steps.

use std::{collections::BTreeSet, fmt, time::SystemTime};

use serde_json::Value as Json;

use super::{log::value, time};
use crate::{
    clock::{Millis, system_time},
    contract::{Contract, site_by_id},
    core::Stop,
    entry::{Answered, ChildEnd, Entry, Kind, Outcome, Path, Resolved, Undo, each_entry},
    id::{Seq, StepNo},
    script::place,
    store::Record,
};

/// One step of a run, as its log has it.
///
/// Its `Display` is a line for people: number, path, what it is, and where it stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepView {
    /// Its number in the log.
    pub step: StepNo,
    /// Its path.
    pub path: String,
    /// What kind of step it is.
    pub kind: StepKind,
    /// What it calls or waits for: an effect, a signal's name, a question's title, a run, a time.
    pub what: String,
    /// The contract of an effect, which rules for this step whatever the code says now.
    pub contract: Option<Contract>,
    /// Where it stands.
    pub state: StepState,
    /// The code does not wait for it any more.
    pub dropped: bool,
    /// Attempts of an effect that were begun.
    pub attempts: u32,
    /// When the code asked for it.
    pub asked_at: SystemTime,
    /// When it was over.
    pub over_at: Option<SystemTime>,
    /// What it gave: a result, an error, the messages, an answer.
    pub outcome: Option<Json>,
    /// How many messages, answers, or words on its doubt were none that it takes.
    pub set_aside: u32,
    /// Why the last of them is none.
    pub set_aside_why: Option<String>,
    /// File and line of its call, if this binary has it.
    pub site: Option<String>,
}

/// What kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// A call of an effect, also one that undoes something.
    Effect,
    /// `sleep` and `sleep_until`.
    Sleep,
    /// `signal` and `signals`.
    Signal,
    /// `ask`.
    Question,
    /// `spawn`.
    Child,
    /// `send`.
    Send,
    /// `publish`.
    Publish,
    /// `undo`: what is to be called should the run fail or be cancelled.
    Undo,
    /// `version`.
    Version,
}

impl StepKind {
    /// One word.
    pub const fn as_str(self) -> &'static str {
        match self {
            StepKind::Effect => "effect",
            StepKind::Sleep => "sleep",
            StepKind::Signal => "signal",
            StepKind::Question => "question",
            StepKind::Child => "child",
            StepKind::Send => "send",
            StepKind::Publish => "publish",
            StepKind::Undo => "undo",
            StepKind::Version => "version",
        }
    }
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepState {
    /// An effect that waits for a free slot.
    Queued,
    /// An attempt may be under way.
    UnderWay,
    /// An attempt failed, and another one follows.
    Retrying {
        /// When.
        at: SystemTime,
    },
    /// An attempt was decided and never began, or is to run again.
    NotStarted,
    /// Nobody knows what the attempt did.
    InDoubt {
        /// Why.
        reason: String,
    },
    /// It waits for a time, a message, a person or another run.
    Waiting,
    /// It is over.
    Done,
    /// It is over: an error, a fault, a refusal, a child that did not complete.
    Failed,
    /// The code dropped it before it was over.
    Dropped,
}

impl StepState {
    /// One or two words.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StepState::Queued => "queued",
            StepState::UnderWay => "under way",
            StepState::Retrying { .. } => "retrying",
            StepState::NotStarted => "not started",
            StepState::InDoubt { .. } => "in doubt",
            StepState::Waiting => "waiting",
            StepState::Done => "done",
            StepState::Failed => "failed",
            StepState::Dropped => "dropped",
        }
    }

    /// Whether nothing more will be said of it.
    pub const fn is_over(&self) -> bool {
        matches!(self, StepState::Done | StepState::Failed | StepState::Dropped)
    }
}

impl fmt::Display for StepView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepView { step, path, kind, what, state, .. } = self;
        write!(f, "{step} {path}: {} {what}, {}", kind.as_str(), state.as_str())?;
        if self.dropped && *state != StepState::Dropped { f.write_str(", dropped") } else { Ok(()) }
    }
}

/// The steps of a log, in the order in which the code asked.
#[derive(Debug, Default)]
pub(crate) struct StepTable {
    next: Seq,
    steps: Vec<StepView>,
    /// What undoes, by its place in the list: effect and contract.
    undos: Vec<(String, Contract)>,
    /// The steps that undo something.
    undoing: BTreeSet<StepNo>,
}

impl StepTable {
    /// Takes the entries of records that follow, up to the log's first `len` entries.
    pub(crate) fn read(&mut self, records: Vec<Record>, len: u64) -> Result<(), Stop> {
        for record in records {
            each_entry(record.first, record.frames, |seq, _, entry| -> Result<(), Stop> {
                if seq == self.next && seq.0 < len {
                    self.take(entry);
                    self.next = seq.plus(1);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    pub(crate) fn into_steps(self) -> Vec<StepView> {
        self.steps
    }

    fn ask(&mut self, at: Millis, path: String, kind: StepKind, what: String, site: Option<u128>) -> &mut StepView {
        let step = StepNo(u32::try_from(self.steps.len()).unwrap_or(u32::MAX));
        let site = site.and_then(site_by_id).map(place);
        self.steps.push(StepView {
            step,
            path,
            kind,
            what,
            contract: None,
            state: StepState::Waiting,
            dropped: false,
            attempts: 0,
            asked_at: system_time(at),
            over_at: None,
            outcome: None,
            set_aside: 0,
            set_aside_why: None,
            site,
        });
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    fn asked(&mut self, at: Millis, path: &Path<'_>, kind: StepKind, what: &str, site: u128) -> &mut StepView {
        self.ask(at, path.to_string(), kind, what.to_owned(), Some(site))
    }

    fn step(&mut self, step: StepNo) -> Option<&mut StepView> {
        self.steps.get_mut(step.0 as usize)
    }

    fn is_over(&mut self, at: Millis, step: StepNo, failed: bool, outcome: Option<Json>) {
        if let Some(s) = self.step(step) {
            s.over(at, failed, outcome);
        }
    }

    /// What the code waited for comes to nobody any more. What is outward, and children, are still heard of until the run has ended.
    fn code_is_over(&mut self, at: Millis, ended: bool) {
        let undoing = &self.undoing;
        for step in self.steps.iter_mut().filter(|step| !undoing.contains(&step.step)) {
            let over = match step.state {
                StepState::Waiting => step.kind != StepKind::Child || ended,
                StepState::Queued | StepState::NotStarted | StepState::Retrying { .. } => true,
                StepState::UnderWay => ended,
                _ => false,
            };
            if over {
                (step.state, step.over_at, step.dropped) = (StepState::Dropped, Some(system_time(at)), true);
            }
        }
    }

    fn note_undo(&mut self, undo: &Undo<'_>) {
        self.undos.push((undo.effect.to_string(), undo.contract.into()));
    }

    fn take(&mut self, entry: &Entry<'_>) {
        let at = entry.at;
        match &entry.kind {
            Kind::RunStarted(started) => started.undos.iter().for_each(|undo| self.note_undo(undo)),
            Kind::CancelRequested { .. } => {}
            Kind::RunEnding(_) => self.code_is_over(at, false),
            Kind::RunEnded(_) => self.code_is_over(at, true),
            Kind::EffectQueued(call) | Kind::EffectCalled(call) => {
                let called = matches!(entry.kind, Kind::EffectCalled(_));
                let step = self.asked(at, &call.path, StepKind::Effect, call.effect(), call.site);
                step.contract = Some(call.contract.into());
                step.state = if called { StepState::UnderWay } else { StepState::Queued };
                step.attempts = u32::from(called);
            }
            Kind::TimerSet { path, site, deadline, .. } => {
                self.asked(at, path, StepKind::Sleep, &time(*deadline), *site);
            }
            Kind::VersionChosen { path, site, version } => {
                let step = self.asked(at, path, StepKind::Version, &path.name, *site);
                step.over(at, false, Some((*version).into()));
            }
            Kind::SignalAwaited { path, site, signal, .. } => {
                self.asked(at, path, StepKind::Signal, signal, *site);
            }
            Kind::QuestionAsked { path, site, question } => {
                self.asked(at, path, StepKind::Question, &question.title, *site);
            }
            Kind::ChildSpawned { path, site, child } => {
                self.asked(at, path, StepKind::Child, &child.run, *site);
            }
            Kind::MessageSent { path, site, to, signal, value: v, .. } => {
                let what = format!("{signal} to {to}");
                self.asked(at, path, StepKind::Send, &what, *site).over(at, false, Some(value(v)));
            }
            Kind::ValuePublished { path, site, name, value: v, .. } => {
                self.asked(at, path, StepKind::Publish, name, *site).over(at, false, Some(value(v)));
            }
            Kind::UndoAdded { path, site, undo } => {
                self.note_undo(undo);
                let step = self.asked(at, path, StepKind::Undo, &undo.effect, *site);
                step.contract = Some(undo.contract.into());
                step.over(at, false, Some(value(&undo.args)));
            }
            Kind::UndoCalled { undo } => {
                let place = *undo as usize;
                let (effect, contract) = self.undos.get(place).cloned().unzip();
                let (path, what) = (format!("undo[{undo}]"), effect.unwrap_or_default());
                let step = self.ask(at, path, StepKind::Effect, what, None);
                (step.contract, step.state, step.attempts) = (contract, StepState::UnderWay, 1);
                let step = step.step;
                self.undoing.insert(step);
            }
            Kind::StepClosed { step } => {
                if let Some(s) = self.step(*step) {
                    s.dropped = true;
                    // An outward body goes on, and its outcome is still recorded; so is a child's end.
                    let goes_on =
                        matches!(s.state, StepState::UnderWay | StepState::InDoubt { .. }) || s.kind == StepKind::Child;
                    if !s.state.is_over() && !goes_on {
                        (s.state, s.over_at) = (StepState::Dropped, Some(system_time(at)));
                    }
                }
            }
            Kind::TimerFired { step } => self.is_over(at, *step, false, None),
            Kind::SignalReceived { step, messages } => {
                let values: Vec<Json> = messages.iter().map(|message| value(&message.value)).collect();
                self.is_over(at, *step, false, Some(values.into()));
            }
            Kind::QuestionAnswered { step, answer, .. } => match answer {
                Answered::Granted(v) => self.is_over(at, *step, false, Some(value(v))),
                Answered::Refused(reason) => self.is_over(at, *step, true, Some(reason.as_ref().into())),
                Answered::Expired => self.is_over(at, *step, true, None),
            },
            Kind::ChildEnded { step, end, .. } => match end {
                ChildEnd::Completed { value: v } => self.is_over(at, *step, false, unwrapped(v, "Ok")),
                ChildEnd::Failed { value: v, .. } => self.is_over(at, *step, true, unwrapped(v, "Err")),
                ChildEnd::Cancelled { reason } => self.is_over(at, *step, true, Some(reason.as_ref().into())),
                ChildEnd::IdTaken => self.is_over(at, *step, true, Some("the id is taken".into())),
            },
            Kind::EffectResult { step, outcome, .. } => match outcome {
                // Nobody reads what a compensation returned, and it is not kept.
                Outcome::Ok(_) if self.undoing.contains(step) => self.is_over(at, *step, false, None),
                Outcome::Ok(v) => self.is_over(at, *step, false, unwrapped(v, "Ok")),
                Outcome::Err(v) => self.is_over(at, *step, true, unwrapped(v, "Err")),
                Outcome::Fault(fault) => self.is_over(at, *step, true, Some(fault.0.to_string().into())),
            },
            Kind::EffectCalledAgain { step, .. } => {
                if let Some(s) = self.step(*step) {
                    s.state = StepState::UnderWay;
                    s.attempts += 1;
                    s.outcome = None;
                }
            }
            Kind::EffectFailed { step, error, retry_at, .. } => {
                let why = match error {
                    Outcome::Ok(v) | Outcome::Err(v) => unwrapped(v, "Err"),
                    Outcome::Fault(fault) => Some(fault.0.to_string().into()),
                };
                if let Some(s) = self.step(*step) {
                    (s.state, s.outcome) = (StepState::Retrying { at: system_time(*retry_at) }, why);
                }
            }
            Kind::EffectNotStarted { step, .. } => {
                if let Some(s) = self.step(*step) {
                    s.attempts = s.attempts.saturating_sub(1);
                    s.state = if s.dropped { StepState::Dropped } else { StepState::NotStarted };
                }
            }
            Kind::EffectInDoubt { step, reason, .. } => {
                if let Some(s) = self.step(*step) {
                    s.state = StepState::InDoubt { reason: reason.to_string() };
                }
            }
            Kind::EffectResolved { step, how, .. } => {
                if let (Some(s), Resolved::RunAgain) = (self.step(*step), how) {
                    s.state = StepState::NotStarted;
                }
            }
            Kind::SignalSetAside { step, reason, .. } | Kind::ResolutionSetAside { step, reason, .. } => {
                if let Some(s) = self.step(*step) {
                    s.set_aside += 1;
                    s.set_aside_why = Some(reason.to_string());
                }
            }
        }
    }
}

impl StepView {
    fn over(&mut self, at: Millis, failed: bool, outcome: Option<Json>) {
        self.state = if failed { StepState::Failed } else { StepState::Done };
        self.over_at = Some(system_time(at));
        self.outcome = outcome;
    }
}

/// A returned value as JSON, and of a `Result` what is in it.
fn unwrapped(bytes: &[u8], variant: &str) -> Option<Json> {
    let json = value(bytes);
    match json {
        Json::Object(mut fields) if fields.len() == 1 && fields.contains_key(variant) => fields.remove(variant),
        json => Some(json),
    }
}
