//! Null controls: worlds in which one rule is broken, from outside of the engine wherever that is possible. The checks must
//! notice each of them.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};

use super::{log::Stored, run, world::World};
use crate::{
    drive::Life,
    entry::{Entry, Kind, RecordedContract},
    fold::{StepState, What},
    id::{Attempt, Seq},
    mailbox::Message,
    store::{Act, Batch, Record, Row, Write},
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
    /// A reader is shown what is on its way to the store.
    ShowTail,
    /// A dead process's batch is written after another has claimed the run.
    NoEpoch,
    /// A claim by the process that had the run before is no new claim.
    ClaimKeepsEpoch,
    /// Slots are never used up.
    NoSlots,
    /// Reconcile functions are asked at once.
    NoSettle,
    /// A doubt settles from when the call was decided.
    SettleFromIntent,
    /// The wall clock is taken for the monotonic one.
    WallAsMonotonic,
    /// Reconcile functions say that nothing happened.
    ReconcileLies,
    /// A word on an attempt is taken for one on a later attempt.
    ResolveAnyAttempt,
    /// Calls that must not be repeated are read as ones that may.
    RerunInDoubt,
    /// A step is tried as often as it takes.
    AttemptsIgnored,
    /// An attempt that died with its process is none.
    CrashNotCounted,
    /// An attempt that timed out has done nothing.
    TimeoutIsFailure,
    /// A body may take as long as it likes.
    NoTimeout,
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
    /// On replay a step is ready in the poll that asks for it.
    ReadyAtOnce,
    /// Entries of the engine are compared with what the code asks.
    StrictPeek,
    /// Two waiting steps are matched with messages before either is polled.
    EagerMatch,
    /// A message is removed in a batch, and recorded in the next.
    ReceiveTwoBatches,
    /// A message counts as taken when that is durable.
    TakenWhenDurable,
    /// The ids of messages are known only as long as the messages are there.
    DedupPresentRows,
    /// A wait for a message is begun, and looked at later.
    BeginSignal,
    /// A child is recorded in a batch, and made in the next.
    ChildTwoBatches,
    /// A child is not told that its parent does not want it any more.
    ChildLeft,
    /// Who lost the race for a child's id cancels the winner's child.
    CancelAnyChild,
    /// Keys and ids of a later log are those of an earlier one.
    GenNotInKey,
    /// A fresh log begins without what is to be undone.
    RestartDropsUndo,
    /// What is to be undone is undone at once.
    UndoNoSettle,
    /// A call of `cancel` is answered when it is durable.
    CancelAnswersEarly,
    /// After a cancel the code asks as before.
    CancelIgnored,
    /// A shield does not put off a cancel.
    ShieldIgnored,
    /// What has left a shield still has its shelter.
    ShieldNeverOver,
    /// What is awaited under a shield and was begun outside of it has no shelter.
    ShieldNotEntered,
    /// What a cancel has stopped looks as if it had been done.
    ClosingRunsOn,
    /// A run that was cancelled goes on in a fresh log.
    RestartForgetsCancel,
    /// A run without its code is cancelled as if the code were there.
    CancelParkedAsLive,
    /// A run that left memory is not woken at its time.
    EvictNoDue,
    /// What comes while a run leaves memory is not seen.
    EvictCheckThenAct,
    /// A run leaves memory though not all of it is written.
    EvictUndurable,
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
    Record { frames: frames_of(&entries), ..record }
}

fn frames_of(entries: &[Entry<'_>]) -> Bytes {
    let mut frames = BytesMut::new();
    for entry in entries {
        entry.write(&mut frames).unwrap();
    }
    frames.freeze()
}

/// A write as a broken writer or store has it: maybe in two parts.
pub(super) fn doctored_write(control: Control, write: Write) -> (Option<Write>, Write) {
    let Write::Append(mut batch) = write else { return (None, write) };
    let apart = |acts: Vec<Act>, batch: &Batch| {
        let at = batch.at.plus(batch.count.into());
        Write::Append(Batch { acts, at, count: 0, frames: Bytes::new(), head: None, ..batch.clone() })
    };
    match control {
        Control::ChildTwoBatches => {
            let (made, rest) = batch.acts.into_iter().partition(|act| matches!(act, Act::Create { .. }));
            batch.acts = rest;
            let made: Vec<Act> = made;
            if !made.is_empty() {
                let then = apart(made, &batch);
                return (Some(Write::Append(batch)), then);
            }
        }
        Control::ReceiveTwoBatches => {
            let (taken, rest) = batch.acts.into_iter().partition(|act| matches!(act, Act::Take { .. }));
            batch.acts = rest;
            let taken: Vec<Act> = taken;
            if !taken.is_empty() && batch.count > 0 {
                let first = Batch { at: batch.at, ..batch.clone() };
                return (Some(apart(taken, &Batch { count: 0, ..first })), Write::Append(batch));
            }
            batch.acts.splice(0..0, taken);
        }
        Control::ChildLeft => batch.acts.retain(|act| {
            let Act::Put { row, .. } = act else { return true };
            !matches!(Message::read(row), Some(Message::Cancel { .. }))
        }),
        Control::CancelAnyChild => {
            for act in &mut batch.acts {
                if let Act::Put { row, .. } = act
                    && let Some(Message::Cancel { reason, by, .. }) = Message::read(row)
                {
                    *row = Message::Cancel { reason, by, parent: None }.row();
                }
            }
        }
        Control::RestartDropsUndo => {
            for act in &mut batch.acts {
                if let Act::Next { frames, .. } = act {
                    let stored = Stored::of(frames.clone());
                    let mut entries = stored.entries();
                    if let Kind::RunStarted(started) = &mut entries[0].kind {
                        started.undos.clear();
                    }
                    *frames = frames_of(&entries);
                }
            }
        }
        _ => {}
    }
    (None, Write::Append(batch))
}

pub(super) fn settle_from_intent(life: &mut Life) {
    let wall = life.now.wall;
    let steps = life.state().steps.clone();
    for (step, settle) in &mut life.settling {
        if let Some(What::Effect(effect)) = steps.get(step).map(|s| &s.what) {
            settle.due = settle.due.saturating_sub(wall.saturating_sub(effect.called_at));
        }
    }
}

pub(super) fn timeout_is_failure(life: &mut Life) {
    for step in life.core_mut().state.steps.values_mut() {
        if matches!(step.state, StepState::Failed(..) | StepState::Done) {
            step.unsure = false;
        }
    }
}

pub(super) fn crash_not_counted(life: &mut Life) {
    for step in life.redo.clone() {
        if let Some(What::Effect(effect)) = life.core_mut().state.steps.get_mut(&step).map(|s| &mut s.what) {
            effect.begun -= 1;
        }
    }
}

/// Words on doubts, taken for words on whatever attempt is in doubt now.
pub(super) fn about_any_attempt(life: &Life, rows: Vec<(u64, Row)>) -> Vec<(u64, Row)> {
    let about = |(no, row): (u64, Row)| match Message::read(&row) {
        Some(Message::Resolve { generation, step, how, by, kept, .. }) => {
            match life.state().steps.get(&step).map(|s| &s.state) {
                Some(StepState::InDoubt(attempt, ..)) => {
                    let attempt: Attempt = *attempt;
                    (no, Message::Resolve { generation, step, attempt, how, by, kept }.row())
                }
                _ => (no, row),
            }
        }
        _ => (no, row),
    };
    rows.into_iter().map(about).collect()
}

impl World {
    /// Rows that a life has taken in a batch that is on its way are there once more.
    pub(super) fn taken_again(&self, life: &mut Life) {
        let taken: BTreeSet<u128> = self
            .processes
            .iter()
            .flat_map(|process| &process.writes)
            .filter_map(|submitted| match &submitted.write {
                Write::Append(batch) if batch.run == life.setting.run && batch.epoch == life.setting.epoch => {
                    Some(batch)
                }
                _ => None,
            })
            .flat_map(|batch| &batch.acts)
            .filter_map(|act| if let Act::Take { row } = act { Some(*row) } else { None })
            .collect();
        let rows = crate::store::Store::rows(&*self.store, &life.setting.run, 0, usize::MAX).unwrap();
        let seen = life.mailbox.seen();
        let again = rows.into_iter().filter(|(_, row)| taken.contains(&row.id));
        life.mail(again.map(|(_, row)| (seen + 1, row)).take(1).collect());
    }

    /// Writes a cancel into the log of a run without its code, before it is cancelled.
    pub(super) fn cancel_as_live(&mut self, i: usize) {
        if self.control != Control::CancelParkedAsLive {
            return;
        }
        let Some((generation, state)) = self.durable_state(i) else { return };
        if state.cancel.is_none() && state.ending.is_none() {
            let kind = Kind::CancelRequested { reason: "enough".into(), by: "a person".into() };
            let frames = frames_of(&[Entry { at: state.last_at, kind }]);
            let at: Seq = state.len;
            self.forge(i, at, generation, frames, 1);
        }
    }
}

/// The first seed in which the checks notice.
fn caught(control: Control) {
    let seeds = super::number("SIM_CONTROL_SEEDS").unwrap_or(4_000);
    let first = match control {
        Control::ShieldNeverOver | Control::ShieldNotEntered => super::CARRYING,
        _ => 0,
    };
    for seed in first..first + seeds {
        let (bad, _) = run(seed, control, 4);
        let Some(first) = bad.first() else { continue };
        // It is the control that is noticed, and not the world.
        if run(seed, Control::None, 4).0.is_empty() {
            println!("{control:?}: seed={seed}: {first}");
            return;
        }
    }
    panic!("{control:?} was not noticed in {seeds} worlds");
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
    a_reader_who_is_shown_what_is_not_durable_is_noticed: ShowTail;
    a_writer_without_a_claim_is_noticed: NoEpoch;
    a_claim_that_keeps_the_epoch_is_noticed: ClaimKeepsEpoch;
    bodies_without_slots_are_noticed: NoSlots;
    a_reconcile_function_that_is_asked_too_early_is_noticed: NoSettle;
    a_doubt_that_settles_from_the_call_on_is_noticed: SettleFromIntent;
    a_doubt_that_settles_by_the_wall_clock_is_noticed: WallAsMonotonic;
    a_reconcile_function_that_lies_is_noticed: ReconcileLies;
    a_word_on_an_attempt_taken_for_one_on_another_is_noticed: ResolveAnyAttempt;
    a_call_in_doubt_that_is_run_again_is_noticed: RerunInDoubt;
    more_attempts_than_allowed_are_noticed: AttemptsIgnored;
    attempts_that_died_and_are_not_counted_are_noticed: CrashNotCounted;
    a_timeout_taken_for_a_failure_is_noticed: TimeoutIsFailure;
    bodies_without_a_limit_in_time_are_noticed: NoTimeout;
    a_lost_end_of_a_body_is_noticed: EndsLost;
    an_outcome_under_another_step_is_noticed: RowsOfOtherSteps;
    an_outcome_appended_without_a_poll_is_noticed: ShutdownAppends;
    a_shutdown_that_leaves_calls_in_doubt_is_noticed: ShutdownForgets;
    a_result_before_its_body_is_noticed: ResultBeforeBody;
    completions_in_another_order_are_noticed: ResultsSwapped;
    impure_code_is_noticed: ImpureCode;
    a_step_that_is_ready_at_once_on_replay_is_noticed: ReadyAtOnce;
    engine_entries_that_are_compared_are_noticed: StrictPeek;
    two_messages_matched_at_once_are_noticed: EagerMatch;
    a_message_removed_in_a_batch_of_its_own_is_noticed: ReceiveTwoBatches;
    a_message_that_is_there_until_it_is_durably_taken_is_noticed: TakenWhenDurable;
    ids_of_messages_that_are_forgotten_are_noticed: DedupPresentRows;
    a_wait_at_which_nobody_looks_is_noticed: BeginSignal;
    a_child_made_in_a_batch_of_its_own_is_noticed: ChildTwoBatches;
    a_child_that_nobody_cancels_is_noticed: ChildLeft;
    a_child_cancelled_by_another_than_its_parent_is_noticed: CancelAnyChild;
    keys_without_the_generation_are_noticed: GenNotInKey;
    compensations_lost_in_a_restart_are_noticed: RestartDropsUndo;
    an_undo_that_does_not_wait_is_noticed: UndoNoSettle;
    a_cancel_that_is_answered_early_is_noticed: CancelAnswersEarly;
    code_that_asks_after_a_cancel_is_noticed: CancelIgnored;
    a_shield_that_is_none_is_noticed: ShieldIgnored;
    a_shield_that_is_never_over_is_noticed: ShieldNeverOver;
    a_shield_that_what_was_begun_before_does_not_have_is_noticed: ShieldNotEntered;
    code_that_believes_to_have_sent_is_noticed: ClosingRunsOn;
    a_cancel_that_a_restart_forgets_is_noticed: RestartForgetsCancel;
    a_cancel_of_a_parked_run_as_if_it_were_live_is_noticed: CancelParkedAsLive;
    a_run_that_is_not_woken_at_its_time_is_noticed: EvictNoDue;
    a_run_that_leaves_memory_without_a_second_look_is_noticed: EvictCheckThenAct;
    a_run_that_leaves_memory_before_it_is_durable_is_noticed: EvictUndurable;
}
