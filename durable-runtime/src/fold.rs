//! The state of a run is the fold of its entries: a pure function, and the only place that says which entry may follow which.

use std::{collections::BTreeMap, fmt};

use crate::{
    clock::Millis,
    contract::Contract,
    entry::{Call, End, Entry, Kind, Outcome, Resolved},
    id::{Attempt, Seq, StepNo},
};

/// What a log says so far. Steps that are over and of no further interest are not kept, so a run of a million steps folds
/// into the few that are open.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunState {
    /// Number of entries folded: the place of the next one.
    pub len: Seq,
    /// Time of the last entry.
    pub last_at: Millis,
    /// The open steps, and those over whose effect on the world is still unknown.
    pub steps: BTreeMap<StepNo, Step>,
    /// The number that the next step will have.
    pub next_step: StepNo,
    /// How the run is ending, from `run.ending` on.
    pub ending: Option<End<'static>>,
    /// Whether the terminal entry is there.
    pub ended: bool,
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
}

/// What the fold keeps of an effect.
#[derive(Clone, Debug)]
pub(crate) struct EffectStep {
    /// Path, as text.
    pub path: Box<str>,
    /// Recorded name of the effect.
    pub effect: Box<str>,
    /// The contract that rules for this step.
    pub contract: Contract,
    /// The arguments.
    pub args: Box<[u8]>,
    /// The rendered key.
    pub key: Option<Box<str>>,
    /// Bodies ever begun, as far as the log knows.
    pub begun: u32,
    /// Place of the entry that allows the current attempt.
    pub called_seq: Seq,
    /// Time of that entry.
    pub called_at: Millis,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepState {
    /// A sleep that is not over.
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
            Kind::RunStarted(_) => {}
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
                self.ending = Some(end.clone().into_owned());
                self.ended = true;
            }
            Kind::EffectQueued(call) => {
                self.ask(What::Effect(EffectStep::of(call, seq, entry.at, 0)), StepState::Queued)
            }
            Kind::EffectCalled(call) => {
                let state = StepState::Called(Attempt(1));
                self.ask(What::Effect(EffectStep::of(call, seq, entry.at, 1)), state);
            }
            Kind::TimerSet { deadline, absolute, .. } => {
                self.ask(What::Timer { deadline: *deadline, absolute: *absolute }, StepState::Waiting);
            }
            Kind::VersionChosen { .. } => self.next_step.0 += 1,
            Kind::StepClosed { step } => self.open(*step, |s| match s.closed {
                true => Err("the step is closed already"),
                false => {
                    s.closed = true;
                    Ok(())
                }
            })?,
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
            Kind::TimerFired { step } => self.open(*step, |s| match (&s.what, &s.state, s.closed) {
                (What::Timer { .. }, StepState::Waiting, false) => {
                    s.state = StepState::Done;
                    Ok(())
                }
                _ => Err("no sleep is open there"),
            })?,
            Kind::EffectCalledAgain { step, attempt } => {
                let (ending, at) = (self.ending.is_some(), entry.at);
                self.open(*step, |s| {
                    let next = match &s.state {
                        StepState::Queued => 1,
                        StepState::Called(n) | StepState::Failed(n, _) | StepState::NotStarted(n) => n.0 + 1,
                        _ => return Err("the step cannot be called"),
                    };
                    if s.closed || ending {
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
        self.steps.insert(self.next_step, Step { what, state, closed: false, unsure: false });
        self.next_step.0 += 1;
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
        if s.is_over() {
            self.steps.remove(&step);
        }
        Ok(())
    }
}

impl EffectStep {
    fn of(call: &Call<'_>, seq: Seq, at: Millis, begun: u32) -> EffectStep {
        EffectStep {
            path: call.path.to_string().into(),
            effect: call.effect().into(),
            contract: call.contract.into(),
            args: (&*call.args).into(),
            key: call.key.as_deref().map(Into::into),
            begun,
            called_seq: seq,
            called_at: at,
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
            (What::Timer { .. }, _) => self.closed,
            (What::Effect(e), StepState::Called(_)) => self.closed && !e.contract.is_outward(),
            (What::Effect(_), StepState::InDoubt(..)) => false,
            (What::Effect(_), _) => self.closed && !self.unsure,
        }
    }

    /// Whether a body that the world can notice may be under way.
    pub(crate) fn may_run_outside(&self) -> bool {
        matches!((&self.what, &self.state), (What::Effect(e), StepState::Called(_)) if e.contract.is_outward())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Path, RecordedContract, RecordedFault, RunStarted},
        failure::Fault,
    };

    const ONE: Attempt = Attempt(1);
    const TWO: Attempt = Attempt(2);
    const STEP: StepNo = StepNo(0);

    fn started() -> Kind<'static> {
        Kind::RunStarted(RunStarted {
            workflow: "w".into(),
            module: "m".into(),
            explicit_name: false,
            args: b""[..].into(),
            digest: 0,
            build: "0".into(),
            seed: 0,
        })
    }

    fn call(contract: RecordedContract) -> Call<'static> {
        let path = Path { scope: "".into(), name: "e".into(), n: 0 };
        Call { path, effect: None, contract, args: b""[..].into(), digest: 0, key: None, site: 0 }
    }

    fn called(contract: RecordedContract) -> Kind<'static> {
        Kind::EffectCalled(call(contract))
    }

    fn wire() -> Kind<'static> {
        called(RecordedContract::AtMostOnce)
    }

    fn pay() -> Kind<'static> {
        called(RecordedContract::Keyed)
    }

    fn look() -> Kind<'static> {
        called(RecordedContract::ReadOnly)
    }

    fn sleep() -> Kind<'static> {
        let path = Path { scope: "".into(), name: "sleep".into(), n: 0 };
        Kind::TimerSet { path, site: 0, deadline: 9, absolute: false }
    }

    fn again(attempt: Attempt) -> Kind<'static> {
        Kind::EffectCalledAgain { step: STEP, attempt }
    }

    fn ok(attempt: Attempt) -> Kind<'static> {
        Kind::EffectResult { step: STEP, attempt, outcome: Outcome::Ok(b"v"[..].into()), unsure: false }
    }

    fn fault(attempt: Attempt, unsure: bool) -> Kind<'static> {
        let fault = Fault::TimedOut { effect: "e".into(), attempt: attempt.0, timeout_ms: 1 };
        Kind::EffectResult { step: STEP, attempt, outcome: Outcome::Fault(RecordedFault(fault)), unsure }
    }

    fn failed(attempt: Attempt, unsure: bool) -> Kind<'static> {
        let error = Outcome::Err(b"e"[..].into());
        Kind::EffectFailed { step: STEP, attempt, error, retry_at: 5, unsure }
    }

    fn not_started(attempt: Attempt) -> Kind<'static> {
        Kind::EffectNotStarted { step: STEP, attempt }
    }

    fn doubt(attempt: Attempt) -> Kind<'static> {
        Kind::EffectInDoubt { step: STEP, attempt, reason: "?".into() }
    }

    fn resolved(attempt: Attempt, how: Resolved) -> Kind<'static> {
        Kind::EffectResolved { step: STEP, attempt, how, by: "a person".into() }
    }

    fn closed() -> Kind<'static> {
        Kind::StepClosed { step: STEP }
    }

    fn end() -> End<'static> {
        End::Completed { value: b"v"[..].into() }
    }

    fn fold(entries: &[Kind<'static>]) -> Result<RunState, IllegalEntry> {
        let mut state = RunState::default();
        for (at, kind) in std::iter::once(&started()).chain(entries).enumerate() {
            let before = (state.len, state.last_at, state.next_step, state.ended);
            if let Err(illegal) = state.apply(&Entry { at: at as u64, kind: kind.clone() }) {
                assert_eq!(
                    before,
                    (state.len, state.last_at, state.next_step, state.ended),
                    "a refusal changes nothing"
                );
                return Err(illegal);
            }
        }
        Ok(state)
    }

    /// The entries are a history, and leave the first step in that state, or leave nothing of it.
    #[track_caller]
    fn check(entries: &[Kind<'static>], expected: Option<StepState>) -> RunState {
        let state = fold(entries).unwrap();
        assert_eq!(state.steps.get(&STEP).map(|step| step.state.clone()), expected);
        state
    }

    /// All but the last are a history, and the last cannot follow.
    #[track_caller]
    fn illegal(entries: &[Kind<'static>], why: &str) {
        let illegal = fold(entries).unwrap_err();
        assert_eq!((illegal.seq.0 as usize, illegal.why), (entries.len(), why));
    }

    #[test]
    fn a_step_that_is_over_is_forgotten_unless_what_it_did_is_unknown() {
        check(&[wire(), ok(ONE)], None);
        check(&[wire(), doubt(ONE), ok(ONE)], None);
        check(&[sleep(), Kind::TimerFired { step: STEP }], None);
        check(&[pay(), fault(ONE, false)], None);
        let state = check(&[pay(), fault(ONE, true)], Some(StepState::Done));
        assert!(state.steps[&STEP].unsure && !state.steps[&STEP].may_run_outside());
    }

    #[test]
    fn bodies_begun_are_counted_over_crashes_and_without_those_never_begun() {
        let begun = |entries: &[Kind<'static>]| match &fold(entries).unwrap().steps[&STEP].what {
            What::Effect(effect) => effect.begun,
            What::Timer { .. } => unreachable!("an effect was asked"),
        };
        assert_eq!(begun(&[pay()]), 1);
        assert_eq!(begun(&[pay(), again(TWO)]), 2);
        assert_eq!(begun(&[pay(), not_started(ONE)]), 0);
        assert_eq!(begun(&[pay(), not_started(ONE), again(TWO)]), 1);
        assert_eq!(begun(&[Kind::EffectQueued(call(RecordedContract::Keyed))]), 0);
        assert_eq!(begun(&[Kind::EffectQueued(call(RecordedContract::Keyed)), again(ONE)]), 1);
    }

    #[test]
    fn doubt_about_an_attempt_outlives_a_clean_failure_of_a_later_one() {
        let unsure = |entries: &[Kind<'static>]| fold(entries).unwrap().steps[&STEP].unsure;
        assert!(!unsure(&[pay(), failed(ONE, false), again(TWO)]));
        assert!(unsure(&[pay(), failed(ONE, true), again(TWO), failed(TWO, false)]));
        assert!(unsure(&[pay(), again(TWO)]), "the first attempt died with its process");
        assert!(unsure(&[wire(), doubt(ONE)]));
        assert!(!unsure(&[wire(), doubt(ONE), resolved(ONE, Resolved::RunAgain)]));
    }

    #[test]
    fn attempts_follow_one_another() {
        check(&[pay(), failed(ONE, false), again(TWO)], Some(StepState::Called(TWO)));
        check(&[wire(), doubt(ONE), resolved(ONE, Resolved::RunAgain)], Some(StepState::NotStarted(ONE)));
        illegal(&[pay(), failed(ONE, false), again(Attempt(3))], "not the next attempt");
        illegal(&[pay(), failed(ONE, false), ok(ONE)], "no outcome of that attempt is due");
        illegal(&[pay(), again(TWO), failed(ONE, false)], "that attempt is not under way");
        illegal(&[wire(), doubt(ONE), again(TWO)], "the step cannot be called");
        illegal(&[wire(), resolved(ONE, Resolved::Failed)], "that attempt is not in doubt");
        illegal(&[wire(), doubt(ONE), resolved(TWO, Resolved::Failed)], "that attempt is not in doubt");
        illegal(&[wire(), ok(TWO)], "no outcome of that attempt is due");
        illegal(&[wire(), ok(ONE), ok(ONE)], "no such step is open");
    }

    #[test]
    fn a_call_that_was_never_begun_has_no_outcome_but_a_fault() {
        let queued = Kind::EffectQueued(call(RecordedContract::Keyed));
        check(&[queued.clone(), fault(Attempt(0), false)], None);
        illegal(&[queued.clone(), ok(Attempt(0))], "no outcome of that attempt is due");
        illegal(&[queued, ok(ONE)], "no outcome of that attempt is due");
    }

    #[test]
    fn a_dropped_step_is_forgotten_once_nothing_is_to_be_said_of_it() {
        check(&[look(), closed()], None);
        check(&[sleep(), closed()], None);
        check(&[Kind::EffectQueued(call(RecordedContract::AtMostOnce)), closed()], None);
        check(&[pay(), failed(ONE, false), closed()], None);
        check(&[wire(), closed()], Some(StepState::Called(ONE)));
        check(&[wire(), closed(), not_started(ONE)], None);
        check(&[wire(), closed(), ok(ONE)], None);
        check(&[pay(), failed(ONE, true), closed()], Some(StepState::Failed(ONE, 5)));
        illegal(&[wire(), closed(), closed()], "the step is closed already");
        illegal(&[pay(), failed(ONE, true), closed(), again(TWO)], "nobody wants the step any more");
        illegal(&[sleep(), closed(), Kind::TimerFired { step: STEP }], "no such step is open");
        illegal(&[pay(), Kind::TimerFired { step: STEP }], "no sleep is open there");
    }

    #[test]
    fn a_log_begins_once_and_its_time_goes_forward() {
        illegal(&[started()], "a log begins with run.started, once");
        let mut state = RunState::default();
        assert_eq!(state.apply(&Entry { at: 1, kind: wire() }).unwrap_err().why, "a log begins with run.started, once");
        state.apply(&Entry { at: 5, kind: started() }).unwrap();
        state.apply(&Entry { at: 5, kind: wire() }).unwrap();
        assert_eq!(state.apply(&Entry { at: 4, kind: ok(ONE) }).unwrap_err().why, "time goes backwards");
    }

    #[test]
    fn after_its_end_a_log_takes_nothing_and_while_it_ends_no_command() {
        let ending = || Kind::RunEnding(end());
        assert!(check(&[Kind::RunEnded(end())], None).ended);
        assert!(check(&[wire(), ending(), ok(ONE), Kind::RunEnded(end())], None).ended);
        check(&[wire(), ending(), doubt(ONE), Kind::RunEnded(end())], Some(StepState::InDoubt(ONE, "?".into(), 3)));
        illegal(&[Kind::RunEnded(end()), Kind::RunEnded(end())], "the run has ended");
        illegal(&[wire(), Kind::RunEnded(end())], "a body may still be under way");
        illegal(&[wire(), ending(), wire()], "the code is over");
        illegal(&[wire(), ending(), closed()], "the code is over");
        illegal(&[wire(), ending(), ending()], "the run is ending already");
        illegal(&[pay(), failed(ONE, false), ending(), again(TWO)], "nobody wants the step any more");
        let other = End::Failed { value: b"e"[..].into(), message: "no".into() };
        illegal(&[ending(), Kind::RunEnded(other)], "another end than announced");
        assert!(check(&[look(), Kind::RunEnded(end())], Some(StepState::Called(ONE))).ended);
    }

    #[test]
    fn every_command_but_a_drop_has_the_next_number() {
        let version =
            Kind::VersionChosen { path: Path { scope: "".into(), name: "v".into(), n: 0 }, site: 0, version: 1 };
        let state = fold(&[look(), sleep(), version, wire(), Kind::StepClosed { step: StepNo(1) }]).unwrap();
        assert_eq!(state.next_step, StepNo(4));
        assert_eq!(state.steps.keys().copied().collect::<Vec<_>>(), [StepNo(0), StepNo(3)]);
    }
}
