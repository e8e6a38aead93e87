use super::*;
use crate::{
    entry::{Call, Outcome, Path, RecordedContract, RecordedFault, Resolved},
    head::{HeadInfo, HowEnded},
};

fn log() -> Log {
    Log::new(RunId::new("r").unwrap(), Generation(0), Epoch(1), Seq(1))
}

fn fired(log: &mut Log, step: u32) {
    log.append(&Entry { at: 1, kind: Kind::TimerFired { step: StepNo(step) } }).unwrap();
}

fn sent(log: &mut Log) -> (BatchNo, Batch) {
    log.flush(true).unwrap()
}

fn refused() -> Result<Written, StoreError> {
    Err(StoreError::Refused { reason: "full".into() })
}

fn unknown() -> Result<Written, StoreError> {
    Err(StoreError::Unknown { reason: "no answer".into() })
}

const DONE: Result<Written, StoreError> = Ok(Written::Done);

#[track_caller]
fn told(log: &mut Log, no: BatchNo, result: Result<Written, StoreError>) -> Vec<BatchNo> {
    log.written(no, result, 0, 0).unwrap().into_iter().map(|(no, _)| no).collect()
}

#[test]
fn what_is_acknowledged_is_durable_and_with_it_all_before_it() {
    let mut log = log();
    fired(&mut log, 0);
    let (first, _) = sent(&mut log);
    fired(&mut log, 1);
    let (second, batch) = sent(&mut log);
    assert_eq!((batch.at, batch.count), (Seq(2), 1));
    told(&mut log, second, DONE);
    assert_eq!(log.durable(), Seq(3));
    told(&mut log, first, DONE);
    assert!(log.is_settled() && log.flush(true).is_none());
}

#[test]
fn what_nobody_waits_for_is_gathered_until_the_store_has_answered() {
    let mut log = log();
    fired(&mut log, 0);
    let (first, _) = log.flush(false).unwrap();
    fired(&mut log, 1);
    fired(&mut log, 2);
    assert!(log.flush(false).is_none() && !log.is_settled());
    told(&mut log, first, DONE);
    let (second, batch) = log.flush(false).unwrap();
    assert_eq!((batch.at, batch.count), (Seq(2), 2));
    fired(&mut log, 3);
    let (third, batch) = log.flush(true).unwrap();
    assert_eq!((batch.at, batch.count), (Seq(4), 1), "what somebody waits for goes at once");
    log.append(&Entry { at: 1, kind: Kind::TimerFired { step: StepNo(4) } }).unwrap();
    log.act(Act::Take { row: 7 });
    assert!(log.flush(false).is_some(), "and so does what others are told");
    told(&mut log, second, DONE);
    told(&mut log, third, DONE);
}

#[test]
fn acts_without_entries_wait_for_the_entries_that_they_were_decided_on() {
    let mut log = log();
    fired(&mut log, 0);
    let (first, _) = sent(&mut log);
    log.act(Act::Take { row: 7 });
    assert!(log.flush(true).is_none());
    told(&mut log, first, refused());
    assert!(log.flush(true).is_none() && !log.is_settled());
    log.next(60_000);
    log.read_back(Ok(Bytes::new()), 0, 0).unwrap();
    told(&mut log, first, DONE);
    let (acts, batch) = sent(&mut log);
    assert_eq!((batch.at, batch.count, batch.acts.len()), (Seq(2), 0, 1));
    told(&mut log, acts, DONE);
    assert!(log.is_settled());
}

#[test]
fn entries_wait_for_acts_that_went_without_any_and_take_along_what_came_meanwhile() {
    let mut log = log();
    log.act(Act::Take { row: 7 });
    let (acts, _) = sent(&mut log);
    fired(&mut log, 0);
    log.act(Act::Take { row: 8 });
    assert!(log.flush(true).is_none());
    told(&mut log, acts, unknown());
    assert!(matches!(log.next(60_000), Next::Look { from: Seq(1) }));
    let again = log.read_back(Ok(Bytes::new()), 0, 0).unwrap();
    assert_eq!(again.into_iter().map(|(no, _)| no).collect::<Vec<_>>(), [acts], "they may be repeated");
    told(&mut log, acts, DONE);
    let (_, batch) = sent(&mut log);
    assert_eq!((batch.at, batch.count, batch.acts.len()), (Seq(1), 1, 1));
}

/// What is sent again when that much was found in the store, and the claim still holds.
fn checked(log: &mut Log, stored: Bytes) -> Vec<(BatchNo, Batch)> {
    let before = log.durable();
    let check = log.read_back(Ok(stored), 0, 0).unwrap();
    assert_eq!((check.len(), check[0].1.count, log.durable()), (1, 0, before));
    log.written(check[0].0, DONE, 0, 0).unwrap()
}

#[test]
fn entries_that_are_found_are_ours_only_while_the_claim_is() {
    for (answer, lost) in [(Err(StoreError::Fenced), true), (refused(), false)] {
        let mut log = log();
        fired(&mut log, 0);
        let (first, batch) = sent(&mut log);
        told(&mut log, first, refused());
        log.next(60_000);
        // A later claim has written the same.
        let check = log.read_back(Ok(batch.frames.clone()), 0, 0).unwrap();
        assert_eq!(log.written(check[0].0, answer, 0, 0).is_err(), lost);
        assert_eq!(log.durable(), Seq(1));
        if !lost {
            assert!(matches!(log.next(120_000), Next::Look { from: Seq(1) }), "it is looked at once more");
            assert!(checked(&mut log, batch.frames).is_empty());
            assert!(log.is_settled() && log.trouble().is_none());
        }
    }
}

#[test]
fn what_was_written_without_an_answer_is_found_and_what_was_gathered_meanwhile_follows() {
    let mut log = log();
    fired(&mut log, 0);
    let (first, batch) = sent(&mut log);
    told(&mut log, first, unknown());
    fired(&mut log, 1);
    assert!(log.flush(true).is_none(), "it waits behind the one in trouble");
    assert_eq!(log.due(), Some(RETRY_MS.0));
    assert!(matches!(log.next(RETRY_MS.0 - 1), Next::Nothing));
    assert!(matches!(log.next(RETRY_MS.0), Next::Look { from: Seq(1) }));
    assert!(matches!(log.next(RETRY_MS.0), Next::Nothing), "it is asked once");
    let again = checked(&mut log, batch.frames);
    assert_eq!(log.durable(), Seq(2));
    assert_eq!((again.len(), again[0].1.at), (1, Seq(2)));
    assert_eq!(told(&mut log, again[0].0, DONE), []);
    assert!(log.is_settled() && log.trouble().is_none());
}

#[test]
fn other_bytes_at_our_place_are_another_claim() {
    let mut log = log();
    fired(&mut log, 0);
    let (first, _) = sent(&mut log);
    told(&mut log, first, Err(StoreError::Conflict));
    log.next(60_000);
    let stored = log.read_back(Ok(Bytes::from_static(b"other bytes, of whatever sort and length")), 0, 0);
    assert_eq!(stored.unwrap_err(), Lost::Fenced);
}

/// A log whose last batch, on its way, ends the run.
fn ending() -> (Log, BatchNo, Batch) {
    let mut log = log();
    fired(&mut log, 0);
    log.head(
        HeadInfo {
            workflow: "w".into(),
            module: "m".into(),
            started_at: 0,
            parent: None,
            ended: Some((1, HowEnded::Completed)),
        }
        .head(Generation(0)),
    );
    let (end, batch) = sent(&mut log);
    (log, end, batch)
}

#[test]
fn after_the_end_of_a_run_nothing_is_sent_again() {
    // Its claim is given back with it: a repeat would be refused as another's, and so may be one that the first overtakes.
    for answer in [unknown(), Err(StoreError::Fenced)] {
        let (mut log, end, batch) = ending();
        told(&mut log, end, answer);
        log.next(60_000);
        assert!(log.read_back(Ok(batch.frames), 0, 0).unwrap().is_empty());
        assert!(log.is_settled() && log.trouble().is_none());
    }
}

#[test]
fn a_run_that_another_has_claimed_before_its_end_was_written_is_lost() {
    let (mut log, end, _) = ending();
    told(&mut log, end, Err(StoreError::Fenced));
    log.next(60_000);
    assert_eq!(log.read_back(Ok(Bytes::new()), 0, 0).unwrap_err(), Lost::Fenced);
}

#[test]
fn a_store_that_refuses_is_asked_ever_more_seldom_and_tells_why_and_since_when() {
    let mut log = log();
    fired(&mut log, 0);
    let (first, _) = sent(&mut log);
    let (mut now, mut waits) = (0, Vec::new());
    for _ in 0..9 {
        log.written(first, refused(), 100 + now, now).unwrap();
        let due = log.due().unwrap();
        waits.push(due - now);
        now = due;
        assert!(matches!(log.next(now), Next::Look { .. }));
        log.read_back(Ok(Bytes::new()), 100 + now, now).unwrap();
    }
    assert_eq!((waits[0], waits[1], *waits.last().unwrap()), (RETRY_MS.0, 2 * RETRY_MS.0, RETRY_MS.1));
    let (reason, since) = log.trouble().unwrap();
    assert_eq!((&**reason, since), ("the store refuses for now: full", 100));
}

#[test]
fn outcomes_that_were_never_written_are_kept_unless_their_step_was_not_either() {
    let mut log = log();
    let gather = |log: &mut Log, kind: Kind<'static>| log.append(&Entry { at: 1, kind }).unwrap();
    let result = |step, outcome| Kind::EffectResult { step: StepNo(step), attempt: Attempt(1), outcome, unsure: false };
    let ok = || Outcome::Ok(b"v"[..].into());
    let path = Path { scope: "".into(), name: "look".into(), n: 0 };
    let call = Call {
        path,
        effect: None,
        contract: RecordedContract::ReadOnly,
        args: b""[..].into(),
        digest: 0,
        key: None,
        site: 0,
    };
    gather(&mut log, result(4, ok()));
    gather(&mut log, Kind::EffectCalled(call));
    gather(&mut log, result(14, ok()));
    // What has undone something, what has failed to, what a person says of one, and what nobody knows the end of.
    gather(&mut log, result(11, ok()));
    let (step, attempt) = (StepNo(12), Attempt(1));
    let error = Outcome::Err(b"e"[..].into());
    gather(&mut log, Kind::EffectFailed { step, attempt, error, retry_at: 9, unsure: false });
    gather(&mut log, Kind::EffectResolved { step: StepNo(13), attempt, how: Resolved::Failed, by: "ann".into() });
    gather(&mut log, result(13, ok()));
    let panicked = Fault::Panicked { effect: "pay".into(), attempt: 1, message: "no".into() };
    gather(&mut log, result(6, Outcome::Fault(RecordedFault(panicked))));
    let (effect, reason) = ("pay".into(), "too long".into());
    let too_long = Fault::NotRecordable { effect, reason, size: None, limit: None };
    gather(&mut log, result(7, Outcome::Fault(RecordedFault(too_long))));
    let (first, _) = sent(&mut log);
    // Behind it: one more, one that may be tried again, one that a person has given, and one that is not sent yet.
    gather(&mut log, result(2, Outcome::Err(b"e"[..].into())));
    let (step, attempt) = (StepNo(3), Attempt(2));
    let error = Outcome::Err(b"e"[..].into());
    gather(&mut log, Kind::EffectFailed { step, attempt, error, retry_at: 9, unsure: false });
    let (step, attempt) = (StepNo(1), Attempt(1));
    gather(&mut log, Kind::EffectResolved { step, attempt, how: Resolved::Succeeded, by: "ann".into() });
    gather(&mut log, result(1, ok()));
    sent(&mut log);
    gather(&mut log, result(0, ok()));
    let lost = log.written(first, Err(StoreError::Rejected { reason: "no".into() }), 0, 0).unwrap_err();
    assert_eq!(lost, Lost::Rejected { seq: Seq(1), reason: "no".into() });
    let kept = |rejected| -> Vec<(u32, u32, String)> {
        let ends = log.unwritten_outcomes(StepNo(15), rejected, |step| (11..14).contains(&step.0)).into_iter();
        ends.map(|(step, attempt, end)| (step.0, attempt.0, format!("{end:?}").split(' ').next().unwrap().into()))
            .collect()
    };
    let others = [(2, 1, "Err".into()), (3, 2, "Err".into()), (0, 1, "Ok".into())];
    let with = |[first, undone, not_undone]: [&str; 3]| {
        let firsts = [(4, 1, first), (11, 1, undone), (12, 1, not_undone), (7, 1, "NotRecordable")];
        [&firsts.map(|(step, attempt, end)| (step, attempt, end.to_owned()))[..], &others[..]].concat()
    };
    assert_eq!(kept(None), with(["Ok", "Ok", "Err"]));
    assert_eq!(kept(Some((Seq(1), "no"))), with(["NotRecordable", "NotRecordable", "InDoubt"]));
}
