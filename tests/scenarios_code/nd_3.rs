//! O-ND-3: a recorded step met by another one.
//!
//! Every pair of two kinds of step, and of one kind with another name or input.

use std::sync::atomic::{AtomicU32, Ordering};

use durable::Code;

use crate::{
    scripted::{Op, script, scripted},
    support::{BOTH, Backend, Bench},
};

/// Every kind of step, as the first that the code asks; and one kind with other inputs and names.
fn steps() -> Vec<(&'static str, Op)> {
    vec![
        ("effect", Op::A(1)),
        ("effect of another input", Op::A(2)),
        ("effect of another name", Op::B(1)),
        ("effect named otherwise", Op::Named("second look", 1)),
        ("sleep", Op::Sleep(1)),
        ("sleep named otherwise", Op::NamedSleep("nap")),
        ("join", Op::Join),
        ("join_all", Op::JoinAll),
        ("try_join", Op::TryJoin),
        ("race", Op::Race),
        ("timeout", Op::Timeout),
        ("set", Op::Set),
        ("block", Op::Block),
        ("inline workflow", Op::Inline),
        ("part", Op::Piece),
        ("version", Op::Version("gate", 1)),
    ]
}

/// Those that wait for the world outside, tell it something, or start other runs.
fn waiting_steps() -> Vec<(&'static str, Op)> {
    vec![
        ("signal", Op::Signal("go")),
        ("signal of another name", Op::Signal("stop")),
        ("drain of signals", Op::Signals("go")),
        ("question", Op::Ask("shall I?")),
        ("another question", Op::Ask("shall I not?")),
        ("child", Op::Child("inner", 1)),
        ("child of another input", Op::Child("inner", 2)),
        ("child of another workflow", Op::Child("sibling", 1)),
        ("detached child", Op::Detached(1)),
        ("message", Op::Send("word", 1)),
        ("message of another value", Op::Send("word", 2)),
        ("message of another name", Op::Send("sword", 1)),
        ("published value", Op::Publish("stage", 1)),
        ("another published value", Op::Publish("stage", 2)),
        ("compensation", Op::Undo(1)),
        ("compensation of another input", Op::Undo(2)),
        ("shield", Op::Shield),
    ]
}

/// The first command of each, as a divergence names it.
fn recorded_as(op: &Op) -> &'static str {
    match op {
        Op::Sleep(_) | Op::NamedSleep(_) => "timer.set",
        Op::Version(..) => "version.chosen",
        Op::Signal(_) | Op::Signals(_) => "signal.awaited",
        Op::Ask(_) => "question.asked",
        Op::Child(..) | Op::Detached(_) => "child.spawned",
        Op::Send(..) => "message.sent",
        Op::Publish(..) => "value.published",
        Op::Undo(_) => "undo.added",
        _ => "effect.called",
    }
}

async fn finished(backend: Backend, id: &str, ops: Vec<Op>) -> Bench {
    script(id, ops);
    let bench = Bench::on(backend).await;
    bench.runtime.start(id, scripted(id.to_owned())).await.unwrap();
    bench.end(id).await.unwrap();
    bench.replays(id).await;
    bench
}

/// Opens what is left of the run with other code, which must be refused, and puts the old code back.
async fn refuses(bench: &Bench, id: &str, cut: usize, old: &[Op], new: &[Op], recorded: &str) {
    let tape = bench.tape_of_all(id);
    script(id, new);
    let next = Bench::after(&tape, cut, &bench.clock).await;
    let error = next.parked(id).await;
    let text = error.to_string();
    assert_eq!(error.code(), Code::Diverged, "{old:?} met by {new:?}, cut at {cut}: {text}");
    for part in [&format!("run {id} "), "the log holds at seq ", recorded, "scripted.rs:"] {
        assert!(text.contains(part), "{old:?} met by {new:?}: {part} is not in {text}");
    }
    assert!(text.contains("; the code asks for "), "{text}");
    assert!(next.world.ledger().is_empty(), "{old:?} met by {new:?}, cut at {cut}: {:?}", next.world.ledger());
    assert_eq!(next.tape(id).frames, tape.frames[..cut], "{old:?} met by {new:?}, cut at {cut}");
    script(id, old);
    next.runtime.retry(id).await.unwrap();
    next.end(id).await.unwrap();
    crate::support::replays(&next.tape(id), &bench.clock, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_step_than_the_recorded_one_is_a_divergence_for_every_pair() {
    for (n, (_, recorded)) in steps().into_iter().enumerate() {
        let id = format!("pair-{n}");
        let old = vec![recorded.clone(), Op::B(99)];
        let bench = finished(Backend::Memory, &id, old.clone()).await;
        let len = bench.tape(&id).frames.len();
        for (_, asked) in steps() {
            if asked == recorded {
                continue;
            }
            let new = [asked, Op::B(99)];
            // Right behind the first command, in the midst, and with all but the end in the log.
            for cut in [2, 3, len - 1] {
                refuses(&bench, &id, cut, &old, &new, recorded_as(&recorded)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_waits_or_tells_is_met_by_itself_alone() {
    let all: Vec<_> = steps().into_iter().chain(waiting_steps()).collect();
    for (n, (what, recorded)) in all.iter().enumerate() {
        let is_old = n < steps().len();
        let id = format!("waiting-pair-{n}");
        let old = vec![recorded.clone(), Op::B(99)];
        let bench = finished(Backend::Memory, &id, old.clone()).await;
        let met = if is_old { waiting_steps() } else { all.clone() };
        let len = bench.tape(&id).frames.len();
        for (m, (_, asked)) in met.into_iter().enumerate() {
            if asked == *recorded {
                continue;
            }
            let new = [asked, Op::B(99)];
            refuses(&bench, &id, 2, &old, &new, recorded_as(recorded)).await;
            // With all but the end in the log, for some of them.
            if m % 5 == n % 5 {
                refuses(&bench, &id, len - 1, &old, &new, recorded_as(recorded)).await;
            }
        }
        println!("{what} is met by itself alone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_with_other_names_or_another_subject_is_another_question() {
    VERSION.store(0, Ordering::SeqCst);
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("asks", asks()).await.unwrap();
    bench.until_status("asks", "asking", |status| status.as_str() == "awaiting answer").await;
    let tape = bench.tape("asks");
    for version in 1..=4 {
        VERSION.store(version, Ordering::SeqCst);
        let next = Bench::after(&tape, tape.frames.len(), &bench.clock).await;
        if version < 4 {
            assert_eq!(next.parked("asks").await.code(), Code::Diverged, "{version}");
            assert_eq!(next.tape("asks").frames, tape.frames);
        } else {
            let token = next.runtime.questions().await.unwrap().remove(0).token;
            next.runtime.answer(token, durable::Reply::granted(&())).by("ann").await.unwrap();
            next.end("asks").await.unwrap();
            next.replays("asks").await;
        }
    }
}

static VERSION: AtomicU32 = AtomicU32::new(0);

fn question() -> durable::Question {
    match VERSION.load(Ordering::SeqCst) {
        0 => durable::Question::new("pay?").about(&1).by(["ann"]),
        1 => durable::Question::new("pay?").about(&2).by(["ann"]),
        2 => durable::Question::new("pay?").about(&1).by(["bob"]),
        3 => durable::Question::new("pay?").about(&1),
        // How long it may be answered is for the log to say.
        _ => durable::Question::new("pay?").about(&1).by(["ann"]).within(std::time::Duration::from_secs(60)),
    }
}

#[durable::workflow]
async fn asks() -> bool {
    durable::ask::<()>(question()).await.is_granted()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_has_changed_places_with_a_sleep_is_not_paid() {
    for backend in BOTH {
        let old = [Op::Sleep(1), Op::A(10)];
        script("swapped", old.clone());
        let bench = Bench::on(backend).await;
        bench.runtime.start("swapped", scripted("swapped".into())).await.unwrap();
        bench.until_status("swapped", "asleep", |status| matches!(status, durable::Status::Sleeping { .. })).await;
        // Shut down in its sleep, and opened with the new code.
        let tape = bench.tape("swapped");
        script("swapped", [Op::A(10), Op::Sleep(1)]);
        let bench = bench.reopened().await;
        let error = bench.parked("swapped").await;
        assert_eq!(error.code(), Code::Diverged);
        assert!(bench.world.ledger().is_empty());
        assert_eq!(bench.tape("swapped").frames, tape.frames);
        // Parked it stays, over restarts, for the same reason.
        let bench = bench.reopened().await;
        assert_eq!(bench.parked("swapped").await.code(), Code::Diverged);
        script("swapped", old);
        let bench = bench.reopened().await;
        bench.end("swapped").await.unwrap();
        assert_eq!(bench.world.inputs("a"), ["10"]);
        bench.replays("swapped").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_length_of_a_sleep_is_none_and_the_recorded_deadline_rules() {
    let bench = finished(Backend::Memory, "length", vec![Op::Sleep(60), Op::A(1)]).await;
    script("length", [Op::Sleep(3_600), Op::A(1)]);
    let clock = durable::TestClock::at(std::time::Duration::from_secs(1_700_000_000));
    let next = Bench::after(&bench.tape("length"), 2, &clock).await;
    next.until_status("length", "asleep", |status| matches!(status, durable::Status::Sleeping { .. })).await;
    clock.advance(std::time::Duration::from_secs(59));
    next.stands("length").await;
    clock.advance(std::time::Duration::from_secs(1));
    next.end("length").await.unwrap();
    next.replays("length").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_returns_too_early_or_asks_less_is_a_divergence() {
    let old = vec![Op::A(1), Op::Sleep(1), Op::B(2)];
    let bench = finished(Backend::Memory, "less", old.clone()).await;
    let len = bench.tape("less").frames.len();
    // With the sleep in the log: the code returns where it was asked.
    for (new, cut) in [(vec![Op::A(1)], 4), (vec![], 2), (vec![Op::A(1), Op::Sleep(1)], len - 1)] {
        script("less", new);
        let next = Bench::after(&bench.tape("less"), cut, &bench.clock).await;
        let error = next.parked("less").await;
        assert_eq!(error.code(), Code::Diverged);
        assert!(error.to_string().contains("asks for nothing there"), "{error}");
        assert!(next.world.ledger().is_empty());
    }
    // With less in the log than the code still asks there is no divergence.
    script("less", [Op::A(1), Op::C(3)]);
    let next = Bench::after(&bench.tape("less"), 3, &bench.clock).await;
    next.end("less").await.unwrap();
    assert_eq!(next.world.inputs("c"), ["3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_version_is_met_by_the_same_name_only() {
    let old = vec![Op::Version("gate", 1), Op::A(1)];
    let bench = finished(Backend::Memory, "version", old.clone()).await;
    for new in [vec![Op::A(1)], vec![Op::Version("other", 1), Op::A(1)], vec![Op::A(1), Op::Version("gate", 1)]] {
        refuses(&bench, "version", 2, &old, &new, "version.chosen").await;
    }
    // Another number is what versions are for: the recorded one rules.
    script("version", [Op::Version("gate", 7), Op::A(1)]);
    let next = Bench::after(&bench.tape("version"), 2, &bench.clock).await;
    next.end("version").await.unwrap();
    let returned = next.runtime.run("version").await.unwrap().returned_as::<Vec<u64>>().await.unwrap();
    assert_eq!(returned, [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begun_and_not_awaited_at_once_is_another_order() {
    let old = vec![Op::A(1), Op::B(7)];
    let bench = finished(Backend::Memory, "begun", old.clone()).await;
    let len = bench.tape("begun").frames.len();
    script("begun", [Op::Begin]);
    for cut in 3..len {
        let next = Bench::after(&bench.tape("begun"), cut, &bench.clock).await;
        let error = next.parked("begun").await;
        assert_eq!(error.code(), Code::Diverged, "{error}");
        assert!(next.world.ledger().is_empty());
    }
}
