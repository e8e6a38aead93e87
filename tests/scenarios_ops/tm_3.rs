//! O-TM-3: zero, negative and past deadlines.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, millis, secs},
    replay::Tape,
    world::World,
};

/// What the code says now, in nanoseconds: code that has changed says something else.
static NAP_NS: AtomicU64 = AtomicU64::new(0);

#[durable::workflow]
async fn nap(deadline_ms: u64) -> u32 {
    // As a deadline of the durable clock is waited for.
    let now = durable::now().await.duration_since(UNIX_EPOCH).unwrap();
    durable::sleep(millis(deadline_ms).saturating_sub(now)).await;
    durable::sleep(Duration::from_nanos(durable::untracked(|| NAP_NS.load(Ordering::Relaxed)))).await;
    durable::sleep_until(UNIX_EPOCH + millis(deadline_ms)).await;
    3
}

#[tokio::test(flavor = "multi_thread")]
async fn sleeps_of_no_length_are_sleeps() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let past = 1_000;
        bench.runtime.start("run", nap(past)).await.unwrap();
        assert_eq!(bench.end("run").await, json!(3));
        let three = ["timer.set", "timer.fired"].repeat(3);
        assert_eq!(bench.names("run").await, [vec!["run.started"], three, vec!["run.completed"]].concat());
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_the_code_changes_changes_nothing_that_is_recorded() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", nap(1_000)).await.unwrap();
    bench.end("run").await;
    let tape = Tape::of(&*bench.store, "run");
    for ns in [1, 5_000_000_000, 0] {
        NAP_NS.store(ns, Ordering::Relaxed);
        bench.replays("run").await;
        // Also a run that is in the middle of it: the recorded deadline rules.
        for cut in 4..tape.frames.len() {
            let next = tape.opened(cut, World::new(), &bench.clock).await;
            if cut == 4 {
                // The sleep is not recorded here, so the code's length counts.
                next.until_status("run", "on its way", |s| matches!(s.as_str(), "sleeping" | "completed")).await;
                next.clock.advance(secs(5));
            }
            assert_eq!(next.end("run").await, json!(3), "cut at {cut} with {ns} ns");
        }
    }
    NAP_NS.store(0, Ordering::Relaxed);
}

#[durable::workflow]
async fn order() -> Vec<u32> {
    let mut set = durable::Set::new();
    for n in 0..8u32 {
        set.add(async move {
            durable::sleep(if n % 2 == 0 { Duration::ZERO } else { Duration::from_nanos(1) }).await;
            n
        });
    }
    let mut order = Vec::new();
    while let Some(n) = set.next().await {
        order.push(n);
    }
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_that_sleep_for_nothing_end_in_the_order_that_is_logged() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", order()).await.unwrap();
        let ended = bench.end("run").await;
        assert_eq!(ended.as_array().unwrap().len(), 8);
        bench.replays("run").await;
        let tape = Tape::of(&*bench.store, "run");
        for cut in 1..tape.frames.len() {
            let next = tape.opened(cut, World::new(), &bench.clock).await;
            assert_eq!(next.end("run").await.as_array().unwrap().len(), 8, "cut at {cut}");
        }
    }
}

#[durable::workflow]
async fn race_for_nothing() -> u32 {
    let first = async {
        durable::sleep(Duration::ZERO).await;
        1
    };
    let second = async {
        durable::sleep_until(UNIX_EPOCH).await;
        2
    };
    durable::race((first, second)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_race_of_two_that_are_due_at_once_goes_again_as_it_went() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for n in 0..20 {
            let id = format!("run {n}");
            bench.runtime.start(&id, race_for_nothing()).await.unwrap();
            bench.end(&id).await;
        }
        bench.replays("run 0").await;
        bench.replays("run 19").await;
    }
}
