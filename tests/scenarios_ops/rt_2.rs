//! O-RT-2: a back-off survives a restart, and a retry is never lost.

use durable::{Attempt, EffectContext, Failure, Status};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, millis, secs, until},
    replay::Tape,
    world::World,
};

#[durable::effect(idempotent, retry(attempts = 5, first = "60s", max = "60s"))]
async fn flaky(cx: &EffectContext, #[resource] world: &World, n: u32) -> durable::Result<u32> {
    world.note(cx, n);
    match cx.attempt() {
        1 => Err(Failure::new("busy").with_kind("transient")),
        _ => Ok(n),
    }
}

#[durable::workflow]
async fn once(n: u32) -> durable::Result<u32> {
    flaky(n).await
}

/// A run whose first attempt has failed.
async fn failed(backend: Backend) -> Bench {
    let bench = Bench::on(backend).await;
    bench.runtime.start("run", once(7)).await.unwrap();
    let status = bench.until_word("run", "retrying").await;
    let Status::Retrying { path, attempt, at } = status else { panic!("{status:?}") };
    assert_eq!((path.as_str(), attempt), ("flaky[0]", Attempt(1)));
    assert_eq!(at, std::time::UNIX_EPOCH + crate::bench::BEGINNING + secs(60));
    let log = bench.log("run").await;
    let failed =
        log.iter().find(|entry| entry.name == "effect.failed").unwrap_or_else(|| panic!("{backend:?} {log:?}"));
    assert_eq!(failed.get("attempt"), Some(&json!(1)));
    assert_eq!(failed.get("retry_at"), Some(&json!("2023-11-14T22:14:20.000Z")), "{failed}");
    assert!(failed.to_string().contains("busy"), "{failed}");
    bench
}

/// Restarts in every way there is.
async fn again(bench: Bench, backend: Backend) -> Bench {
    let next = match backend {
        Backend::Memory => bench.crashed().await,
        Backend::Sled => bench.restarted().await,
    };
    next.until_status("run", "replayed", |status| *status != Status::Opening).await;
    next
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_comes_when_it_was_due_whatever_was_restarted_meanwhile() {
    for backend in BOTH {
        let mut bench = failed(backend).await;
        for _ in 0..5 {
            bench.advance(secs(10)).await;
            bench = again(bench, backend).await;
            bench.looked().await;
            assert_eq!(bench.status("run").await.as_str(), "retrying");
            assert_eq!(bench.world.bodies("flaky"), 1);
        }
        bench.stands("run").await;
        bench.advance(millis(9_999)).await;
        assert_eq!((bench.status("run").await.as_str(), bench.world.bodies("flaky")), ("retrying", 1));
        bench.advance(millis(1)).await;
        assert_eq!(bench.end("run").await, json!({ "Ok": 7 }));
        assert_eq!(bench.world.lines("flaky").iter().map(|line| line.attempt).collect::<Vec<_>>(), [1, 2]);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_was_due_while_nothing_ran_comes_at_once() {
    for backend in BOTH {
        let bench = failed(backend).await;
        let bench = bench.restarted_after(secs(90)).await;
        assert_eq!(bench.end("run").await, json!({ "Ok": 7 }));
        assert_eq!(bench.world.bodies("flaky"), 2);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_entry_loses_no_retry() {
    let bench = failed(Backend::Memory).await;
    bench.advance(secs(60)).await;
    bench.end("run").await;
    let tape = Tape::of(&*bench.store, "run");
    for cut in 1..tape.frames.len() {
        let next = tape.opened(cut, World::new(), &bench.clock).await;
        until("the end", async || {
            next.clock.advance(secs(5));
            next.status("run").await.is_terminal()
        })
        .await;
        assert_eq!(next.end("run").await, json!({ "Ok": 7 }), "cut at {cut}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_retries_are_a_thousand_second_attempts() {
    let bench = Bench::on(Backend::Memory).await;
    for n in 0..1_000 {
        bench.runtime.start(format!("run {n:03}"), once(n)).await.unwrap();
    }
    let retrying = async |bench: &Bench| {
        let filter = durable::Filter::unfinished().workflow("once").status(durable::StatusKind::Retrying);
        bench.runtime.runs(filter).await.unwrap().len()
    };
    until("all first attempts", async || retrying(&bench).await == 1_000).await;
    bench.clock.advance(secs(30));
    let bench = bench.crashed().await;
    until("all to be replayed", async || retrying(&bench).await == 1_000).await;
    assert_eq!(bench.world.bodies("flaky"), 1_000);
    bench.advance(secs(30)).await;
    for n in 0..1_000 {
        assert_eq!(bench.end(&format!("run {n:03}")).await, json!({ "Ok": n }));
    }
    let lines = bench.world.lines("flaky");
    assert_eq!(lines.iter().filter(|line| line.attempt == 2).count(), 1_000);
    assert_eq!(lines.len(), 2_000);
    bench.replays("run 500").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_set_back_delays_no_retry_of_a_process_that_lives() {
    let bench = failed(Backend::Memory).await;
    bench.clock.set_wall(crate::bench::BEGINNING - secs(3_600));
    bench.advance(secs(60)).await;
    assert_eq!(bench.end("run").await, json!({ "Ok": 7 }));
}
