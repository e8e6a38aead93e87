use super::*;
use crate::{
    entry::{Answered, Child, ChildEnd, Path, RecordedContract, RecordedFault, RunStarted, Signal},
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
        born: 0,
        parent: None,
        undos: Vec::new(),
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
            assert_eq!(before, (state.len, state.last_at, state.next_step, state.ended), "a refusal changes nothing");
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
        _ => unreachable!("an effect was asked"),
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
    illegal(&[pay(), Kind::TimerFired { step: STEP }], "nobody waits there");
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
    let version = Kind::VersionChosen { path: Path { scope: "".into(), name: "v".into(), n: 0 }, site: 0, version: 1 };
    let state = fold(&[look(), sleep(), version, wire(), Kind::StepClosed { step: StepNo(1) }]).unwrap();
    assert_eq!(state.next_step, StepNo(4));
    assert_eq!(state.steps.keys().copied().collect::<Vec<_>>(), [StepNo(0), StepNo(3)]);
}

// ---- signals, questions, children, cancel, undo ----

fn path(name: &'static str) -> Path<'static> {
    Path { scope: "".into(), name: name.into(), n: 0 }
}

fn awaited() -> Kind<'static> {
    Kind::SignalAwaited { path: path("s"), site: 0, signal: "s".into(), drain: false }
}

fn signal() -> Signal<'static> {
    Signal { id: 7, value: b"v"[..].into() }
}

fn received(step: StepNo) -> Kind<'static> {
    Kind::SignalReceived { step, messages: vec![signal()] }
}

fn set_aside() -> Kind<'static> {
    Kind::SignalSetAside { step: STEP, signal: signal(), reason: "no number".into() }
}

fn asked() -> Kind<'static> {
    let question = Question { title: "?".into(), about: b""[..].into(), by: Vec::new(), digest: 0, deadline: Some(9) };
    Kind::QuestionAsked { path: path("q"), site: 0, question }
}

fn answered() -> Kind<'static> {
    Kind::QuestionAnswered { step: STEP, answer: Answered::Expired, by: "".into() }
}

fn spawned(detached: bool) -> Kind<'static> {
    let child = Child { run: "c".into(), detached, workflow: "w".into(), digest: 0 };
    Kind::ChildSpawned { path: path("c"), site: 0, child }
}

fn child_ended() -> Kind<'static> {
    Kind::ChildEnded { step: STEP, run: "c".into(), end: ChildEnd::IdTaken }
}

fn cancel() -> Kind<'static> {
    Kind::CancelRequested { reason: "enough".into(), by: "ann".into() }
}

fn undo() -> Undo<'static> {
    let (effect, module) = ("unpay".into(), "m".into());
    let contract = RecordedContract::Keyed;
    Undo { effect, module, contract, args: b""[..].into(), digest: 0, key: None }
}

fn undo_added() -> Kind<'static> {
    Kind::UndoAdded { path: path("undo"), site: 0, undo: undo() }
}

fn undo_called(undo: u32) -> Kind<'static> {
    Kind::UndoCalled { undo }
}

fn undone(step: u32) -> Kind<'static> {
    Kind::EffectResult { step: StepNo(step), attempt: ONE, outcome: Outcome::Ok(b"v"[..].into()), unsure: false }
}

fn cancelled() -> End<'static> {
    End::Cancelled { reason: "enough".into(), by: "ann".into() }
}

fn restarted() -> End<'static> {
    let (workflow, module, args) = ("w".into(), "m".into(), b""[..].into());
    End::Restarted { workflow, module, explicit_name: false, args, digest: 0 }
}

#[test]
fn waits_and_questions_are_over_once_or_dropped() {
    check(&[awaited(), received(STEP)], None);
    check(&[asked(), answered()], None);
    check(&[awaited(), closed()], None);
    check(&[asked(), closed()], None);
    illegal(&[awaited(), received(STEP), received(STEP)], "no such step is open");
    illegal(&[awaited(), closed(), received(STEP)], "no such step is open");
    illegal(&[awaited(), answered()], "nobody waits there");
    illegal(&[asked(), received(STEP)], "nobody waits there");
    illegal(&[awaited(), Kind::RunEnding(end()), received(STEP)], "nobody waits there");
}

#[test]
fn what_is_set_aside_ends_no_wait_and_begins_the_next_round_of_a_question() {
    check(&[awaited(), set_aside(), received(STEP)], None);
    let state = check(&[asked(), set_aside(), set_aside()], Some(StepState::Waiting));
    let What::Question(question) = &state.steps[&STEP].what else { unreachable!("a question was asked") };
    assert_eq!((question.set_aside.shown(), question.asked_at), (Some((2, "no number")), 1));
    illegal(&[sleep(), set_aside()], "nobody waits for it");
}

#[test]
fn a_word_that_is_set_aside_leaves_the_doubt_as_it_is_until_the_step_is_called_again() {
    let aside = |attempt| Kind::ResolutionSetAside {
        step: STEP,
        attempt,
        how: Resolved::Succeeded,
        value: b"v"[..].into(),
        by: "ann".into(),
        reason: "no number".into(),
    };
    let words = |state: &RunState| match &state.steps[&STEP].what {
        What::Effect(effect) => effect.set_aside.clone(),
        _ => unreachable!("an effect was called"),
    };
    let doubted = [wire(), doubt(ONE), aside(ONE), aside(ONE)];
    let state = fold(&doubted).unwrap();
    assert!(matches!(state.steps[&STEP].state, StepState::InDoubt(ONE, ..)));
    assert_eq!(words(&state).shown(), Some((2, "no number")));
    let called_again = [&doubted[..], &[resolved(ONE, Resolved::RunAgain), again(TWO)]].concat();
    assert_eq!(words(&fold(&called_again).unwrap()).shown(), None);
    illegal(&[wire(), aside(ONE)], "that attempt is not in doubt");
    illegal(&[wire(), doubt(ONE), aside(TWO)], "that attempt is not in doubt");
}

#[test]
fn a_child_that_was_dropped_is_forgotten_only_if_it_is_detached() {
    check(&[spawned(false), child_ended()], None);
    check(&[spawned(true), closed()], None);
    check(&[spawned(false), closed()], Some(StepState::Waiting));
    check(&[spawned(false), closed(), child_ended()], None);
    check(&[spawned(false), Kind::RunEnding(end()), child_ended()], None);
    illegal(&[spawned(false), child_ended(), child_ended()], "no such step is open");
    illegal(&[sleep(), child_ended()], "no child is open there");
}

#[test]
fn a_run_does_not_end_before_its_children() {
    illegal(&[spawned(false), Kind::RunEnded(end())], "a child has not ended");
    illegal(&[spawned(false), closed(), Kind::RunEnded(end())], "a child has not ended");
    illegal(&[spawned(false), Kind::RunEnding(restarted()), Kind::RunEnded(restarted())], "a child has not ended");
    assert!(fold(&[spawned(true), Kind::RunEnded(end())]).unwrap().ended);
    assert!(fold(&[spawned(false), Kind::RunEnding(end()), child_ended(), Kind::RunEnded(end())]).unwrap().ended);
}

#[test]
fn a_cancel_is_taken_once_and_while_the_code_is_there() {
    assert!(fold(&[cancel(), awaited()]).unwrap().cancel.is_some(), "a shield may enclose what is asked after it");
    illegal(&[cancel(), cancel()], "the run is cancelled already");
    illegal(&[Kind::RunEnding(end()), cancel()], "the code is over");
}

#[test]
fn what_was_registered_is_undone_from_the_last_to_the_first_and_one_at_a_time() {
    let two = [undo_added(), undo_added(), Kind::RunEnding(cancelled())];
    let all = |rest: &[Kind<'static>]| [&two[..], rest].concat();
    let undone_all = all(&[undo_called(1), undone(2), undo_called(0), undone(3), Kind::RunEnded(cancelled())]);
    assert!(fold(&undone_all).unwrap().ended);
    illegal(&all(&[undo_called(0)]), "not the compensation that is next");
    illegal(&all(&[undo_called(1), undo_called(1)]), "one compensation at a time");
    illegal(&all(&[undo_called(1), undone(2), undo_called(1)]), "not the compensation that is next");
    illegal(&all(&[undo_called(1), undone(2), Kind::RunEnded(cancelled())]), "not everything is undone");
    illegal(&all(&[undo_called(1), Kind::RunEnded(cancelled())]), "a body may still be under way");
}

#[test]
fn the_steps_that_undo_are_known_also_when_they_are_over() {
    let of = |state: &RunState| (0..state.next_step.0).map(|no| state.undoes(StepNo(no))).collect::<Vec<_>>();
    let code = [pay(), undo_added(), undo_added()];
    assert_eq!(of(&fold(&code).unwrap()), [false; 3], "nothing is undone while the code goes on");
    let rest = [Kind::RunEnding(cancelled()), undo_called(1), undone(3), undo_called(0), undone(4)];
    for (until, undoing) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        let before = [&code[..], &[ok(ONE)], &rest[..until]].concat();
        let want = [&[false; 3][..], &[true; 2][..undoing]].concat();
        assert_eq!(of(&fold(&before).unwrap()), want, "after {until} entries");
    }
    // One that failed and is to be tried again, or whose end nobody knows, undoes something still.
    let held = Kind::EffectInDoubt { step: StepNo(3), attempt: ONE, reason: "?".into() };
    let held = [&code[..], &[ok(ONE)], &rest[..2], &[held]].concat();
    assert_eq!(of(&fold(&held).unwrap()), [false, false, false, true]);
}

#[test]
fn what_earlier_logs_have_registered_is_undone_by_the_last_steps_of_this_one() {
    let Kind::RunStarted(mut first) = started() else { unreachable!("a log begins so") };
    first.undos = vec![undo(), undo()];
    let entries = [Kind::RunStarted(first), pay(), ok(ONE), Kind::RunEnding(cancelled()), undo_called(1), undone(1)];
    let mut state = RunState::default();
    for (at, kind) in entries.into_iter().enumerate() {
        state.apply(&Entry { at: at as u64, kind }).unwrap();
    }
    assert_eq!((state.undoes(StepNo(0)), state.undoes(StepNo(1)), state.undos_left), (false, true, 1));
}

#[test]
fn what_undoes_is_tried_again_though_the_code_is_over() {
    let again = Kind::EffectCalledAgain { step: StepNo(1), attempt: TWO };
    let entries = [undo_added(), Kind::RunEnding(cancelled()), undo_called(0), again];
    assert_eq!(fold(&entries).unwrap().steps[&StepNo(1)].state, StepState::Called(TWO));
}

#[test]
fn a_run_that_completes_or_goes_on_in_a_fresh_log_undoes_nothing() {
    assert!(fold(&[undo_added(), Kind::RunEnded(end())]).unwrap().ended);
    assert!(fold(&[undo_added(), Kind::RunEnded(restarted())]).unwrap().ended);
    illegal(&[undo_added(), Kind::RunEnding(end()), undo_called(0)], "not the compensation that is next");
    illegal(&[undo_added(), undo_called(0)], "not the compensation that is next");
}

#[test]
fn a_fresh_log_begins_with_what_earlier_ones_have_registered() {
    let Kind::RunStarted(mut first) = started() else { unreachable!("a log begins so") };
    first.undos = vec![undo(), undo()];
    let mut state = RunState::default();
    state.apply(&Entry { at: 0, kind: Kind::RunStarted(first) }).unwrap();
    state.apply(&Entry { at: 1, kind: undo_added() }).unwrap();
    assert_eq!((state.undos.len(), state.undos_left), (3, 3));
}

#[test]
fn what_is_asked_beyond_effects_has_the_next_number_too() {
    let sent = Kind::MessageSent {
        path: path("send"),
        site: 0,
        to: "r".into(),
        signal: "s".into(),
        value: b"v"[..].into(),
        digest: 0,
    };
    let published =
        Kind::ValuePublished { path: path("p"), site: 0, name: "p".into(), value: b"v"[..].into(), digest: 0 };
    let state = fold(&[sent, published, undo_added(), awaited(), asked(), spawned(true)]).unwrap();
    assert_eq!(state.steps.keys().copied().collect::<Vec<_>>(), [StepNo(3), StepNo(4), StepNo(5)]);
}
