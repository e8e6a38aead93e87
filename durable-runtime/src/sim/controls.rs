//! Null controls: worlds in which one rule is broken, from outside of the engine. The checks must notice each of them.

use bytes::BytesMut;

use super::{log::Stored, run, world::World};
use crate::{
    effect::BodyEnd,
    entry::{Entry, Kind, Outcome, RecordedContract},
    fold::StepState,
    id::{Attempt, Seq, StepNo},
    store::{Batch, Record, Write, Written},
};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    None,
    /// Batches count as written when they are sent.
    NoBarrier,
    /// "Unknown" counts as written.
    UnknownIsOk,
    /// An acknowledgement is taken for that of the batch sent after.
    AcksSwapped,
    /// A crash takes the last acknowledged batch back.
    CrashForgets,
    /// A process reads what was submitted and is never written.
    ReadTail,
    /// A dead process's batch is written after another has claimed the run.
    NoEpoch,
    /// Slots are never used up.
    NoSlots,
    /// Reconcile functions are asked at once.
    NoSettle,
    /// The wall clock is taken for the monotonic one.
    WallAsMonotonic,
    /// Reconcile functions say that nothing happened.
    ReconcileLies,
    /// Calls that must not be repeated are read as ones that may.
    RerunInDoubt,
    /// A step is tried as often as it takes.
    AttemptsIgnored,
    /// Some ends of bodies are never told.
    EndsLost,
    /// Outcomes go to the mailbox under another step.
    RowsOfOtherSteps,
    /// A run that is not polled has outcomes appended to its log.
    ShutdownAppends,
    /// A shutdown does not say what was never begun.
    ShutdownForgets,
    /// A result is told when the body begins.
    ResultBeforeBody,
    /// Of two completions without a poll between, the later one is read first.
    ResultsSwapped,
    /// The workflow's code depends on what is not recorded.
    ImpureCode,
}

/// A record as a broken reader sees it.
pub(super) fn doctored(control: Control, record: Record) -> Record {
    if !matches!(control, Control::RerunInDoubt | Control::ResultsSwapped) {
        return record;
    }
    let stored = Stored::of(record.frames.clone());
    let mut entries = stored.entries();
    for entry in &mut entries {
        if let (Control::RerunInDoubt, Kind::EffectCalled(call) | Kind::EffectQueued(call)) = (control, &mut entry.kind)
            && call.contract == RecordedContract::AtMostOnce
        {
            call.contract = RecordedContract::Idempotent;
        }
    }
    if control == Control::ResultsSwapped {
        let result = |entry: &Entry<'_>| matches!(entry.kind, Kind::EffectResult { .. });
        for i in 1..entries.len() {
            if result(&entries[i - 1]) && result(&entries[i]) {
                let (a, b) = entries.split_at_mut(i);
                std::mem::swap(&mut a[i - 1].kind, &mut b[0].kind);
            }
        }
    }
    let mut frames = BytesMut::new();
    for entry in &entries {
        entry.write(&mut frames).unwrap();
    }
    Record { frames: frames.freeze(), ..record }
}

impl World {
    /// Writes an outcome into the log of a run that nobody polls.
    pub(super) fn append_outcome(&mut self, i: usize, step: StepNo, attempt: Attempt, end: &BodyEnd) {
        let BodyEnd::Ok { value } = end else { return };
        let run = self.runs[i].id.clone();
        let Ok(state) = Stored::read(&*self.store, &run).state() else { return };
        if !state.steps.get(&step).is_some_and(|s| s.state == StepState::Called(attempt)) {
            return;
        }
        let Ok(Written::Claimed(epoch)) = self.apply(Write::Claim { run: run.clone() }) else { return };
        let outcome = Outcome::Ok(value.as_bytes().to_vec().into());
        let kind = Kind::EffectResult { step, attempt, outcome, unsure: false };
        let mut frames = BytesMut::new();
        Entry { at: state.last_at, kind }.write(&mut frames).unwrap();
        let generation = super::world::GENERATION;
        let (frames, at) = (frames.freeze(), Seq(state.len.0));
        let batch = Batch { run, epoch, generation, at, count: 1, frames, acts: Vec::new(), head: None };
        let _ = self.apply(Write::Append(batch));
    }
}

/// The first seed in which the checks notice.
fn caught(control: Control) {
    const SEEDS: u64 = 600;
    for seed in 0..SEEDS {
        let (bad, _) = run(seed, control, 4);
        if let Some(first) = bad.first() {
            println!("{control:?}: seed={seed}: {first}");
            return;
        }
    }
    panic!("{control:?} was not noticed in {SEEDS} worlds");
}

macro_rules! controls {
    ($($name:ident: $control:ident;)*) => {
        $(#[test]
        fn $name() {
            caught(Control::$control);
        })*
    };
}

controls! {
    bodies_that_begin_before_their_call_is_durable_are_noticed: NoBarrier;
    an_unknown_write_taken_for_done_is_noticed: UnknownIsOk;
    an_acknowledgement_of_another_batch_is_noticed: AcksSwapped;
    a_store_that_forgets_what_it_acknowledged_is_noticed: CrashForgets;
    a_reader_of_what_is_not_written_is_noticed: ReadTail;
    a_writer_without_a_claim_is_noticed: NoEpoch;
    bodies_without_slots_are_noticed: NoSlots;
    a_reconcile_function_that_is_asked_too_early_is_noticed: NoSettle;
    a_doubt_that_settles_by_the_wall_clock_is_noticed: WallAsMonotonic;
    a_reconcile_function_that_lies_is_noticed: ReconcileLies;
    a_call_in_doubt_that_is_run_again_is_noticed: RerunInDoubt;
    more_attempts_than_allowed_are_noticed: AttemptsIgnored;
    a_lost_end_of_a_body_is_noticed: EndsLost;
    an_outcome_under_another_step_is_noticed: RowsOfOtherSteps;
    an_outcome_appended_without_a_poll_is_noticed: ShutdownAppends;
    a_shutdown_that_leaves_calls_in_doubt_is_noticed: ShutdownForgets;
    a_result_before_its_body_is_noticed: ResultBeforeBody;
    completions_in_another_order_are_noticed: ResultsSwapped;
    impure_code_is_noticed: ImpureCode;
}
