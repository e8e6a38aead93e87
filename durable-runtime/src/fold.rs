//! The state of a run is the fold of its entries: a pure function, and the only place that says which entry may follow which.

use std::{borrow::Cow, fmt, mem};

use crate::{
    by_step::ByStep,
    clock::Millis,
    contract::Contract,
    entry::{Call, End, Entry, Kind, Outcome, Parent, Path, Question, Resolved, Undo},
    id::{Attempt, Seq, StepNo},
};

mod called;

pub(crate) use called::Called;

/// What a log says so far. Steps that are over and of no further interest are not kept, so a run of a million steps folds
/// into the few that are open.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunState {
    /// Number of entries folded: the place of the next one.
    pub len: Seq,
    /// Time of the last entry.
    pub last_at: Millis,
    /// The open steps, and those over whose effect on the world is still unknown.
    pub steps: ByStep<Step>,
    /// The number that the next step will have.
    pub next_step: StepNo,
    /// How the run is ending, from `run.ending` on.
    pub ending: Option<End<'static>>,
    /// Whether the terminal entry is there.
    pub ended: bool,
    /// Why, and by whom, the run is to be cancelled, from `run.cancel_requested` on.
    pub cancel: Option<Cancel>,
    /// Whose child it is.
    pub parent: Option<Parent<'static>>,
    /// Compensations, in the order of registration; those of earlier logs first.
    pub undos: Vec<Undo<'static>>,
    /// How many of them are not done: they are done from the last to the first.
    pub undos_left: usize,
    /// The memory of a call that is over.
    spare: Called,
}

/// A cancellation that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    /// Why.
    pub reason: Box<str>,
    /// Who asked.
    pub by: Box<str>,
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What kind of step it is.
    pub what: What,
    /// Where it stands.
    pub state: StepState,
    /// Dropped by the code: its outcome is delivered to nobody.
    pub closed: bool,
    /// Some attempt's effect on the world is unknown. A later clean failure does not erase that; an `Ok` or a resolution does.
    pub unsure: bool,
    /// The place in the list of compensations, if it is one that is called.
    pub undo: Option<usize>,
}

/// What kind of step.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// An effect.
    Effect(EffectStep),
    /// A sleep.
    Timer {
        /// When it is due.
        deadline: Millis,
        /// Whether it follows the wall clock.
        absolute: bool,
    },
    /// A wait for a signal.
    Signal {
        /// The signal's name.
        name: Box<str>,
        /// Whether it takes all that are there, and waits for none.
        drain: bool,
    },
    /// A question to a person.
    Question(Box<QuestionStep>),
    /// A child run.
    Child {
        /// Path, as text.
        path: Box<str>,
        /// Its id.
        run: Box<str>,
        /// Whether it goes on when the parent ends.
        detached: bool,
    },
}

/// What the fold keeps of a question.
#[derive(Clone, Debug)]
pub(crate) struct QuestionStep {
    /// Path, as text.
    pub path: Box<str>,
    /// What is asked.
    pub question: Question<'static>,
    /// When it was asked.
    pub asked_at: Millis,
    /// Answers that were of no use.
    pub set_aside: SetAside,
}

/// What came for a step and was of no use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetAside {
    /// How often something did.
    pub times: u32,
    /// Why the last one was of no use.
    pub why: Box<str>,
}

impl SetAside {
    fn another(&mut self, why: &str) {
        *self = SetAside { times: self.times.saturating_add(1), why: why.into() };
    }

    /// As people see it.
    pub(crate) fn shown(&self) -> Option<(u32, &str)> {
        (self.times > 0).then_some((self.times, &*self.why))
    }
}

/// What the fold keeps of an effect.
#[derive(Clone, Debug)]
pub(crate) struct EffectStep {
    /// What was called.
    pub called: Called,
    /// The contract that rules for this step.
    pub contract: Contract,
    /// Bodies ever begun, as far as the log knows.
    pub begun: u32,
    /// Place of the entry that allows the current attempt.
    pub called_seq: Seq,
    /// Time of that entry.
    pub called_at: Millis,
    /// Words on the doubt about the current attempt that were of no use.
    pub set_aside: SetAside,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepState {
    /// A sleep, a wait, a question or a child that is not over.
    Waiting,
    /// An effect that was asked and waits for a slot.
    Queued,
    /// The attempt may have begun.
    Called(Attempt),
    /// The attempt failed; the next one is due at that time.
    Failed(Attempt, Millis),
    /// The attempt never began, or is to run again.
    NotStarted(Attempt),
    /// Nobody knows what the attempt did. Why, and since when.
    InDoubt(Attempt, Box<str>, Millis),
    /// Over.
    Done,
}

/// An entry that cannot follow the ones before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IllegalEntry {
    /// Its place.
    pub seq: Seq,
    /// Its name.
    pub entry: &'static str,
    /// Why not.
    pub why: &'static str,
}

impl fmt::Display for IllegalEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq {}: {} cannot stand here: {}", self.seq, self.entry, self.why)
    }
}

impl std::error::Error for IllegalEntry {}

impl RunState {
    /// Folds one more entry.
    ///
    /// # Errors
    ///
    /// [`IllegalEntry`]; then the state is as before.
    pub(crate) fn apply(&mut self, entry: &Entry<'_>) -> Result<(), IllegalEntry> {
        let seq = self.len;
        self.fold(seq, entry).map_err(|why| IllegalEntry { seq, entry: entry.kind.name(), why })?;
        self.len = seq.plus(1);
        self.last_at = entry.at;
        Ok(())
    }

    fn fold(&mut self, seq: Seq, entry: &Entry<'_>) -> Result<(), &'static str> {
        if self.ended {
            return Err("the run has ended");
        }
        if entry.at < self.last_at {
            return Err("time goes backwards");
        }
        if (seq == Seq(0)) != matches!(entry.kind, Kind::RunStarted(_)) {
            return Err("a log begins with run.started, once");
        }
        if entry.kind.is_command() && self.ending.is_some() {
            return Err("the code is over");
        }
        match &entry.kind {
            Kind::RunStarted(started) => {
                self.parent = started.parent.clone().map(Parent::into_owned);
                self.undos = started.undos.iter().cloned().map(Undo::into_owned).collect();
                self.undos_left = self.undos.len();
            }
            Kind::RunEnding(end) => {
                if self.ending.is_some() {
                    return Err("the run is ending already");
                }
                self.ending = Some(end.clone().into_owned());
            }
            Kind::RunEnded(end) => {
                if self.ending.as_ref().is_some_and(|announced| announced != end) {
                    return Err("another end than announced");
                }
                if self.steps.values().any(Step::may_run_outside) {
                    return Err("a body may still be under way");
                }
                if self.steps.values().any(Step::is_attached_child) {
                    return Err("a child has not ended");
                }
                if end.undoes() && self.undos_left > 0 {
                    return Err("not everything is undone");
                }
                self.ending = Some(end.clone().into_owned());
                self.ended = true;
            }
            Kind::EffectQueued(call) => {
                let step = EffectStep::of(call, mem::take(&mut self.spare), seq, entry.at, 0);
                self.ask(What::Effect(step), StepState::Queued);
            }
            Kind::EffectCalled(call) => {
                let step = EffectStep::of(call, mem::take(&mut self.spare), seq, entry.at, 1);
                self.ask(What::Effect(step), StepState::Called(Attempt(1)));
            }
            Kind::TimerSet { deadline, absolute, .. } => {
                self.ask(What::Timer { deadline: *deadline, absolute: *absolute }, StepState::Waiting);
            }
            Kind::VersionChosen { .. } | Kind::MessageSent { .. } | Kind::ValuePublished { .. } => {
                self.next_step.0 += 1;
            }
            Kind::SignalAwaited { signal, drain, .. } => {
                self.ask(What::Signal { name: (&**signal).into(), drain: *drain }, StepState::Waiting);
            }
            Kind::QuestionAsked { path, question, .. } => {
                let step = QuestionStep {
                    path: path.to_string().into(),
                    question: question.clone().into_owned(),
                    asked_at: entry.at,
                    set_aside: SetAside::default(),
                };
                self.ask(What::Question(Box::new(step)), StepState::Waiting);
            }
            Kind::ChildSpawned { path, child, .. } => {
                let (path, run) = (path.to_string().into(), (&*child.run).into());
                self.ask(What::Child { path, run, detached: child.detached }, StepState::Waiting);
            }
            Kind::UndoAdded { undo, .. } => {
                self.undos.push(undo.clone().into_owned());
                self.undos_left = self.undos.len();
                self.next_step.0 += 1;
            }
            Kind::StepClosed { step } => self.open(*step, |s| match s.closed {
                true => Err("the step is closed already"),
                false => {
                    s.closed = true;
                    Ok(())
                }
            })?,
            Kind::SignalReceived { step, .. } => self.wait_over(*step, |what| matches!(what, What::Signal { .. }))?,
            Kind::QuestionAnswered { step, .. } => self.wait_over(*step, |what| matches!(what, What::Question(_)))?,
            Kind::ChildEnded { step, .. } => self.open(*step, |s| match (&s.what, &s.state) {
                (What::Child { .. }, StepState::Waiting) => {
                    s.state = StepState::Done;
                    Ok(())
                }
                _ => Err("no child is open there"),
            })?,
            Kind::CancelRequested { reason, by } => {
                if self.cancel.is_some() {
                    return Err("the run is cancelled already");
                }
                if self.ending.is_some() {
                    return Err("the code is over");
                }
                self.cancel = Some(Cancel { reason: (&**reason).into(), by: (&**by).into() });
            }
            Kind::SignalSetAside { step, reason, .. } => self.open(*step, |s| match (&mut s.what, &s.state) {
                (What::Signal { .. }, StepState::Waiting) => Ok(()),
                (What::Question(question), StepState::Waiting) => {
                    question.set_aside.another(reason);
                    Ok(())
                }
                _ => Err("nobody waits for it"),
            })?,
            Kind::ResolutionSetAside { step, attempt, reason, .. } => {
                self.open(*step, |s| match (&mut s.what, &s.state) {
                    (What::Effect(effect), StepState::InDoubt(n, ..)) if n == attempt => {
                        effect.set_aside.another(reason);
                        Ok(())
                    }
                    _ => Err("that attempt is not in doubt"),
                })?;
            }
            Kind::UndoCalled { undo } => {
                let next = self.undos_left.checked_sub(1);
                if !self.ending.as_ref().is_some_and(End::undoes) || next != Some(*undo as usize) {
                    return Err("not the compensation that is next");
                }
                if self.steps.values().any(|s| s.undo.is_some()) {
                    return Err("one compensation at a time");
                }
                let effect = EffectStep::of_undo(&self.undos[*undo as usize], *undo, seq, entry.at);
                self.ask(What::Effect(effect), StepState::Called(Attempt(1)));
                let step = StepNo(self.next_step.0 - 1);
                if let Some(s) = self.steps.get_mut(&step) {
                    s.undo = Some(*undo as usize);
                }
            }
            Kind::EffectResult { step, attempt, outcome, unsure } => self.open(*step, |s| {
                let due = match (&s.what, &s.state) {
                    (What::Effect(_), StepState::Called(n) | StepState::InDoubt(n, ..)) => n == attempt,
                    (What::Effect(_), StepState::Queued) => {
                        *attempt == Attempt(0) && matches!(outcome, Outcome::Fault(_))
                    }
                    _ => false,
                };
                if !due {
                    return Err("no outcome of that attempt is due");
                }
                s.unsure = !matches!(outcome, Outcome::Ok(_)) && (s.unsure || *unsure);
                s.state = StepState::Done;
                Ok(())
            })?,
            Kind::TimerFired { step } => self.wait_over(*step, |what| matches!(what, What::Timer { .. }))?,
            Kind::EffectCalledAgain { step, attempt } => {
                let (ending, at) = (self.ending.is_some(), entry.at);
                self.open(*step, |s| {
                    let next = match &s.state {
                        StepState::Queued => 1,
                        StepState::Called(n) | StepState::Failed(n, _) | StepState::NotStarted(n) => n.0 + 1,
                        _ => return Err("the step cannot be called"),
                    };
                    if s.closed || (ending && s.undo.is_none()) {
                        return Err("nobody wants the step any more");
                    }
                    if *attempt != Attempt(next) {
                        return Err("not the next attempt");
                    }
                    // The attempt before it died with its process.
                    s.unsure |= matches!(s.state, StepState::Called(_));
                    let What::Effect(effect) = &mut s.what else { return Err("not an effect") };
                    effect.begun += 1;
                    effect.called_seq = seq;
                    effect.called_at = at;
                    effect.set_aside = SetAside::default();
                    s.state = StepState::Called(*attempt);
                    Ok(())
                })?;
            }
            Kind::EffectFailed { step, attempt, retry_at, unsure, .. } => self.open(*step, |s| {
                s.called(*attempt)?;
                s.unsure |= *unsure;
                s.state = StepState::Failed(*attempt, *retry_at);
                Ok(())
            })?,
            Kind::EffectNotStarted { step, attempt } => self.open(*step, |s| {
                s.called(*attempt)?;
                if let What::Effect(effect) = &mut s.what {
                    effect.begun = effect.begun.saturating_sub(1);
                }
                s.state = StepState::NotStarted(*attempt);
                Ok(())
            })?,
            Kind::EffectInDoubt { step, attempt, reason } => {
                let at = entry.at;
                self.open(*step, |s| {
                    s.called(*attempt)?;
                    s.unsure = true;
                    s.state = StepState::InDoubt(*attempt, (&**reason).into(), at);
                    Ok(())
                })?;
            }
            Kind::EffectResolved { step, attempt, how, .. } => self.open(*step, |s| match &s.state {
                StepState::InDoubt(n, ..) if n == attempt => {
                    s.unsure = false;
                    if *how == Resolved::RunAgain {
                        s.state = StepState::NotStarted(*attempt);
                    }
                    Ok(())
                }
                _ => Err("that attempt is not in doubt"),
            })?,
        }
        Ok(())
    }

    fn ask(&mut self, what: What, state: StepState) {
        self.steps.insert(self.next_step, Step { what, state, closed: false, unsure: false, undo: None });
        self.next_step.0 += 1;
    }

    /// A wait of the code is over.
    fn wait_over(&mut self, step: StepNo, is_that: impl FnOnce(&What) -> bool) -> Result<(), &'static str> {
        let ending = self.ending.is_some();
        self.open(step, |s| match (is_that(&s.what), &s.state, s.closed || ending) {
            (true, StepState::Waiting, false) => {
                s.state = StepState::Done;
                Ok(())
            }
            _ => Err("nobody waits there"),
        })
    }

    /// Whether a step undoes something. Those that do are the last ones: the code asks for nothing after the first of them.
    pub(crate) fn undoes(&self, step: StepNo) -> bool {
        let open = self.steps.values().any(|s| s.undo.is_some());
        let called = self.undos.len() - self.undos_left + usize::from(open);
        (step.0 as usize) + called >= self.next_step.0 as usize
    }

    /// Changes an open step, and forgets it if it is over.
    fn open(
        &mut self,
        step: StepNo,
        change: impl FnOnce(&mut Step) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let s = match self.steps.get_mut(&step) {
            Some(s) if s.state != StepState::Done => s,
            _ => return Err("no such step is open"),
        };
        change(s)?;
        if s.undo.is_some() && s.state == StepState::Done {
            self.undos_left -= 1;
            self.forget(step);
        } else if s.is_over() {
            self.forget(step);
        }
        Ok(())
    }

    fn forget(&mut self, step: StepNo) {
        let spare = &mut self.spare;
        self.steps.remove(&step, |step| {
            if let What::Effect(EffectStep { called, .. }) = &mut step.what
                && called.is_spare()
            {
                *spare = mem::take(called);
            }
        });
    }
}

impl EffectStep {
    fn of(call: &Call<'_>, mut called: Called, seq: Seq, at: Millis, begun: u32) -> EffectStep {
        called.fill(&call.path, call.effect.as_deref(), call.key.as_deref(), &call.args);
        EffectStep {
            called,
            contract: call.contract.into(),
            begun,
            called_seq: seq,
            called_at: at,
            set_aside: SetAside::default(),
        }
    }

    fn of_undo(undo: &Undo<'_>, place: u32, seq: Seq, at: Millis) -> EffectStep {
        let mut called = Called::default();
        let path = Path { scope: "".into(), name: "undo".into(), n: place };
        called.fill(&path, Some(&undo.effect), undo.key.as_deref(), &undo.args);
        EffectStep {
            called,
            contract: undo.contract.into(),
            begun: 1,
            called_seq: seq,
            called_at: at,
            set_aside: SetAside::default(),
        }
    }
}

impl Question<'_> {
    pub(crate) fn into_owned(self) -> Question<'static> {
        Question {
            title: Cow::Owned(self.title.into_owned()),
            about: Cow::Owned(self.about.into_owned()),
            by: self.by.into_iter().map(|by| Cow::Owned(by.into_owned())).collect(),
            digest: self.digest,
            deadline: self.deadline,
        }
    }
}

impl Step {
    fn called(&self, attempt: Attempt) -> Result<(), &'static str> {
        match self.state {
            StepState::Called(n) if n == attempt => Ok(()),
            _ => Err("that attempt is not under way"),
        }
    }

    /// Whether nothing will be said of it any more.
    fn is_over(&self) -> bool {
        match (&self.what, &self.state) {
            (_, StepState::Done) => !self.unsure,
            (What::Timer { .. } | What::Signal { .. } | What::Question(_), _) => self.closed,
            // What becomes of a child that was dropped is recorded all the same.
            (What::Child { detached, .. }, _) => self.closed && *detached,
            (What::Effect(e), StepState::Called(_)) => self.closed && !e.contract.is_outward(),
            (What::Effect(_), StepState::InDoubt(..)) => false,
            (What::Effect(_), _) => self.closed && !self.unsure,
        }
    }

    /// Whether a body that the world can notice may be under way.
    pub(crate) fn may_run_outside(&self) -> bool {
        matches!((&self.what, &self.state), (What::Effect(e), StepState::Called(_)) if e.contract.is_outward())
    }

    /// Whether it is a child that must have ended before the run does.
    pub(crate) fn is_attached_child(&self) -> bool {
        matches!((&self.what, &self.state), (What::Child { detached: false, .. }, StepState::Waiting))
    }
}

#[cfg(test)]
mod tests;
