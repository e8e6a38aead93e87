//! How a run ends: its code returns, is dropped by a cancel, or goes on in a fresh log; then what is left is done from the log
//! alone.

use super::{Life, Over, commit::first_record};
use crate::{
    clock::Millis,
    contract::Returned,
    core::Stop,
    entry::{ChildEnd, End, EntryError, Kind, RunStarted},
    failure::shortened,
    fold::{Step, StepState, What},
    head::{HeadInfo, HowEnded, Started},
    id::{Attempt, Generation, RunId, StepNo},
    mailbox::Message,
    store::{Act, Wait},
};

#[cfg(test)]
use crate::sim::{Broken, is_broken};

impl Life {
    /// Whether a step is stopped by a cancel or by the end of the code. What undoes something never is.
    pub(crate) fn is_stopped(&self, step: StepNo) -> bool {
        let state = self.state();
        if state.steps.get(&step).is_some_and(|s| s.undo.is_some()) {
            return false;
        }
        state.ending.is_some() || state.cancel.is_some() && !self.core().shielded(step)
    }

    /// Whether somebody waits for what a step gives.
    pub(crate) fn is_wanted(&self, step: StepNo) -> bool {
        self.state().steps.get(&step).is_some_and(|s| !s.closed) && !self.is_stopped(step)
    }

    // ---- cancel ----

    /// Takes a cancel: from here on nothing is asked outside of shields but what undoes.
    pub(super) fn cancel(&mut self, reason: &str, by: &str) {
        if let Some(ending) = &self.state().ending {
            if !matches!(ending, End::Cancelled { .. }) {
                tell_too_late(reason, by);
            }
            return;
        }
        if !self.has_code() {
            // Not `run.cancel_requested`: it would stand where the code still had commands to ask.
            let (reason, by) = match &self.state().cancel {
                // One that was taken and whose code was lost since is not kept waiting for the code.
                Some(first) => (first.reason.to_string(), first.by.to_string()),
                None => (reason.to_owned(), by.to_owned()),
            };
            return self.end(End::Cancelled { reason: reason.into(), by: by.into() });
        }
        if self.state().cancel.is_some() {
            return;
        }
        let seq = self.state().len;
        if !self.append(Kind::CancelRequested { reason: reason.into(), by: by.into() }) {
            return;
        }
        self.first_step.get_or_insert(seq);
        let core = self.core_mut();
        core.cancelled = true;
        core.now = core.state.last_at;
        self.stop_steps(reason);
        self.polled(None);
    }

    /// What the cancel stops: no attempt begins, waits and sleeps end silently, children are told, bodies are told. What was stopped
    /// before is no more so after it.
    fn stop_steps(&mut self, reason: &str) {
        let open: Vec<_> = self.state().steps.keys().copied().collect();
        for step in open {
            let Some(s) = self.state().steps.get(&step).cloned() else { continue };
            if s.closed || !self.is_stopped(step) {
                continue;
            }
            if s.is_attached_child() {
                self.cancel_child(step, &s, reason);
            }
            self.closed(step, &s);
        }
    }

    /// What has outlived the shield that kept a cancel away from it (a child, a set, a step that was begun) is stopped when that is over.
    pub(super) fn shields_over(&mut self) {
        if !self.core_mut().take_shield_over() || self.state().ending.is_some() {
            return;
        }
        if let Some(cancel) = &self.state().cancel {
            let reason = cancel.reason.to_string();
            self.stop_steps(&reason);
        }
    }

    /// Once nothing more can be delivered to the code of a cancelled run, it is dropped.
    pub(super) fn cancelled(&mut self) -> bool {
        let Some(cancel) = self.state().cancel.clone() else { return false };
        if !self.has_code() || !self.is_quiet() {
            return false;
        }
        self.drop_code();
        self.end(End::Cancelled { reason: String::from(cancel.reason).into(), by: String::from(cancel.by).into() });
        true
    }

    fn is_quiet(&self) -> bool {
        self.state().steps.iter().filter(|(_, s)| !s.closed && s.state != StepState::Done).all(|(no, s)| {
            self.is_stopped(*no)
                && !s.is_attached_child()
                && match (&s.what, &s.state) {
                    (What::Effect(effect), StepState::Called(n) | StepState::InDoubt(n, ..)) => {
                        !effect.contract.is_outward() || !self.bodies.contains_key(&(*no, *n))
                    }
                    _ => true,
                }
        })
    }

    // ---- the code is over ----

    pub(super) fn code_over(&mut self, over: Over) {
        self.drop_code();
        let end = match over {
            Over::Returned(returned) => match self.end_of(returned) {
                Ok(end) => end,
                Err(reason) => return self.halt(Stop::Unrecordable { reason }),
            },
            Over::Restart(restart) => {
                let cancel = self.state().cancel.clone();
                #[cfg(test)]
                let cancel = cancel.filter(|_| !is_broken(Broken::RestartForgetsCancel));
                match cancel {
                    // A cancel that was taken is not forgotten.
                    Some(cancel) => End::Cancelled {
                        reason: String::from(cancel.reason).into(),
                        by: String::from(cancel.by).into(),
                    },
                    None => self.cancel_in_waiting().unwrap_or_else(|| End::Restarted {
                        workflow: restart.meta.name.into(),
                        module: restart.meta.module.into(),
                        explicit_name: restart.meta.explicit_name,
                        args: restart.args.value().as_bytes().to_vec().into(),
                        digest: restart.digest,
                    }),
                }
            }
        };
        self.end(end);
    }

    fn end_of(&self, returned: Returned) -> Result<End<'static>, String> {
        let limit = self.setting.value_bytes_max;
        let value = match returned.value {
            Ok(value) if value.len() <= limit => value.as_bytes().to_vec().into(),
            Ok(value) => return Err(format!("its result has {} bytes, more than the limit of {limit}", value.len())),
            Err(e) => return Err(format!("its result: {}", shortened(&e.to_string()))),
        };
        Ok(match returned.ok {
            true => End::Completed { value },
            false => End::Failed { value, message: returned.message.into() },
        })
    }

    /// The code is over. What is left, bodies, children, and what undoes, is done from the log alone.
    pub(super) fn end(&mut self, end: End<'static>) {
        if !self.stop_bodies() {
            return;
        }
        // Also those that a cancel has told, for which that is the same row: the log alone does not say whom a shield kept
        // from it.
        let open = self.state().steps.iter().filter(|(_, s)| s.is_attached_child() && !s.closed);
        let children: Vec<_> = open.map(|(no, s)| (*no, s.clone())).collect();
        for (step, child) in children {
            self.cancel_child(step, &child, "its parent has ended");
        }
        let state = self.state();
        let undoes = end.undoes() || matches!(end, End::Restarted { .. });
        let left = state.steps.values().any(|step| step.may_run_outside() || step.is_attached_child())
            || undoes && !state.undos.is_empty();
        if left {
            self.append(Kind::RunEnding(end));
        } else {
            self.terminate(end);
        }
    }

    /// Appends the terminal entry. A crash before it is durable replays the code up to its end, or the log up to
    /// `run.ending`, and gets here again.
    fn terminate(&mut self, end: End<'static>) {
        if !self.append(Kind::RunEnded(end.clone())) {
            return;
        }
        let at = self.state().last_at;
        if matches!(end, End::Completed { .. } | End::Failed { .. }) {
            for message in self.mailbox.facts() {
                if let Message::Cancel { reason, by, parent: None } = message {
                    tell_too_late(reason, by);
                }
            }
        }
        let Some(started) = self.started.clone() else { return };
        let (how, for_parent) = match end {
            End::Completed { value } => (HowEnded::Completed, ChildEnd::Completed { value }),
            End::Failed { value, message } => {
                (HowEnded::Failed(message.to_string()), ChildEnd::Failed { value, message })
            }
            End::Cancelled { reason, .. } => (HowEnded::Cancelled(reason.to_string()), ChildEnd::Cancelled { reason }),
            End::Restarted { workflow, module, explicit_name, args, digest } => {
                let generation = Generation(self.setting.generation.0.saturating_add(1));
                let first = RunStarted {
                    workflow,
                    module,
                    explicit_name,
                    args,
                    digest,
                    build: env!("CARGO_PKG_VERSION").into(),
                    seed: self.derived_seed(""),
                    born: started.at,
                    parent: self.state().parent.clone(),
                    undos: self.state().undos.clone(),
                };
                match first_record(first, at, generation) {
                    Ok((head, frames)) => {
                        self.log.act(Act::Next { count: 1, frames });
                        self.log.head(head);
                    }
                    Err(e) => drop(self.cannot_write(&e)),
                }
                return;
            }
        };
        if let Some(parent) = self.state().parent.clone()
            && let Ok(to) = RunId::new(&*parent.run)
        {
            let child = self.setting.run.as_str().to_owned();
            let row = Message::Child { child, parent, end: for_parent }.row();
            self.log.act(Act::Put { to, row });
        }
        self.log.head(HeadInfo::new(&started, Some((at, how))).head(self.setting.generation));
    }

    pub(super) fn cannot_write(&mut self, error: &EntryError) -> bool {
        self.halt(Stop::Unrecordable { reason: format!("an entry cannot be written: {error}") });
        false
    }

    // ---- from the log alone ----

    /// From `run.ending` on: bodies and children first, then what undoes, from the last to the first, then the terminal entry.
    pub(super) fn finish(&mut self) -> bool {
        let state = self.state();
        let Some(end) = state.ending.clone() else { return false };
        if self.is_outside() {
            return false;
        }
        if self.undo_due().is_some_and(|due| due > self.now.monotonic) {
            return false;
        }
        if end.undoes() && self.state().undos_left > 0 {
            return self.undo_next();
        }
        self.terminate(end);
        true
    }

    /// Whether something goes on that must be over before the run is.
    fn is_outside(&self) -> bool {
        self.state().steps.values().any(|step| step.may_run_outside() || step.is_attached_child())
    }

    /// Whether the next compensation is to be called: it waits for a slot, and for nothing else.
    fn is_undo_due(&self) -> bool {
        let state = self.state();
        state.ending.as_ref().is_some_and(End::undoes)
            && state.undos_left > 0
            && !state.steps.values().any(|step| step.undo.is_some())
            && !self.is_outside()
    }

    /// When no request of an attempt whose outcome is unknown can be under way any more, on the monotonic clock: nothing is
    /// undone before.
    pub(super) fn undo_due(&self) -> Option<Millis> {
        let state = self.state();
        let end = state.ending.as_ref()?;
        if state.undos.is_empty() || !(end.undoes() || matches!(end, End::Restarted { .. })) {
            return None;
        }
        let unsure = state.steps.iter().filter(|(_, s)| s.unsure && s.undo.is_none());
        let due = unsure.filter_map(|(no, s)| {
            let What::Effect(effect) = &s.what else { return None };
            let settle = (self.setting.settles)(effect.called.effect()).unwrap_or(self.setting.settle_ms);
            let since = self.unsure_since.get(no).copied().unwrap_or(self.now.monotonic);
            effect.contract.is_outward().then(|| since.saturating_add(settle))
        });
        due.max()
    }

    /// Until when, on the wall clock, what is to be undone waits because an outcome is unknown.
    pub(crate) fn settling_until(&self) -> Option<Millis> {
        self.undo_due().filter(|due| *due > self.now.monotonic).map(|due| self.wall_of(due))
    }

    /// Notes from when on this process knows that an outcome is unknown: what another process has recorded of its clock
    /// proves nothing.
    pub(super) fn note_unsure(&mut self, kind: &Kind<'_>) {
        let step = match kind {
            Kind::EffectInDoubt { step, .. } | Kind::EffectCalledAgain { step, .. } => *step,
            Kind::EffectResult { step, unsure: true, .. } | Kind::EffectFailed { step, unsure: true, .. } => *step,
            _ => return,
        };
        if self.state().steps.get(&step).is_some_and(|s| s.unsure) {
            self.unsure_since.insert(step, self.now.monotonic);
        }
    }

    /// Calls the last compensation that is not done; false if it is under way, or no slot is free.
    fn undo_next(&mut self) -> bool {
        let state = self.state();
        if state.steps.values().any(|s| s.undo.is_some()) {
            return false;
        }
        let place = state.undos_left - 1;
        let undo = state.undos[place].clone();
        let Some(meta) = (self.setting.effects)(&undo.effect, &undo.module) else {
            self.halt(Stop::NoEffect { effect: undo.effect.into_owned(), module: undo.module.into_owned() });
            return false;
        };
        if !self.take_slot() {
            return false;
        }
        let (step, seq) = (self.state().next_step, self.state().len);
        let Ok(place) = u32::try_from(place) else {
            unreachable!("each has a step of its own, and those are counted in 32 bits")
        };
        if !self.append(Kind::UndoCalled { undo: place }) {
            self.setting.slots.give();
            return false;
        }
        if let Some(start) = self.start(step, Attempt(1), meta) {
            self.called(step, seq, start);
        }
        true
    }

    // ---- waiting ----

    /// Stops a run that waits for nothing: no completion, message or time would ever make it go on.
    pub(super) fn idle(&mut self) -> bool {
        let state = self.state();
        let open = state.steps.values().any(|s| !s.closed && s.state != StepState::Done);
        if open || state.ending.is_some() || state.cancel.is_some() || !self.has_code() {
            return false;
        }
        if !self.bodies.is_empty() || !self.wanting.is_empty() || self.core().awaits_cancel() {
            return false;
        }
        // A step that was closed and may still act outside does not make the code go on.
        let after = self.core().last_site;
        self.halt(Stop::Idle { after });
        false
    }

    /// What the run waits for, if nothing of it must stay in memory: all that was appended is durable, no body is under way, and
    /// nothing can be done now.
    pub(crate) fn wait(&self) -> Option<Wait> {
        let state = self.state();
        let at_rest = |(no, s): (&StepNo, &Step)| match (&s.what, &s.state) {
            (What::Effect(_), StepState::Called(_) | StepState::Queued | StepState::NotStarted(_)) => {
                s.closed || self.is_stopped(*no)
            }
            _ => true,
        };
        // Who waits for nothing but a cancel stays: its log alone would not say so.
        let waits = state.ending.is_some() || state.steps.values().any(|s| !s.closed && s.state != StepState::Done);
        let unsettled = !self.log.is_settled() || self.log.trouble().is_some();
        #[cfg(test)]
        let unsettled = unsettled && !is_broken(Broken::EvictUndurable);
        let busy = !waits
            || self.stop.is_some()
            || self.lost.is_some()
            || state.ended
            || unsettled
            || !self.bodies.is_empty()
            || !self.lingering.is_empty()
            || !self.queue.is_empty()
            || self.mailbox.has_facts()
            || !self.wanting.is_empty()
            // Also once nobody is asked any more: another life would not know that all has settled, and would ask again.
            || !self.settling.is_empty()
            || !self.outputs.is_empty()
            || self.undo_due().is_some_and(|due| due > self.now.monotonic)
            || self.is_undo_due()
            || !state.steps.iter().all(at_rest);
        if busy {
            return None;
        }
        let (monotonic, wall) = self.due();
        let due = monotonic.map(|due| self.wall_of(due)).into_iter().chain(wall).min();
        Some(Wait { due, seen: self.mailbox.seen(), code: self.setting.code })
    }

    /// What elapses, for the next life in this process: sleeps and retries on the monotonic clock.
    pub(crate) fn elapsing(&self) -> Vec<(StepNo, Millis)> {
        self.sleeps.elapsing().chain(self.retries.iter().map(|(due, step)| (*step, *due))).collect()
    }
}

impl Started {
    pub(crate) fn of(started: &RunStarted<'_>) -> Started {
        Started {
            workflow: (&*started.workflow).into(),
            module: (&*started.module).into(),
            at: started.born,
            parent: started.parent.as_ref().map(|parent| (&*parent.run).into()),
        }
    }
}

/// Whoever asked for it while no process had the run has nobody else to hear it from.
fn tell_too_late(reason: &str, by: &str) {
    tracing::warn!(by, reason, "a request to cancel the run came too late: its code has returned, and that is its end");
}
