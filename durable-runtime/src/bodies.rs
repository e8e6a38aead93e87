//! The effects of one run: when a body may begin, what its end means, and what becomes of a doubt.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    clock::Millis,
    contract::{Contract, EffectMeta},
    core::{Delivered, Stop},
    drive::{Life, Output},
    effect::{BodyEnd, Start},
    entry::{Kind, Outcome, RecordedFault, Undo},
    failure::Fault,
    fold::{EffectStep, Step, StepState, What},
    id::{Attempt, RunId, Seq, StepNo},
    log::Lost,
    mailbox::Message,
    recover::{GONE, Recover, recover},
    store::Act,
    value::{Args, Value, ValueError},
};

mod doubt;

pub(crate) use doubt::{Settle, Word};

/// A body that this life called.
pub(crate) enum Body {
    /// Its call, by the entry at that place, is not known to be durable yet.
    Waiting(Seq, Start),
    /// It was begun.
    Running {
        contract: Contract,
        /// The longest it may take, in milliseconds.
        timeout_ms: Option<Millis>,
        /// When that is over, on the monotonic clock.
        limit: Option<Millis>,
    },
}

/// The end of a body, or of what stands for one.
pub(crate) struct Report {
    step: StepNo,
    attempt: Attempt,
    end: End,
    /// The mailbox row that brought it.
    row: Option<u128>,
}

enum End {
    Body(BodyEnd),
    /// A recorded argument does not decode: no body ran.
    Undecodable(ValueError),
    /// Found by the engine: no body ran, or none that anybody knows the end of.
    Fault(Fault),
}

impl Report {
    pub(crate) fn unrecordable(step: StepNo, fault: Fault) -> Report {
        Report { step, attempt: Attempt(0), end: End::Fault(fault), row: None }
    }
}

/// What goes on when a life is over.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Ends of bodies that it has not looked at, or that its log has no place for any more, and whether they hold a slot.
    pub(crate) ends: Vec<(StepNo, Attempt, BodyEnd, bool)>,
    /// Bodies under way, each with its slot.
    pub(crate) running: Vec<(StepNo, Attempt)>,
    /// Bodies under way whose call is not in the log. The next life may give their step's number to another one, so
    /// what they return is nobody's.
    pub(crate) nowhere: Vec<(StepNo, Attempt)>,
    /// Runs that may have got a row, or have been made, by a batch whose fate nobody will ask about any more: they are to be woken.
    pub(crate) nudges: Vec<RunId>,
}

impl Life {
    // ---- beginning ----

    /// 128 bits of the effect's compile-time id and the step's place.
    pub(crate) fn effect_id(&self, meta: &EffectMeta, path: &str) -> u128 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(&meta.id.to_le_bytes());
        hash.update(path.as_bytes());
        hash.digest128()
    }

    /// The key that a provider knows the step by.
    pub(crate) fn key(&self, template: Option<&str>, path: &str) -> String {
        match template {
            Some(key) => key.to_owned(),
            None => format!("{}/{path}", self.setting.key_prefix),
        }
    }

    /// An attempt has been decided by the entry at `seq`; its body begins when that is durable. A `read_only` body begins at once: a crash
    /// can lose that it ran, and nobody can tell.
    pub(crate) fn called(&mut self, step: StepNo, seq: Seq, start: Start) {
        let attempt = start.attempt;
        let outward = self.effect_step(step).is_none_or(|e| e.contract.is_outward());
        self.bodies.insert((step, attempt), Body::Waiting(seq, start));
        if outward || attempt > Attempt(1) || self.careful {
            self.barrier.insert(seq, (step, attempt));
            self.pass_barrier();
        } else {
            self.begin_body(step, attempt);
        }
    }

    /// Begins the bodies whose calls are durable.
    pub(crate) fn pass_barrier(&mut self) {
        if self.stop.is_some() || self.lost.is_some() {
            return;
        }
        while let Some(first) = self.barrier.first_entry() {
            if *first.key() >= self.log.durable() {
                return;
            }
            let (step, attempt) = first.remove();
            self.begin_body(step, attempt);
        }
    }

    fn begin_body(&mut self, step: StepNo, attempt: Attempt) {
        let contract = self.effect_step(step).map_or(Contract::AtMostOnce, |e| e.contract);
        let Some(body) = self.bodies.get_mut(&(step, attempt)) else { return };
        let Body::Waiting(_, start) = body else { return };
        let timeout_ms = start.meta.timeout_ms;
        let limit = timeout_ms.map(|timeout| self.now.monotonic.saturating_add(timeout));
        let waiting = std::mem::replace(body, Body::Running { contract, timeout_ms, limit });
        let Body::Waiting(_, start) = waiting else { return };
        self.limits.extend(limit.map(|limit| (limit, step, attempt)));
        self.outputs.push(Output::Start(step, start));
    }

    /// The code's description of an effect that is open, or of what undoes.
    pub(crate) fn meta(&self, step: StepNo) -> Option<&'static EffectMeta> {
        match self.undo_of(step) {
            Some(undo) => (self.setting.effects)(&undo.effect, &undo.module),
            None => self.core().effect(step),
        }
    }

    /// The compensation that a step calls, if it is one that does.
    fn undo_of(&self, step: StepNo) -> Option<&Undo<'static>> {
        let state = self.state();
        Some(&state.undos[state.steps.get(&step)?.undo?])
    }

    /// Takes a slot, or asks to be told when one is free.
    pub(crate) fn take_slot(&mut self) -> bool {
        let taken = self.setting.slots.try_take();
        if !taken {
            self.outputs.push(Output::WantSlot);
        }
        taken
    }

    pub(crate) fn effect_step(&self, step: StepNo) -> Option<&EffectStep> {
        match self.state().steps.get(&step).map(|s| &s.what) {
            Some(What::Effect(effect)) => Some(effect),
            _ => None,
        }
    }

    /// Calls the next step that wants a slot; false if none does, or no slot is free.
    pub(crate) fn next_call(&mut self) -> bool {
        while let Some((due, step)) = self.retries.first().copied() {
            if due > self.now.monotonic {
                break;
            }
            self.retries.pop_first();
            self.wanting.push_back(step);
        }
        while let Some(step) = self.wanting.front().copied() {
            let next = match self.state().steps.get(&step) {
                Some(s) if self.is_wanted(step) => match s.state {
                    StepState::Queued => Some(Attempt(1)),
                    StepState::NotStarted(n) | StepState::Failed(n, _) => Some(Attempt(n.0 + 1)),
                    StepState::Called(n) if self.redo.contains(&step) => Some(Attempt(n.0 + 1)),
                    _ => None,
                },
                _ => None,
            };
            let (Some(attempt), Some(meta)) = (next, self.meta(step)) else {
                self.wanting.pop_front();
                if let (Some(_), Some(undo)) = (next, self.undo_of(step)) {
                    // What undoes was called by another binary than this.
                    let (effect, module) = (undo.effect.to_string(), undo.module.to_string());
                    self.halt(Stop::NoEffect { effect, module });
                    return false;
                }
                continue;
            };
            if !self.take_slot() {
                return false;
            }
            self.wanting.pop_front();
            self.redo.remove(&step);
            let seq = self.state().len;
            if !self.append(Kind::EffectCalledAgain { step, attempt }) {
                self.setting.slots.give();
                return false;
            }
            if let Some(start) = self.start(step, attempt, meta) {
                self.called(step, seq, start);
            }
            return true;
        }
        false
    }

    /// A later attempt, from what the log says of the step.
    pub(crate) fn start(&self, step: StepNo, attempt: Attempt, meta: &'static EffectMeta) -> Option<Start> {
        let effect = self.effect_step(step)?;
        let path = effect.called.path();
        Some(Start {
            meta,
            args: Args::from_value(Value::from_bytes(Bytes::copy_from_slice(effect.called.args()))),
            effect_id: self.effect_id(meta, &path),
            key: self.key(effect.called.key(), &path),
            path,
            attempt,
        })
    }

    // ---- ends ----

    /// A body has ended.
    pub(crate) fn ended(&mut self, step: StepNo, attempt: Attempt, end: Result<BodyEnd, ValueError>) {
        let end = match end {
            Ok(end) => End::Body(end),
            Err(e) => End::Undecodable(e),
        };
        self.queue.push_back(Report { step, attempt, end, row: None });
    }

    /// The body that has run out of time next, if one has.
    pub(crate) fn next_limit(&mut self) -> Option<(StepNo, Attempt)> {
        let (due, step, attempt) = self.limits.first().copied()?;
        if due > self.now.monotonic {
            return None;
        }
        self.limits.pop_first();
        Some((step, attempt))
    }

    /// A body has had its time. One that may be repeated is dropped; one that may not goes on, and its end, should it
    /// come, still removes the doubt.
    pub(crate) fn out_of_time(&mut self, step: StepNo, attempt: Attempt) {
        let Some(Body::Running { contract, timeout_ms, .. }) = self.bodies.get(&(step, attempt)) else { return };
        let timeout_ms = timeout_ms.unwrap_or(self.setting.cancel_grace_ms);
        if *contract == Contract::AtMostOnce || !self.is_wanted(step) {
            self.lingering.insert((step, attempt));
            self.outputs.push(Output::Unwanted(step, attempt));
        } else {
            self.outputs.push(Output::Abort(step, attempt));
        }
        self.body_ended(Report { step, attempt, end: End::Body(BodyEnd::TimedOut { timeout_ms }), row: None });
    }

    /// Gives back what a body of this life held.
    fn release(&mut self, step: StepNo, attempt: Attempt) -> bool {
        let Some(body) = self.bodies.remove(&(step, attempt)) else { return false };
        self.setting.slots.give();
        match body {
            Body::Waiting(seq, _) => drop(self.barrier.remove(&seq)),
            Body::Running { limit, .. } => {
                if let Some(limit) = limit {
                    self.limits.remove(&(limit, step, attempt));
                }
            }
        }
        true
    }

    /// What the end of a body means for its step.
    pub(crate) fn body_ended(&mut self, report: Report) {
        let Report { step, attempt, end, row } = report;
        let timed_out = matches!(end, End::Body(BodyEnd::TimedOut { .. }));
        let known = self.release(step, attempt) | (!timed_out && self.lingering.remove(&(step, attempt)));
        if let Some(row) = row {
            self.log.act(Act::Take { row });
        } else if !known && !matches!(end, End::Fault(_)) {
            return;
        }
        let Some(s) = self.state().steps.get(&step) else { return };
        let What::Effect(effect) = &s.what else { return };
        let (called, due) = match &s.state {
            StepState::Called(n) => (true, *n == attempt),
            StepState::InDoubt(n, ..) => (false, *n == attempt),
            StepState::Queued => (false, attempt == Attempt(0)),
            _ => (false, false),
        };
        let (wanted, undoes) = (self.is_wanted(step), s.undo.is_some());
        let (contract, begun, name) = (effect.contract, effect.begun, effect.called.effect().to_owned());
        if !due || (!wanted && contract == Contract::ReadOnly) {
            return;
        }
        if self.redo.remove(&step) {
            // It was to be called again at once, as nobody knew how it had ended.
            self.wanting.retain(|wanting| *wanting != step);
        }
        let meta = self.meta(step).filter(|_| wanted);
        let retry = meta.and_then(|meta| meta.retry).filter(|_| called && contract != Contract::AtMostOnce);
        let again = retry.filter(|retry| begun < retry.attempts);
        let end = match end {
            End::Body(end) => end,
            End::Undecodable(error) => {
                // No body ran, and none will with this code: the log stays as it is.
                return self.halt(Stop::Undecodable { step: name, site: None, error });
            }
            // What cannot be undone is held for a person, and what was to be undone before it waits.
            End::Fault(fault) if undoes => return self.hold_undo(step, attempt, called, &fault.to_string()),
            End::Fault(fault) => {
                let unsure = contract.is_outward() && attempt > Attempt(0);
                return self.fault(step, attempt, fault, unsure);
            }
        };
        let limit = self.setting.value_bytes_max;
        match end {
            BodyEnd::Ok { .. } | BodyEnd::NotRecordable { .. } if undoes => {
                // Nobody reads what it returned.
                self.result(step, attempt, Outcome::Ok(nothing()), false);
            }
            BodyEnd::Ok { value } | BodyEnd::Err { value, .. } if value.len() > limit => {
                let fault = Fault::NotRecordable {
                    effect: name,
                    reason: "its result is longer than the limit".into(),
                    size: Some(value.len() as u64),
                    limit: Some(limit as u64),
                };
                self.fault(step, attempt, fault, false);
            }
            BodyEnd::Ok { value } => self.result(step, attempt, Outcome::Ok(value.as_bytes().to_vec().into()), false),
            BodyEnd::NotRecordable { reason } => {
                let fault = Fault::NotRecordable { effect: name, reason, size: None, limit: None };
                self.fault(step, attempt, fault, false);
            }
            BodyEnd::Err { value, retry, message } => {
                let error = Outcome::Err(value.as_bytes().to_vec().into());
                match again.filter(|_| retry) {
                    Some(policy) => self.failed(step, attempt, error, policy.backoff_ms(attempt.0), false),
                    None if undoes => self.hold_undo(step, attempt, called, &message),
                    None => self.result(step, attempt, error, false),
                }
            }
            // Nobody can tell that it ran: it is no attempt.
            BodyEnd::ShutDown if contract == Contract::ReadOnly && called => {
                if self.append(Kind::EffectNotStarted { step, attempt }) {
                    self.wanting.push_back(step);
                }
            }
            unknown => {
                let (fault, reason) = unknown_end(&name, attempt, unknown);
                if contract == Contract::AtMostOnce || !wanted {
                    if called {
                        self.in_doubt(step, attempt, &reason);
                    }
                    return;
                }
                let unsure = contract.is_outward();
                match (again, retry) {
                    (Some(policy), _) => {
                        let error = Outcome::Fault(RecordedFault(fault));
                        self.failed(step, attempt, error, policy.backoff_ms(attempt.0), unsure);
                    }
                    _ if undoes && again.is_none() => self.hold_undo(step, attempt, called, &reason),
                    (None, Some(policy)) if policy.attempts > 1 => {
                        let fault =
                            Fault::AttemptsUsedUp { effect: name, attempts: begun, last: reason, crashed: false };
                        self.fault(step, attempt, fault, unsure);
                    }
                    _ => self.fault(step, attempt, fault, unsure),
                }
            }
        }
    }

    fn hold_undo(&mut self, step: StepNo, attempt: Attempt, called: bool, reason: &str) {
        if called {
            self.in_doubt(step, attempt, reason);
        }
    }

    fn result(&mut self, step: StepNo, attempt: Attempt, outcome: Outcome<'_>, unsure: bool) {
        let delivered = match &outcome {
            Outcome::Ok(value) | Outcome::Err(value) => Delivered::Value(Bytes::copy_from_slice(value)),
            Outcome::Fault(fault) => Delivered::Fault(Box::new(fault.0.clone())),
        };
        self.settling.remove(&step);
        self.complete(Kind::EffectResult { step, attempt, outcome, unsure }, step, delivered);
    }

    fn fault(&mut self, step: StepNo, attempt: Attempt, fault: Fault, unsure: bool) {
        self.result(step, attempt, Outcome::Fault(RecordedFault(fault)), unsure);
    }

    fn failed(&mut self, step: StepNo, attempt: Attempt, error: Outcome<'_>, wait: Millis, unsure: bool) {
        let retry_at = self.now.wall.saturating_add(wait);
        if self.append(Kind::EffectFailed { step, attempt, error, retry_at, unsure }) {
            self.retries.insert((self.now.monotonic.saturating_add(wait), step));
        }
    }

    // ---- what nobody wants any more ----

    /// A step was dropped by the code, or is stopped by a cancel.
    pub(crate) fn closed(&mut self, step: StepNo, was: &Step) {
        match (&was.what, &was.state) {
            (What::Timer { deadline, .. }, _) => self.disarm_timer(step, *deadline),
            (What::Signal { name, .. }, _) => self.mailbox.unwait(name, step),
            (What::Question(question), _) => self.close_question(step, question),
            (What::Child { .. }, _) => {}
            (What::Effect(effect), StepState::Called(attempt)) => self.unwanted(step, *attempt, effect.contract),
            _ => {
                self.settling.remove(&step);
                self.retries.retain(|(_, retry)| *retry != step);
            }
        }
    }

    fn unwanted(&mut self, step: StepNo, attempt: Attempt, contract: Contract) {
        match self.bodies.get_mut(&(step, attempt)) {
            Some(Body::Waiting(..)) => {
                self.release(step, attempt);
                // A `read_only` step that is closed is forgotten; the others are kept out of doubt by this entry.
                if contract.is_outward() {
                    self.append(Kind::EffectNotStarted { step, attempt });
                }
            }
            Some(Body::Running { .. }) if contract == Contract::ReadOnly => {
                self.release(step, attempt);
                self.outputs.push(Output::Abort(step, attempt));
            }
            Some(Body::Running { limit, .. }) => {
                let grace = self.now.monotonic.saturating_add(self.setting.cancel_grace_ms);
                let before = limit.replace(limit.map_or(grace, |limit| limit.min(grace)));
                if let Some(before) = before {
                    self.limits.remove(&(before, step, attempt));
                }
                self.limits.extend(limit.map(|limit| (limit, step, attempt)));
                self.outputs.push(Output::Unwanted(step, attempt));
            }
            None => {
                if self.redo.remove(&step) && contract.is_outward() {
                    self.in_doubt(step, attempt, "nobody waits for it any more");
                }
            }
        }
    }

    /// The code is over: no body begins any more.
    pub(crate) fn stop_bodies(&mut self) -> bool {
        let open: Vec<_> = self
            .state()
            .steps
            .iter()
            .filter_map(|(no, step)| match (&step.what, &step.state) {
                (What::Effect(effect), StepState::Called(n)) if !step.closed => Some((*no, *n, effect.contract)),
                _ => None,
            })
            .collect();
        for (step, attempt, contract) in open {
            self.unwanted(step, attempt, contract);
        }
        self.wanting.clear();
        self.retries.clear();
        self.settling.clear();
        self.wait_for_nothing();
        self.stop.is_none()
    }

    /// The run is not polled any more in this life (shutdown, or it is parked): calls that were decided and not begun are
    /// said not to have been, so that the next life does not hold them in doubt.
    pub(crate) fn drain(&mut self) {
        if self.lost.is_some() {
            return;
        }
        let waiting: Vec<_> = self.barrier.values().copied().collect();
        for (step, attempt) in waiting {
            self.release(step, attempt);
            let called = matches!(self.state().steps.get(&step), Some(Step { state: StepState::Called(n), .. }) if *n == attempt);
            if called && !self.append(Kind::EffectNotStarted { step, attempt }) {
                return;
            }
        }
        self.wanting.clear();
    }

    /// The life is over: what goes on without it. What holds a slot still holds it.
    pub(crate) fn leave(&mut self) -> Left {
        let mut left = Left { nudges: self.log.concerned(), ..Left::default() };
        let rejected = match &self.lost {
            Some(Lost::Rejected { seq, reason }) => Some((*seq, &**reason)),
            _ => None,
        };
        let state = self.state();
        let unwritten = self.log.unwritten_outcomes(state.next_step, rejected, |step| state.undoes(step));
        left.ends.extend(unwritten.into_iter().map(|(step, attempt, end)| (step, attempt, end, false)));
        for report in std::mem::take(&mut self.queue) {
            let Report { step, attempt, end: End::Body(end), row: None } = report else { continue };
            if self.is_recorded(step, attempt) {
                left.ends.push((step, attempt, end, self.bodies.remove(&(step, attempt)).is_some()));
            }
        }
        for ((step, attempt), body) in std::mem::take(&mut self.bodies) {
            match body {
                Body::Running { .. } if self.is_recorded(step, attempt) => left.running.push((step, attempt)),
                body => {
                    self.setting.slots.give();
                    if matches!(body, Body::Running { .. }) {
                        left.nowhere.push((step, attempt));
                    }
                }
            }
        }
        left
    }

    /// Whether a loss of power now would leave the attempt in the log, its end unknown.
    fn is_recorded(&self, step: StepNo, attempt: Attempt) -> bool {
        let Some(Step { what: What::Effect(effect), state, .. }) = self.state().steps.get(&step) else { return false };
        let open = matches!(state, StepState::Called(n) | StepState::InDoubt(n, ..) if *n == attempt);
        open && effect.called_seq < self.log.durable()
    }

    /// Takes over a body of an earlier life of this process. Its time begins anew.
    fn adopt(&mut self, step: StepNo, attempt: Attempt, contract: Contract) {
        let timeout_ms = self.core().effect(step).and_then(|meta| meta.timeout_ms);
        let limit = match self.is_wanted(step) {
            true => timeout_ms,
            false => Some(self.setting.cancel_grace_ms),
        };
        let limit = limit.map(|limit| self.now.monotonic.saturating_add(limit));
        self.limits.extend(limit.map(|limit| (limit, step, attempt)));
        self.bodies.insert((step, attempt), Body::Running { contract, timeout_ms, limit });
        self.adopted.insert((step, attempt), true);
    }

    /// The end of the log is reached: what earlier lives left open.
    pub(crate) fn take_over(&mut self) {
        let fresh: BTreeSet<_> = self.wanting.iter().copied().chain(self.queue.iter().map(|r| r.step)).collect();
        let open: Vec<_> = self.state().steps.keys().copied().collect();
        for step in open {
            // As it stands now: a doubt that is given to the code as an error closes, calls and ends others.
            let Some(s) = self.state().steps.get(&step).cloned() else { continue };
            let What::Effect(effect) = &s.what else { continue };
            if let StepState::Called(attempt) | StepState::InDoubt(attempt, ..) = s.state {
                match self.inherited.get(&(step, attempt)) {
                    Some(true) if matches!(s.state, StepState::Called(_)) => {
                        self.adopt(step, attempt, effect.contract);
                        continue;
                    }
                    Some(slot) => {
                        // In doubt, by another process's word or its own: as any such body it holds none.
                        if *slot {
                            self.setting.slots.give();
                        }
                        self.adopted.insert((step, attempt), *slot);
                        self.lingering.insert((step, attempt));
                    }
                    None => {}
                }
            }
            match s.state {
                StepState::Called(attempt) if !self.bodies.contains_key(&(step, attempt)) => {
                    if self.has_outcome(step, attempt) {
                        continue;
                    }
                    let wanted = self.is_wanted(step);
                    let attempts = self.meta(step).and_then(|meta| meta.retry).map(|retry| retry.attempts);
                    match recover(effect, wanted, attempts) {
                        Recover::RunAgain => {
                            self.redo.insert(step);
                            self.wanting.push_back(step);
                        }
                        Recover::InDoubt => self.in_doubt(step, attempt, GONE),
                        Recover::UsedUp if s.undo.is_some() => {
                            self.in_doubt(step, attempt, "its attempts are used up: the process died in the last one");
                        }
                        Recover::UsedUp => {
                            let fault = Fault::AttemptsUsedUp {
                                effect: effect.called.effect().to_owned(),
                                attempts: effect.begun,
                                last: "the process died in it".into(),
                                crashed: true,
                            };
                            self.queue.push_back(Report { step, attempt, end: End::Fault(fault), row: None });
                        }
                        Recover::Nothing => {}
                    }
                }
                // Not asked in this life's first poll: an earlier one left it so.
                StepState::Queued if !fresh.contains(&step) && self.is_wanted(step) => {
                    match effect.called.args().is_empty() {
                        // Not recorded then, so they are not what a body would get, whatever the limit is now.
                        true => {
                            let fault = self.core().unrecordable(step).unwrap_or_else(|| Fault::NotRecordable {
                                effect: effect.called.effect().to_owned(),
                                reason: "its arguments could not be recorded when it was called".to_owned(),
                                size: None,
                                limit: None,
                            });
                            self.queue.push_back(Report::unrecordable(step, fault));
                        }
                        false => self.wanting.push_back(step),
                    }
                }
                StepState::NotStarted(_) => self.wanting.push_back(step),
                StepState::Failed(attempt, retry_at) if self.is_wanted(step) => {
                    // A clock that was set back over the restart does not lengthen a wait whose bound is known.
                    let most = self.meta(step).and_then(|meta| meta.retry).map(|retry| retry.backoff_ms(attempt.0));
                    let latest = most.map_or(Millis::MAX, |most| self.now.monotonic.saturating_add(most));
                    let known = self.sleeps.known.remove(&step);
                    let due = known.unwrap_or_else(|| self.monotonic_of(retry_at).min(latest));
                    self.retries.insert((due, step));
                }
                StepState::InDoubt(attempt, reason, _) if !self.settling.contains_key(&step) => {
                    self.doubted(step, attempt, &reason);
                    if self.setting.found {
                        self.tell_held(step, attempt);
                    }
                }
                _ => {}
            }
            if self.stop.is_some() {
                return;
            }
        }
    }

    /// Whether an earlier life left the attempt's outcome in the mailbox.
    fn has_outcome(&self, step: StepNo, attempt: Attempt) -> bool {
        self.mailbox.facts().any(|message| {
            matches!(message, Message::Outcome { generation, step: s, attempt: a, .. }
                if (*generation, *s, *a) == (self.setting.generation, step, attempt))
        })
    }
}

/// An end after which nobody knows what the body did: as a fault, and in words.
fn unknown_end(effect: &str, attempt: Attempt, end: BodyEnd) -> (Fault, String) {
    let (effect, attempt) = (effect.to_owned(), attempt.0);
    match end {
        BodyEnd::TimedOut { timeout_ms } => {
            (Fault::TimedOut { effect, attempt, timeout_ms }, format!("it did not return within {timeout_ms} ms"))
        }
        BodyEnd::Panicked { message } => {
            let reason = format!("it panicked: {message}");
            (Fault::Panicked { effect, attempt, message }, reason)
        }
        BodyEnd::InDoubt { reason } => (Fault::InDoubt { effect, attempt, reason: reason.clone() }, reason),
        BodyEnd::ShutDown => {
            let reason = "the runtime was shut down and dropped it".to_owned();
            (Fault::InDoubt { effect, attempt, reason: reason.clone() }, reason)
        }
        BodyEnd::Ok { .. } | BodyEnd::Err { .. } | BodyEnd::NotRecordable { .. } => {
            unreachable!("an end that is known is handled as one")
        }
    }
}

/// What stands for the result of a compensation: a unit value.
fn nothing() -> std::borrow::Cow<'static, [u8]> {
    match Value::encode(&()) {
        Ok(value) => value.as_bytes().to_vec().into(),
        Err(e) => unreachable!("a unit does not encode: {e}"),
    }
}
