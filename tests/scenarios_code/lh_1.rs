//! O-LH-1: 100,000 steps.
//!
//! No time is measured here: that cost is flat and linear is shown by what is counted, the bytes and reads of a replay, and by what a run in
//! memory keeps. The warning about a long log is in tests/observe.rs. Left out: going on in a fresh log (`restart_as`), and a race with a signal,
//! for which stands a race with an effect.

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
