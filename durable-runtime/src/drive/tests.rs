//! Lives without code, from logs made by hand: what is left when the code is over.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;

use super::{Life, Now, Opened, Output, Setting, Slots};
use crate::{
    contract::{Contract, EffectMeta, Returns, WhenInDoubt, effect_id},
    core::Stop,
    effect::BodyEnd,
    entry::{
        Call, Child, ChildEnd, End, Entry, EntryError, Kind, Outcome, Parent, Path, RecordedContract, RecordedFault,
        RunStarted, Undo, each_entry,
    },
    failure::Fault,
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    log::Lost,
    mailbox::{Message, Verdict},
    store::{Act, Record, StoreError, Wait, Written},
    value::Value,
};

struct Free(bool);

impl Slots for Free {
    fn try_take(&self) -> bool {
        self.0
    }

    fn give(&self) {}
}

static UNPAY: EffectMeta = EffectMeta {
    name: "unpay",
    explicit_name: true,
    function: "unpay",
    module: "m",
    file: "m.rs",
    line: 1,
    id: effect_id("unpay"),
    contract: Contract::Keyed,
    in_doubt: WhenInDoubt::Hold,
    kind: None,
    retry: None,
    timeout_ms: Some(1_000),
    params: &[],
    resources: &[],
    returns: || Returns { fault: None, check: |_| Ok(()), is_result: false },
    run: |_| unreachable!("no body runs here"),
};

type Effects = fn(&str, &str) -> Option<&'static EffectMeta>;

const HERE: Effects = |_, _| Some(&UNPAY);
const ELSEWHERE: Effects = |_, _| None;

fn setting(slots: bool, effects: Effects) -> Setting {
    Setting {
        run: RunId::new("run").unwrap(),
        generation: Generation(0),
        epoch: Epoch(1),
        key_prefix: "store/run/0".into(),
        slots: std::sync::Arc::new(Free(slots)),
        value_bytes_max: 1_000,
        cancel_grace_ms: 100,
        settle_ms: 100,
        effects,
        settles: |_| None,
        code: 9,
        after_crash: false,
        found: false,
        again: true,
    }
}

/// The first entry, with so many compensations from earlier logs.
fn started(undos: usize) -> Kind<'static> {
    let undo = Undo {
        effect: "unpay".into(),
        module: "m".into(),
        contract: RecordedContract::Keyed,
        args: b""[..].into(),
        digest: 0,
        key: None,
    };
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
        undos: vec![undo; undos],
    })
}

fn ending() -> Kind<'static> {
    Kind::RunEnding(End::Cancelled { reason: "enough".into(), by: "ann".into() })
}

fn spawned() -> Kind<'static> {
    let path = Path { scope: "".into(), name: "spawn:w".into(), n: 0 };
    let child = Child { run: "child".into(), detached: false, workflow: "w".into(), digest: 0 };
    Kind::ChildSpawned { path, site: 0, child }
}

fn at(time: u64) -> Now {
    Now { wall: time, monotonic: time }
}

/// A run with this log, gone on with without its code.
fn life(setting: Setting, log: &[Kind<'static>]) -> Life {
    let mut life = unopened(setting, log);
    assert!(matches!(life.replay(at(10), None), Opened::Live));
    life
}

fn unopened(setting: Setting, log: &[Kind<'static>]) -> Life {
    let mut frames = BytesMut::new();
    for (at, kind) in log.iter().enumerate() {
        Entry { at: at as u64, kind: kind.clone() }.write(&mut frames).unwrap();
    }
    let mut record = Some(Record { first: Seq(0), count: log.len() as u32, frames: frames.freeze() });
    Life::new(setting, Box::new(move |_| Ok::<_, StoreError>(record.take().into_iter().collect())))
}

/// Somebody asks for it to be cancelled.
fn cancel(life: &mut Life, parent: Option<Parent<'static>>) {
    let row = Message::Cancel { reason: "now".into(), by: "lead".into(), parent }.row();
    life.mail(vec![(1, row)]);
}

/// Slots, and how many were given back.
struct Given(AtomicUsize);

impl Slots for Given {
    fn try_take(&self) -> bool {
        false
    }

    fn give(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_body_in_doubt_that_a_later_life_takes_over_holds_no_slot() {
    let call = Call {
        path: Path { scope: "".into(), name: "wire".into(), n: 0 },
        effect: None,
        contract: RecordedContract::AtMostOnce,
        args: b""[..].into(),
        digest: 0,
        key: None,
        site: 0,
    };
    let (step, attempt) = (StepNo(0), Attempt(1));
    let doubt = Kind::EffectInDoubt { step, attempt, reason: "another process has said so".into() };
    for (slot, given) in [(true, 1), (false, 0)] {
        let slots = std::sync::Arc::new(Given(AtomicUsize::new(0)));
        let setting = Setting { slots: slots.clone(), ..setting(true, HERE) };
        let mut life = unopened(setting, &[started(0), Kind::EffectCalled(call.clone()), doubt.clone()]);
        life.inherited.insert((step, attempt), slot);
        assert!(matches!(life.replay(at(10), None), Opened::Live));
        assert_eq!(
            life.adopted.get(&(step, attempt)),
            Some(&slot),
            "its end is this life's, and its slot is its own no more"
        );
        assert_eq!(slots.0.load(Ordering::Relaxed), given);
        assert!(life.leave().running.is_empty());
    }
}

#[test]
fn a_word_to_run_again_stands_until_it_is_done_though_another_one_is_set_aside() {
    let (step, attempt) = (StepNo(0), Attempt(1));
    let doubt = Kind::EffectInDoubt { step, attempt, reason: "it takes long".into() };
    let mut life = unopened(setting(true, HERE), &[started(1), ending(), Kind::UndoCalled { undo: 0 }, doubt]);
    // The body goes on: what is to be run again waits for its end.
    life.inherited.insert((step, attempt), false);
    assert!(matches!(life.replay(at(10), None), Opened::Live));
    let word = |how, by: &str, kept| {
        Message::Resolve { generation: Generation(0), step, attempt, how, by: by.into(), kept }.row()
    };
    let unfit = Verdict::Unchecked { ok: true, plain: nothing(), wrapped: nothing() };
    life.mail(vec![(1, word(Verdict::RunAgain, "ann", None)), (2, word(unfit, "bob", Some(7)))]);
    while life.turn(at(20)) {}
    assert_eq!(said(&mut life), ["bob's word: a word was given before it, and waits until it can be done"]);
    // Nothing is known of the body when it ends.
    life.ended(step, attempt, Ok(BodyEnd::ShutDown));
    while life.turn(at(5_000)) {}
    assert_eq!(said(&mut life), ["by ann: RunAgain", "effect.called"]);
}

fn nothing() -> Value {
    Value::encode(&()).unwrap()
}

/// What is appended, and what it says of words on doubts.
fn said(life: &mut Life) -> Vec<String> {
    appended_as(life, |kind| match kind {
        Kind::ResolutionSetAside { by, reason, .. } => format!("{by}'s word: {reason}"),
        Kind::EffectResolved { how, by, .. } => format!("by {by}: {how:?}"),
        kind => kind.name().to_owned(),
    })
}

/// What is appended, by name.
fn appended(life: &mut Life) -> Vec<String> {
    appended_as(life, |kind| kind.name().to_owned())
}

fn appended_as(life: &mut Life, shows: impl Fn(&Kind<'_>) -> String) -> Vec<String> {
    let mut shown = Vec::new();
    for output in life.take_outputs(false) {
        let Output::Append(_, batch) = output else { continue };
        each_entry(batch.at, batch.frames, |_, _, entry| -> Result<(), (Seq, EntryError)> {
            shown.push(shows(&entry.kind));
            Ok(())
        })
        .unwrap();
    }
    shown
}

#[test]
fn a_run_that_waits_for_a_slot_to_undo_something_stays_in_memory() {
    let mut life = life(setting(false, HERE), &[started(1), ending()]);
    assert!(!life.turn(at(20)));
    assert!(matches!(life.take_outputs(false)[..], [Output::WantSlot]));
    assert_eq!((life.wait(), life.due()), (None, (None, None)), "nothing but the slot wakes it");
}

#[test]
fn what_undoes_is_called_when_a_slot_is_free() {
    let mut life = life(setting(true, HERE), &[started(1), ending()]);
    assert!(life.turn(at(20)));
    assert_eq!(appended(&mut life), ["effect.called"]);
}

#[test]
fn a_run_whose_undoing_effect_is_in_another_binary_is_parked_at_each_attempt() {
    let fault = Fault::TimedOut { effect: "unpay".into(), attempt: 1, timeout_ms: 1 };
    let failed = Kind::EffectFailed {
        step: StepNo(0),
        attempt: Attempt(1),
        error: Outcome::Fault(RecordedFault(fault)),
        retry_at: 30,
        unsure: true,
    };
    let first = [started(1), ending()];
    let later = [&first[..], &[Kind::UndoCalled { undo: 0 }, failed]].concat();
    for log in [&first[..], &later[..]] {
        let mut life = life(setting(true, ELSEWHERE), log);
        life.turn(at(40));
        assert!(matches!(&life.stop, Some(Stop::NoEffect { effect, .. }) if effect == "unpay"), "{:?}", life.stop);
        assert!(appended(&mut life).is_empty());
    }
}

#[test]
fn a_run_without_its_code_is_cancelled_though_its_code_had_heard_of_a_cancel() {
    let heard = Kind::CancelRequested { reason: "enough".into(), by: "ann".into() };
    for (log, reason) in [(vec![started(0)], "now"), (vec![started(0), heard], "enough")] {
        let mut life = life(setting(true, ELSEWHERE), &log);
        assert!(!life.turn(at(20)), "nobody has asked for anything yet");
        cancel(&mut life, None);
        assert!(life.turn(at(20)));
        assert_eq!(appended(&mut life), ["run.cancelled"]);
        assert!(matches!(&life.state().ending, Some(End::Cancelled { reason: r, .. }) if r == reason));
    }
}

#[test]
fn a_child_under_a_shield_is_told_when_its_parent_is_cancelled_without_the_code() {
    let heard = Kind::CancelRequested { reason: "enough".into(), by: "ann".into() };
    let mut life = life(setting(true, ELSEWHERE), &[started(0), spawned(), heard]);
    cancel(&mut life, None);
    assert!(life.turn(at(20)));
    let outputs = life.take_outputs(false);
    let [Output::Append(_, batch)] = &outputs[..] else { unreachable!("one batch: {outputs:?}") };
    assert_eq!(batch.count, 1);
    let told = |act: &Act| match act {
        Act::Put { to, row } => {
            to.as_str() == "child" && matches!(Message::read(row), Some(Message::Cancel { parent: Some(_), .. }))
        }
        _ => false,
    };
    assert!(batch.acts.iter().any(told), "{:?}", batch.acts);
}

fn link(run: &'static str, seed: u128) -> Parent<'static> {
    Parent { run: run.into(), generation: Generation(0), step: StepNo(0), seed }
}

#[test]
fn a_cancel_by_another_than_its_parent_is_put_away() {
    let Kind::RunStarted(orphan) = started(0) else { unreachable!("a log begins so") };
    let child = RunStarted { parent: Some(link("boss", 4)), ..orphan.clone() };
    // The last is by a run that has the id of the parent, which was removed.
    for (log, by) in [(orphan, link("boss", 4)), (child.clone(), link("lead", 4)), (child, link("boss", 5))] {
        let mut life = life(setting(true, ELSEWHERE), &[Kind::RunStarted(log)]);
        cancel(&mut life, Some(by));
        assert!(life.turn(at(20)) && life.state().ending.is_none());
        let outputs = life.take_outputs(false);
        let [Output::Append(no, batch)] = &outputs[..] else { unreachable!("one batch: {outputs:?}") };
        assert_eq!((batch.count, batch.acts.len()), (0, 1));
        life.written(*no, Ok(Written::Done), at(20));
        assert!(life.is_without_purpose());
    }
}

#[test]
fn the_end_of_a_child_of_the_run_that_had_the_id_before_is_put_away() {
    let mut life = life(setting(true, ELSEWHERE), &[started(0), spawned(), ending()]);
    let end = |seed| {
        let end = ChildEnd::Cancelled { reason: "enough".into() };
        Message::Child { child: "child".into(), parent: link("run", seed), end }.row()
    };
    let (of_before, own) = (end(7), end(0));
    assert_ne!(of_before.id, own.id, "the store keeps both");
    life.mail(vec![(1, of_before)]);
    while life.turn(at(20)) {}
    let outputs = life.take_outputs(false);
    let [Output::Append(no, batch)] = &outputs[..] else { unreachable!("one batch: {outputs:?}") };
    assert_eq!((batch.count, batch.acts.len()), (0, 1), "it is put away, and no more");
    life.written(*no, Ok(Written::Done), at(20));
    life.mail(vec![(2, own)]);
    while life.turn(at(20)) {}
    assert_eq!(appended(&mut life), ["child.result", "run.cancelled"]);
}

#[test]
fn a_run_that_waits_has_seen_the_rows_that_earlier_lives_have_taken() {
    let mut life = life(setting(true, HERE), &[started(0), spawned(), ending()]);
    life.mailbox.has_seen(5);
    assert_eq!(life.wait(), Some(Wait { due: None, seen: 5, code: 9 }));
}

#[test]
fn a_life_is_closed_when_the_store_has_answered_for_all_that_was_sent() {
    let mut life = life(setting(true, HERE), &[started(1), ending()]);
    assert!(life.is_closed());
    life.turn(at(20));
    let outputs = life.take_outputs(false);
    let [Output::Append(no, _)] = &outputs[..] else { unreachable!("one batch: {outputs:?}") };
    life.lost = Some(Lost::Fenced);
    assert!(!life.is_closed(), "what it has done may still be for others to hear");
    life.written(*no, Err(StoreError::Fenced), at(20));
    assert!(life.is_closed());
}

#[test]
fn those_who_may_have_got_a_row_are_woken_when_its_life_is_over() {
    let mut life = life(setting(true, HERE), &[started(0), spawned()]);
    cancel(&mut life, None);
    assert!(life.turn(at(20)));
    let outputs = life.take_outputs(false);
    let [Output::Append(no, _)] = &outputs[..] else { unreachable!("one batch: {outputs:?}") };
    life.written(*no, Err(StoreError::Unknown { reason: "no answer".into() }), at(20));
    assert_eq!(life.leave().nudges, [RunId::new("child").unwrap()]);
}
