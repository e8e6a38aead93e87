//! Steps in doubt: what is asked, who may say what happened, and from when on a body may run again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{End, Report, nothing};
use crate::{
    clock::Millis,
    contract::{ReconcileEnd, WhenInDoubt},
    drive::{Life, Now, Output},
    effect::{BodyEnd, panic_text},
    entry::{Kind, Outcome, Resolved},
    failure::{Fault, shortened},
    fold::{Step, StepState, What},
    id::{Attempt, StepNo},
    mailbox::{Message, Verdict},
    store::Act,
    value::{Value, ValueError},
};

/// How often a reconcile function may answer "unknown" before the step is held for a person.
const RECONCILE_TRIES_MAX: u32 = 10;
/// Longest wait between two questions to a reconcile function.
const RECONCILE_WAIT_MAX_MS: Millis = 5 * 60 * 1000;
/// Why a word is of no use that was followed by another one.
const CORRECTED: &str = "another word was given after it";
/// Why a word is of no use that came after one that counts.
const GIVEN_BEFORE: &str = "a word was given before it, and waits until it can be done";

/// A person's word on a doubt.
pub(crate) struct Word {
    pub(crate) how: Verdict,
    pub(crate) by: String,
    /// It was given while the run did not go on, and may be corrected by a later one.
    pub(crate) kept: bool,
}

/// A step in doubt that may be asked about, or run again, from some moment on.
#[derive(Debug)]
pub(crate) struct Settle {
    /// When there is something to do next, on the monotonic clock.
    pub(crate) due: Millis,
    /// When no request of the dead body can be under way any more.
    settled: Millis,
    attempt: Attempt,
    tries: u32,
    /// A person has said "run again": the row that says so, who, and whether it was kept.
    again: Option<(u128, String, bool)>,
    /// Whether a reconcile function is to be asked.
    asks: bool,
}

impl Settle {
    /// Whether it goes on without a person: a reconcile function is, or will be, asked, or a person has spoken.
    pub(crate) fn is_under_way(&self) -> bool {
        self.asks || self.again.is_some()
    }
}

impl Life {
    pub(super) fn in_doubt(&mut self, step: StepNo, attempt: Attempt, reason: &str) {
        if self.append(Kind::EffectInDoubt { step, attempt, reason: reason.into() }) {
            self.doubted(step, attempt, reason);
            self.tell_held(step, attempt);
        }
    }

    /// A step waits for a person from now on, if it does: said once, where the program says such things.
    pub(super) fn tell_held(&self, step: StepNo, attempt: Attempt) {
        if let Some(Step { what: What::Effect(effect), state: StepState::InDoubt(n, ..), .. }) =
            self.state().steps.get(&step)
            && *n == attempt
            && let Some(words) = self.held_by(step)
        {
            tracing::warn!(%step, path = %effect.called.path(), %attempt, "{words}");
        }
    }

    /// What is to be said of each step that waits for a person.
    pub(crate) fn held(&self) -> Vec<String> {
        self.state().steps.keys().filter_map(|step| self.held_by(*step)).collect()
    }

    fn held_by(&self, step: StepNo) -> Option<String> {
        let Some(Step { state: StepState::InDoubt(attempt, reason, _), closed: false, undo, .. }) =
            self.state().steps.get(&step)
        else {
            return None;
        };
        let goes_on = self.settling.get(&step).is_some_and(Settle::is_under_way) || self.is_spoken_of(step, *attempt);
        if !self.is_wanted(step) || goes_on {
            return None;
        }
        let why = match undo {
            // It may well be known that it failed.
            Some(_) => "what it was to undo may still stand",
            None => "nobody knows what it did",
        };
        let run = &self.setting.run;
        Some(format!(
            "held, as {why}: {reason}; find out, and say so by Runtime::resolve or `durable resolve {run} {step} {attempt} ..`"
        ))
    }

    /// What the effect's attribute says about a doubt.
    pub(super) fn doubted(&mut self, step: StepNo, attempt: Attempt, reason: &str) {
        let Some(s) = self.state().steps.get(&step).filter(|s| s.undo.is_none()) else { return };
        debug_assert!(matches!(s.state, StepState::InDoubt(..)));
        let Some(meta) = self.core().effect(step).filter(|_| self.is_wanted(step)) else { return };
        match meta.in_doubt {
            WhenInDoubt::Hold => {}
            // Whoever said what happened knows more than the error does.
            WhenInDoubt::Error if self.is_spoken_of(step, attempt) => {}
            WhenInDoubt::Error => {
                let reason = reason.to_owned();
                let fault = Fault::InDoubt { effect: meta.name.to_owned(), attempt: attempt.0, reason };
                self.fault(step, attempt, fault, true);
            }
            WhenInDoubt::Reconcile { settle_ms, .. } => {
                let due = self.now.monotonic.saturating_add(settle_ms);
                self.settling.insert(step, Settle { due, settled: due, attempt, tries: 0, again: None, asks: true });
            }
        }
    }

    /// Asks about, or calls again, the next step whose doubt has settled.
    pub(crate) fn next_settled(&mut self) -> bool {
        let now = self.now.monotonic;
        let Some((step, settle)) = self.settling.iter_mut().find(|(_, settle)| settle.due <= now) else { return false };
        let (step, attempt) = (*step, settle.attempt);
        if self.lingering.contains(&(step, attempt)) {
            // Neither asked nor run again while the body still runs: its own end is the better answer.
            settle.due = now.saturating_add(1_000);
            return false;
        }
        if let Some((row, by, _)) = settle.again.take() {
            self.settling.remove(&step);
            return self.run_again(step, attempt, &by, Some(row));
        }
        // Until the answer, or for good if nothing is to be asked.
        settle.due = Millis::MAX;
        if !settle.asks {
            return false;
        }
        if let Some(meta) = self.meta(step)
            && let Some(start) = self.start(step, attempt, meta)
        {
            self.outputs.push(Output::Reconcile(step, start));
        }
        false
    }

    fn run_again(&mut self, step: StepNo, attempt: Attempt, by: &str, row: Option<u128>) -> bool {
        if let Some(row) = row {
            self.log.act(Act::Take { row });
        }
        if !matches!(self.state().steps.get(&step), Some(Step { state: StepState::InDoubt(n, ..), .. }) if *n == attempt)
        {
            return true;
        }
        let how = Resolved::RunAgain;
        if self.append(Kind::EffectResolved { step, attempt, how, by: by.into() }) {
            self.wanting.push_back(step);
        }
        true
    }

    /// What a reconcile function answered.
    pub(crate) fn reconciled(
        &mut self,
        step: StepNo,
        attempt: Attempt,
        end: Result<ReconcileEnd, ValueError>,
        now: Now,
    ) {
        self.now = now;
        if self.stop.is_some() || self.lost.is_some() {
            return;
        }
        let doubted = matches!(self.state().steps.get(&step),
            Some(Step { state: StepState::InDoubt(n, ..), closed: false, .. }) if *n == attempt);
        if !doubted || !self.is_wanted(step) {
            return;
        }
        match end {
            Ok(ReconcileEnd::Happened(Ok(value))) => {
                self.resolved(step, attempt, Verdict::Succeeded(value), "reconcile")
            }
            Ok(ReconcileEnd::CannotHappen) => {
                self.settling.remove(&step);
                self.run_again(step, attempt, "reconcile", None);
            }
            Ok(ReconcileEnd::Unknown | ReconcileEnd::Failed(_) | ReconcileEnd::Happened(Err(_))) | Err(_) => {
                if let Some(settle) = self.settling.get_mut(&step) {
                    settle.tries += 1;
                    let wait = 1_000u64.saturating_mul(1 << settle.tries.min(20)).min(RECONCILE_WAIT_MAX_MS);
                    settle.asks = settle.tries < RECONCILE_TRIES_MAX;
                    settle.due = if settle.asks { now.monotonic.saturating_add(wait) } else { Millis::MAX };
                    if !settle.asks {
                        self.tell_held(step, attempt);
                    }
                }
            }
        }
    }

    fn resolved(&mut self, step: StepNo, attempt: Attempt, verdict: Verdict, by: &str) {
        self.settling.remove(&step);
        let how = match verdict {
            Verdict::Succeeded(_) => Resolved::Succeeded,
            Verdict::Failed(_) | Verdict::FailedWith(_) => Resolved::Failed,
            Verdict::RunAgain => Resolved::RunAgain,
            Verdict::Unchecked { .. } => unreachable!("a word is checked before it counts"),
        };
        if !self.append(Kind::EffectResolved { step, attempt, how, by: by.into() }) {
            return;
        }
        let limit = self.setting.value_bytes_max;
        let undoes = self.state().steps.get(&step).is_some_and(|s| s.undo.is_some());
        match verdict {
            Verdict::RunAgain => self.wanting.push_back(step),
            // Nobody reads what it returned; and a person may give up on it.
            _ if undoes => self.result(step, attempt, Outcome::Ok(nothing()), false),
            Verdict::Succeeded(value) | Verdict::FailedWith(value) if value.len() > limit => {
                let effect = self.effect_step(step).map_or_else(String::new, |e| e.called.effect().to_owned());
                let reason = format!("the value that {by} gave is longer than the limit");
                let (size, limit) = (Some(value.len() as u64), Some(limit as u64));
                self.fault(step, attempt, Fault::NotRecordable { effect, reason, size, limit }, false);
            }
            Verdict::Succeeded(value) => {
                self.result(step, attempt, Outcome::Ok(value.as_bytes().to_vec().into()), false);
            }
            Verdict::FailedWith(value) => {
                self.result(step, attempt, Outcome::Err(value.as_bytes().to_vec().into()), false);
            }
            Verdict::Failed(reason) => {
                let effect = self.effect_step(step).map_or_else(String::new, |e| e.called.effect().to_owned());
                self.fault(step, attempt, Fault::ResolvedAsFailed { effect, attempt: attempt.0, reason }, false);
            }
            Verdict::Unchecked { .. } => unreachable!("a word is checked before it counts"),
        }
    }

    /// An outcome that came after its life.
    pub(crate) fn outcome_row(&mut self, row: u128, step: StepNo, attempt: Attempt, end: BodyEnd) {
        self.body_ended(Report { step, attempt, end: End::Body(end), row: Some(row) });
    }

    /// Whether a person's word on that attempt is in the mailbox.
    fn is_spoken_of(&self, step: StepNo, attempt: Attempt) -> bool {
        self.mailbox.facts().any(|message| {
            matches!(message, Message::Resolve { generation, step: s, attempt: a, .. }
                if (*generation, *s, *a) == (self.setting.generation, step, attempt))
        })
    }

    /// What a word that was given where the code was not at hand says, compared with what the effect returns.
    fn checked(&self, step: StepNo, how: &Verdict) -> Result<Verdict, String> {
        let Verdict::Unchecked { ok, plain, wrapped } = how else { return Ok(how.clone()) };
        let undoes = self.state().steps.get(&step).is_some_and(|s| s.undo.is_some());
        let value = match self.meta(step).filter(|_| !undoes).map(|meta| (meta.returns)()) {
            Some(returns) => {
                let value = if returns.is_result { wrapped } else { plain };
                // Decoding is user code, and may panic.
                match catch_unwind(AssertUnwindSafe(|| (returns.check)(value))) {
                    Ok(fits) => fits.map_err(|error| shortened(&error.to_string()).into_owned())?,
                    Err(payload) => return Err(format!("decoding it panicked: {}", panic_text(payload))),
                }
                value
            }
            // Nobody reads what undoes something returned.
            None => plain,
        };
        Ok(if *ok { Verdict::Succeeded(value.clone()) } else { Verdict::FailedWith(value.clone()) })
    }

    /// A person's word on a doubt.
    pub(crate) fn resolve_row(&mut self, row: u128, step: StepNo, attempt: Attempt, word: Word) {
        let doubted = matches!(self.state().steps.get(&step),
            Some(Step { state: StepState::InDoubt(n, ..), closed: false, .. }) if *n == attempt);
        let wanted = self.is_wanted(step);
        let again = matches!(word.how, Verdict::RunAgain);
        // The code is over, or nothing may begin any more: there is nothing that the word could change.
        if !doubted || !wanted && (again || self.state().ending.is_some()) {
            if word.kept {
                let by = &word.by;
                tracing::warn!(%step, %attempt, by, "a resolution that was kept is not taken: nobody waits for one any more");
            }
            return self.log.act(Act::Take { row });
        }
        // What waited until it could be done is corrected before it was.
        match self.settling.get_mut(&step).and_then(|settle| settle.again.take()) {
            Some((row, by, true)) => {
                self.set_aside(row, step, attempt, Word { how: Verdict::RunAgain, by, kept: true }, CORRECTED);
            }
            // Whoever gave it was told that it counts, and the store knows no second one of its kind.
            Some(first @ (.., false)) => {
                if let Some(settle) = self.settling.get_mut(&step) {
                    settle.again = Some(first);
                }
                return self.set_aside(row, step, attempt, word, GIVEN_BEFORE);
            }
            None => {}
        }
        if word.kept && self.is_spoken_of(step, attempt) {
            return self.set_aside(row, step, attempt, word, CORRECTED);
        }
        let how = match self.checked(step, &word.how) {
            Ok(how) => how,
            Err(reason) => {
                self.set_aside(row, step, attempt, word, &reason);
                // What its attribute says about a doubt is to be done after all.
                if let Some(Step { state: StepState::InDoubt(_, reason, _), .. }) = self.state().steps.get(&step)
                    && !self.settling.contains_key(&step)
                {
                    let reason = reason.clone();
                    self.doubted(step, attempt, &reason);
                }
                return;
            }
        };
        let lingers = self.lingering.contains(&(step, attempt));
        if again && (lingers || self.settling.contains_key(&step)) {
            // The body, or a request of a dead one, may still be under way: a person's word does not change that.
            let now = self.now.monotonic;
            let fresh = Settle { due: now, settled: now, attempt, tries: 0, again: None, asks: false };
            let settle = self.settling.entry(step).or_insert(fresh);
            settle.again = Some((row, word.by, word.kept));
            settle.due = settle.settled;
            return;
        }
        self.log.act(Act::Take { row });
        self.resolved(step, attempt, how, &word.by);
    }

    /// A word is of no use: whoever said so could not be told, and the step is in doubt still.
    fn set_aside(&mut self, row: u128, step: StepNo, attempt: Attempt, word: Word, reason: &str) {
        self.log.act(Act::Take { row });
        let Word { how, by, .. } = word;
        tracing::warn!(%step, %attempt, by, "a resolution is set aside, the step is in doubt: {reason}; see `durable holds`");
        let (how, value) = match how {
            Verdict::Succeeded(value) => (Resolved::Succeeded, value.as_bytes().to_vec()),
            Verdict::FailedWith(value) => (Resolved::Failed, value.as_bytes().to_vec()),
            Verdict::Unchecked { ok, plain, .. } => {
                (if ok { Resolved::Succeeded } else { Resolved::Failed }, plain.as_bytes().to_vec())
            }
            Verdict::Failed(why) => {
                (Resolved::Failed, Value::encode(&why).map(|why| why.as_bytes().to_vec()).unwrap_or_default())
            }
            Verdict::RunAgain => (Resolved::RunAgain, Vec::new()),
        };
        let (value, by, reason) = (value.into(), by.into(), reason.into());
        self.append(Kind::ResolutionSetAside { step, attempt, how, value, by, reason });
    }
}
