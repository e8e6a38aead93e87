//! O-OB-1: the poison run.

use std::{path::Path, time::Duration};

use durable::{Code, DEATHS_MAX, EffectContext, Filter, Runtime, Status, TestClock};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Backend, Bench, open_sled, secs, until},
    child,
    world::World,
};

const HEALTHY: usize = 100;
static POISON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[durable::effect(idempotent)]
async fn sip(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

/// What the code does to the process on its third step.
fn swallow() {
    if POISON.load(std::sync::atomic::Ordering::Relaxed) {
        std::process::abort();
    }
}

#[durable::workflow]
async fn drink(poisoned: bool) -> u32 {
    let mut sum = sip(1).await + sip(2).await;
    if poisoned {
        swallow();
    }
    sum += sip(3).await;
    durable::sleep(secs(60)).await;
    sum + sip(4).await
}

#[durable::workflow]
async fn gulp() -> u32 {
    swallow();
    sip(5).await
}

/// `brew`: starts the runs, and ends when all sleep. `poison`: the same code, which now kills; `later`: when the sleeps are over, for
/// who only waits is not replayed.
pub(crate) async fn child(dir: &Path, word: &str) {
    POISON.store(word.starts_with("poison"), std::sync::atomic::Ordering::Relaxed);
    let clock = TestClock::at(if word.ends_with("later") { BEGINNING + secs(600) } else { BEGINNING });
    let store = open_sled(dir.join("store")).await.unwrap();
    let world = World::in_file(dir.join("ledger"));
    let runtime = Runtime::builder().resource(world).clock(clock).open_store(store).await.unwrap();
    if word == "brew" {
        for n in 0..HEALTHY {
            runtime.start(format!("healthy {n:03}"), drink(false)).await.unwrap();
        }
        // In the middle of the list.
        runtime.start("healthy 050 but not quite", drink(true)).await.unwrap();
        let asleep = Filter::all().status(durable::StatusKind::Sleeping);
        until("all asleep", async || runtime.runs(asleep.clone()).await.unwrap().len() == HEALTHY + 1).await;
    } else if word == "brew three" {
        for id in ["a", "b", "c"] {
            runtime.start(id, drink(true)).await.unwrap();
            runtime.start(format!("{id} healthy"), drink(false)).await.unwrap();
        }
        let asleep = Filter::all().status(durable::StatusKind::Sleeping);
        until("all asleep", async || runtime.runs(asleep.clone()).await.unwrap().len() == 6).await;
    } else if word == "gulp" {
        POISON.store(true, std::sync::atomic::Ordering::Relaxed);
        runtime.start("run", gulp()).await.unwrap().returned().await.unwrap();
    } else {
        let opening = Filter::all().status(durable::StatusKind::Opening);
        until("all replayed", async || runtime.runs(opening.clone()).await.unwrap().is_empty()).await;
    }
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_replay_kills_the_process_is_set_aside_and_the_others_complete() {
    let dir = tempfile::tempdir().unwrap();
    assert!(child::survives("ob_1", dir.path(), "brew"));
    let deaths = (0..20).take_while(|_| !child::survives("ob_1", dir.path(), "poison")).count();
    assert_eq!(deaths, DEATHS_MAX as usize);
    // It is not picked up again, however often the process is restarted.
    for _ in 0..3 {
        assert!(child::survives("ob_1", dir.path(), "poison"));
    }

    let clock = TestClock::at(BEGINNING + secs(600));
    let bench = Bench::at(dir.path(), &clock).await;
    let id = "healthy 050 but not quite";
    let parked = bench.parked(id).await;
    assert_eq!(parked.code, Code::DiedInReplay);
    assert!(parked.why.contains("5 times") && parked.next.contains("retry"), "{} {}", parked.why, parked.next);
    for n in 0..HEALTHY {
        assert_eq!(bench.end(&format!("healthy {n:03}")).await, json!(10));
    }
    assert_eq!(bench.world.bodies("sip"), 4 * HEALTHY + 3);
    // The code was mended meanwhile; an operator says so.
    bench.runtime.retry(id).await.unwrap();
    assert_eq!(bench.end(id).await, json!(10));
    bench.replays(id).await;
    bench.replays("healthy 000").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_run_that_still_kills_gives_it_as_many_deaths_again() {
    let dir = tempfile::tempdir().unwrap();
    assert!(child::survives("ob_1", dir.path(), "brew"));
    for _ in 0..DEATHS_MAX {
        child::dies("ob_1", dir.path(), "poison");
    }
    assert!(child::survives("ob_1", dir.path(), "poison"));
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    let parked = bench.parked("healthy 050 but not quite").await;
    bench.runtime.retry("healthy 050 but not quite").await.unwrap();
    bench.until_word("healthy 050 but not quite", "sleeping").await;
    bench.runtime.shutdown(Duration::ZERO).await.unwrap();
    assert_eq!(parked.code, Code::DiedInReplay);
    for _ in 0..DEATHS_MAX {
        child::dies("ob_1", dir.path(), "poison later");
    }
    assert!(child::survives("ob_1", dir.path(), "poison later"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fifty_ordinary_crashes_interrupted_is_not_set_aside() {
    let mut bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", drink(true)).await.unwrap();
    bench.until_word("run", "sleeping").await;
    for n in 0..50 {
        bench = bench.crashed().await;
        // As soon as it is back, or a little later.
        bench.until_status("run", "back", |status| *status != Status::Opening).await;
        if n % 2 == 0 {
            bench.looked().await;
        }
    }
    bench.advance(secs(60)).await;
    assert_eq!(bench.end("run").await, json!(10));
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn since_when_a_run_is_set_aside_does_not_move_with_restarts() {
    let dir = tempfile::tempdir().unwrap();
    assert!(child::survives("ob_1", dir.path(), "brew"));
    for _ in 0..DEATHS_MAX {
        child::dies("ob_1", dir.path(), "poison");
    }
    assert!(child::survives("ob_1", dir.path(), "poison"));
    for minutes in [10, 20] {
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + secs(60 * minutes))).await;
        let parked = bench.parked("healthy 050 but not quite").await;
        assert_eq!(parked.since, std::time::UNIX_EPOCH + BEGINNING);
        bench.runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_poison_runs_are_set_aside_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    assert!(child::survives("ob_1", dir.path(), "brew three"));
    let deaths = (0..40).take_while(|_| !child::survives("ob_1", dir.path(), "poison")).count();
    assert!((DEATHS_MAX as usize..=3 * DEATHS_MAX as usize).contains(&deaths), "{deaths}");
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + secs(600))).await;
    for id in ["a", "b", "c"] {
        assert_eq!(bench.parked(id).await.code, Code::DiedInReplay);
        assert_eq!(bench.end(&format!("{id} healthy")).await, json!(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_kills_the_process_in_its_first_poll_is_set_aside_too() {
    let dir = tempfile::tempdir().unwrap();
    child::dies("ob_1", dir.path(), "gulp");
    let deaths = (0..20).take_while(|_| !child::survives("ob_1", dir.path(), "poison")).count();
    assert_eq!(deaths, DEATHS_MAX as usize);
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    assert_eq!(bench.parked("run").await.code, Code::DiedInReplay);
    bench.runtime.retry("run").await.unwrap();
    assert_eq!(bench.end("run").await, json!(5));
    bench.replays("run").await;
}
