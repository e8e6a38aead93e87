//! O-CN-1: cancel during a sleep, across a crash, and while nothing runs.

use std::path::Path;

use durable::{Code, EffectContext, Runtime, Status, TestClock, store::Write};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Bench, open_sled, refused, secs},
    child, frames,
    odd_store::{Fuse, stopping},
    world::World,
};

const DAY: u64 = 86_400;

#[durable::effect(idempotent)]
async fn before(cx: &EffectContext, #[resource] world: &World) {
    world.note(cx, "");
}

#[durable::effect(idempotent)]
async fn after(cx: &EffectContext, #[resource] world: &World) {
    world.note(cx, "");
}

#[durable::workflow]
async fn sleeper() {
    before().await;
    durable::sleep(secs(DAY)).await;
    after().await;
}

/// Cancels the sleeping run, and dies when that is accepted, or is written, or is told.
pub(crate) async fn child(dir: &Path, word: &str) {
    let is: fn(&Write) -> bool = match word {
        "accepted" => |write| matches!(write, Write::Put { .. }),
        "taken" => |write| frames::names(write).contains(&"run.cancel_requested"),
        _ => |_| false,
    };
    let store = stopping(open_sled(dir.join("store")).await.unwrap(), is, Fuse::After(1));
    let builder = Runtime::builder().resource(World::in_file(dir.join("ledger")));
    let runtime = builder.clock(TestClock::at(BEGINNING)).open_store(store).await.unwrap();
    let run = runtime.start("run", sleeper()).await.unwrap();
    while !matches!(run.status().await.unwrap(), Status::Sleeping { .. }) {}
    if word == "asleep" {
        child::stop();
    }
    let status = run.cancel("too late").by("ann").await.unwrap();
    assert_eq!(status, Status::Cancelled { reason: "too late".into() });
    child::stop();
}

/// Cancelled, and so it stays: by every restart, by a second cancel, by the time at which it would have gone on.
async fn stays_cancelled(mut bench: Bench, at: &str) {
    let cancelled = Status::Cancelled { reason: "too late".into() };
    let names = bench.names("run").await;
    for _ in 0..3 {
        assert_eq!(bench.status("run").await, cancelled, "{at}");
        assert_eq!(bench.runtime.cancel("run", "once more").by("bob").await.unwrap(), cancelled, "{at}");
        let run = bench.runtime.run("run").await.unwrap();
        assert_eq!(refused(run.returned_as::<()>().await).code(), Code::RunCancelled);
        bench = bench.restarted_after(secs(DAY)).await;
    }
    assert_eq!(bench.names("run").await, names, "{at}: no record was added");
    assert_eq!(names.iter().filter(|name| **name == "run.cancelled").count(), 1);
    let log = bench.log("run").await;
    let end = log.last().unwrap();
    assert_eq!((end.get("reason"), end.get("by")), (Some(&json!("too late")), Some(&json!("ann"))), "{at}");
    assert_eq!((bench.world.bodies("before"), bench.world.bodies("after")), (1, 0), "{at}");
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_run_is_cancelled_at_once_and_for_good() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", sleeper()).await.unwrap();
        bench.until_word("run", "sleeping").await;
        bench.advance(secs(60)).await;
        // No time passes any more.
        let status = bench.runtime.cancel("run", "too late").by("ann").await.unwrap();
        assert_eq!(status.as_str(), "cancelled");
        stays_cancelled(bench, "after a minute").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_was_accepted_before_a_kill_holds() {
    for word in ["accepted", "taken", "answered"] {
        let dir = tempfile::tempdir().unwrap();
        child::killed("cn_1", dir.path(), word);
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
        bench.until_word("run", "cancelled").await;
        stays_cancelled(bench, word).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_cancelled_while_no_process_has_it() {
    let dir = tempfile::tempdir().unwrap();
    child::killed("cn_1", dir.path(), "asleep");
    let observer = Runtime::builder().observe(dir.path().join("store")).await.unwrap();
    let asked = refused(observer.cancel("run", "too late").by("ann").await);
    assert_eq!(asked.code(), Code::NotCancelledYet, "{asked}");
    observer.shutdown(secs(0)).await.unwrap();
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    bench.until_word("run", "cancelled").await;
    stays_cancelled(bench, "while it was down").await;
}
