//! O-LH-1: 100,000 steps.
//!
//! No time is measured here: that cost is flat and linear is shown by what is counted, the bytes and reads of a replay, and by what a run in
//! memory keeps. The warning about a long log is in tests/observe.rs.

use std::{sync::atomic::Ordering, time::Duration};

use durable::{EffectContext, Status};

use crate::support::{Backend, Bench, World, until};

#[durable::effect(read_only)]
async fn inc(cx: &EffectContext, #[resource] world: &World, n: u64) -> u64 {
    if n.is_multiple_of(1_000) {
        world.note(cx, n);
        world.pass(&format!("inc {n}")).await;
    }
    n + 1
}

#[durable::effect(idempotent)]
async fn mark(cx: &EffectContext, #[resource] world: &World, n: u64) -> u64 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn counts(to: u64) -> u64 {
    let mut n = 0;
    while n < to {
        n = inc(n).await;
    }
    mark(n).await
}

#[durable::workflow]
async fn races(times: u64) -> u64 {
    let mut n = 0;
    for _ in 0..times {
        let pause = async {
            durable::sleep(Duration::from_secs(3_600)).await;
            0
        };
        n = durable::race((pause, inc(n))).await;
    }
    mark(n).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_steps_are_replayed_once_and_each_entry_is_read_once() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("counts", counts(100_000)).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 100_000);
    let tape = bench.tape("counts");
    // started, called and result of each step, the mark's two, completed
    assert_eq!(tape.frames.len(), 1 + 2 * 100_000 + 2 + 1);
    let bytes: usize = tape.frames.iter().map(|frame| frame.len()).sum();
    assert!(bytes / 100_000 < 250, "{} bytes for a step", bytes / 100_000);
    // The last entries are no longer than the first: nothing grows with the length of the log but the numbers in it.
    let (early, late) = (tape.frames[1_001].len(), tape.frames[200_001 - 1_000].len());
    assert!(late <= early + 16, "{early} {late}");
    for steps in [10_000, 50_000, 100_000] {
        let len = 1 + 2 * steps;
        let next = Bench::after(&tape, len, &bench.clock).await;
        let world = &next.world;
        world.close(format!("inc {steps}"));
        let settled = async || match steps < 100_000 {
            true => next.runtime.bodies().len() == 1 || next.status("counts").await == Status::Completed,
            false => next.status("counts").await == Status::Completed,
        };
        until("the replay", settled).await;
        let (read, cut): (u64, usize) =
            (next.store.bytes_read.load(Ordering::Relaxed), tape.frames[..len].iter().map(|frame| frame.len()).sum());
        // Records are read whole, and the one at the border of two reads may be read twice; a test's own readers read once.
        assert!(read < 3 * cut as u64 + 4_000_000, "{read} bytes were read of a log of {cut}");
        world.open(&format!("inc {steps}"));
        next.end("counts").await.unwrap();
        assert_eq!(next.world.inputs("mark"), ["100000"]);
    }
    crate::support::replays(&tape, &bench.clock, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_races_leave_nothing_open() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("races", races(10_000)).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 10_000);
    let names = bench.names("races").await;
    let count = |name| names.iter().filter(|n| **n == name).count();
    assert_eq!((count("timer.set"), count("step.closed"), count("timer.fired")), (10_000, 10_000, 0));
    let frames = bench.tape("races").frames.len();
    bench.clock.advance(Duration::from_secs(7_200));
    assert_eq!(bench.status("races").await, Status::Completed);
    assert_eq!(bench.tape("races").frames.len(), frames);
    crate::support::replays(&bench.tape("races"), &bench.clock, 2).await.unwrap();
}

/// Each turn waits for a signal, but not for ever.
#[durable::workflow]
async fn is_told(times: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..times {
        let pause = async {
            durable::sleep(Duration::from_secs(3_600)).await;
            0
        };
        sum += durable::race((durable::signal::<u64>("n"), pause)).await;
    }
    mark(sum).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_races_of_a_signal_and_a_sleep_leave_nothing_open() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("told", is_told(10_000)).await.unwrap();
    for n in 0..10_000_u64 {
        run.signal("n", &n).await.unwrap();
    }
    assert_eq!(run.returned().await.unwrap(), 10_000 * 9_999 / 2);
    let names = bench.names("told").await;
    let count = |name| names.iter().filter(|n| **n == name).count();
    assert_eq!((count("signal.awaited"), count("signal.received")), (10_000, 10_000));
    assert_eq!((count("timer.set"), count("step.closed"), count("timer.fired")), (10_000, 10_000, 0));
    assert!(run.messages().await.unwrap().is_empty());
    let frames = bench.tape("told").frames.len();
    bench.clock.advance(Duration::from_secs(7_200));
    assert_eq!(bench.status("told").await, Status::Completed);
    assert_eq!(bench.tape("told").frames.len(), frames);
    crate::support::replays(&bench.tape("told"), &bench.clock, 2).await.unwrap();
}

/// Takes so many in each of its logs, and goes on in a fresh one.
#[durable::workflow]
async fn lives_long(sum: u64, logs_left: u32) -> u64 {
    let mut sum = sum;
    for _ in 0..1_000 {
        sum += durable::signal::<u64>("n").await;
    }
    if logs_left == 0 {
        return mark(sum).await;
    }
    durable::restart_as(lives_long(sum, logs_left - 1)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_goes_on_in_fresh_logs_takes_its_unread_signals_along_and_replays_the_last_one() {
    for backend in [Backend::Memory, Backend::Sled] {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("long", lives_long(0, 9)).await.unwrap();
        // All but the last one, faster than they are taken: what one log does not need is there for the next.
        let mut signals = tokio::task::JoinSet::new();
        for n in 0..9_999_u64 {
            let runtime = bench.runtime.clone();
            signals.spawn(async move { runtime.signal("long", "n", &n).id(n.to_string()).await.unwrap() });
            if signals.len() >= 64 {
                signals.join_next().await.unwrap().unwrap();
            }
        }
        signals.join_all().await;
        until("the last log", async || {
            run.generations().await.unwrap() == 10 && run.messages().await.unwrap().is_empty()
        })
        .await;
        bench.until_status("long", "waiting", |status| status.as_str() == "awaiting signal").await;
        for log in 0..9 {
            let names: Vec<_> = run.log_of(log).await.unwrap().iter().map(|entry| entry.name).collect();
            assert_eq!((names.len(), *names.last().unwrap()), (1 + 2_000 + 1, "run.restarted"), "log {log}");
        }
        // The next process reads the last log alone. What was sent before is not taken again.
        let bench = bench.reopened().await;
        let run = bench.runtime.run("long").await.unwrap();
        let before = bench.store.bytes_read.load(Ordering::Relaxed);
        run.signal("n", &0).id("0").await.unwrap();
        run.signal("n", &1_000_000).id("the last").await.unwrap();
        bench.end("long").await.unwrap();
        assert_eq!(run.returned_as::<u64>().await.unwrap(), 9_999 * 9_998 / 2 + 1_000_000);
        let read = bench.store.bytes_read.load(Ordering::Relaxed) - before;
        let one_log: usize =
            crate::image::Tape::of(&*bench.store, "long").unwrap().frames(9).iter().map(|f| f.len()).sum();
        assert!(read < 8 * one_log as u64 + 100_000, "{read} bytes were read, and the last log has {one_log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_log_on_disk_goes_on_after_a_restart() {
    let bench = Bench::on(Backend::Sled).await;
    bench.world.close("inc 5000");
    bench.runtime.start("counts", counts(8_000)).await.unwrap();
    bench.world.until_noted("inc", 6).await;
    let bench = bench.reopened().await;
    bench.end("counts").await.unwrap();
    assert_eq!(bench.world.inputs("mark"), ["8000"]);
    assert_eq!(bench.world.inputs("inc"), ["5000", "6000", "7000"]);
    assert_eq!(bench.names("counts").await.last(), Some(&"run.completed"));
    crate::support::replays(&bench.tape("counts"), &bench.clock, 1).await.unwrap();
}
