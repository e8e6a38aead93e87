//! O-RT-3: the timeout of an attempt, the time for the whole, and retry.

use durable::{Attempt, EffectContext};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, millis, secs, until},
    world::World,
};

#[durable::effect(idempotent, timeout = "100ms", retry(attempts = 3, first = "100ms", max = "100ms"))]
async fn hang(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    std::future::pending().await
}

#[durable::effect(idempotent, timeout = "100ms", retry(attempts = 100, first = "100ms", max = "100ms"))]
async fn hang_long(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    std::future::pending().await
}

/// Blocks its thread, deaf to everything, on the first attempt.
#[durable::effect(idempotent, timeout = "100ms", retry(attempts = 3, first = "100ms", max = "100ms"))]
fn block(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    if cx.attempt() == 1 {
        world.block();
    }
    Ok(format!("attempt {}", cx.attempt()))
}

#[durable::effect(at_most_once, timeout = "100ms")]
async fn hang_once(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    world.pass("hang_once").await;
    Ok("late".into())
}

#[durable::effect(read_only, timeout = "100ms")]
async fn hang_reading(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    std::future::pending().await
}

#[durable::workflow]
async fn hanging() -> durable::Result<()> {
    durable::timeout(secs(1), hang()).await?
}

#[durable::workflow]
async fn hanging_long() -> durable::Result<()> {
    durable::timeout(secs(1), hang_long()).await?
}

#[durable::workflow]
async fn blocking() -> durable::Result<String> {
    block().await
}

#[durable::workflow]
async fn hanging_once() -> durable::Result<String> {
    hang_once().await
}

#[durable::workflow]
async fn hanging_reading() -> durable::Result<()> {
    hang_reading().await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_has_its_own_time_and_there_are_as_many_as_declared() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", hanging()).await.unwrap();
        for attempt in 1..=3 {
            bench.world.until_noted("hang", attempt).await;
            until("one body", async || bench.runtime.bodies().len() == 1).await;
            assert_eq!(
                bench.runtime.bodies()[0].attempt,
                Attempt(attempt as u32),
                "no two bodies of one call at a time"
            );
            bench.advance(millis(99)).await;
            assert_eq!(bench.count("run", "effect.failed").await, attempt - 1, "not before its time");
            bench.advance(millis(1)).await;
            bench.advance(millis(100)).await;
        }
        let ended = bench.end("run").await;
        let fault = &ended["Err"]["fault"]["AttemptsUsedUp"];
        assert_eq!((&fault["attempts"], &fault["crashed"]), (&json!(3), &json!(false)), "{ended}");
        assert_eq!(fault["last"], "it did not return within 100 ms");
        assert_eq!(bench.world.bodies("hang"), 3);
        assert_eq!(bench.runtime.bodies().len(), 0);
        let log = bench.log("run").await;
        assert!(log.iter().any(|e| e.name == "effect.failed" && e.get("unsure") == Some(&json!(true))));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_for_the_whole_is_another_error_than_the_time_of_an_attempt() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", hanging_long()).await.unwrap();
    for attempt in 1..=5 {
        bench.world.until_noted("hang_long", attempt).await;
        bench.advance(millis(100)).await;
        bench.advance(millis(100)).await;
    }
    let ended = bench.end("run").await;
    assert_eq!(ended["Err"]["kind"], "elapsed", "{ended}");
    assert_eq!(ended["Err"].get("fault"), None);
    assert_eq!(bench.world.bodies("hang_long"), 5);
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_blocks_its_thread_is_seen_beside_its_successor_and_its_late_return_is_discarded() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", blocking()).await.unwrap();
    bench.world.until_noted("block", 1).await;
    bench.advance(millis(100)).await;
    let bodies = bench.runtime.bodies();
    assert_eq!(bodies.len(), 1, "past its time and still running: {bodies:?}");
    bench.advance(millis(100)).await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "attempt 2" }));
    let bodies = bench.runtime.bodies();
    assert_eq!(bodies.iter().map(|body| body.attempt).collect::<Vec<_>>(), [Attempt(1)], "even when its run has ended");
    let before = bench.names("run").await;
    bench.world.go();
    until("no body", async || bench.runtime.bodies().is_empty()).await;
    assert_eq!(bench.names("run").await, before);
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_at_most_once_body_past_its_time_is_in_doubt_and_its_own_late_word_removes_the_doubt() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("hang_once");
        bench.runtime.start("run", hanging_once()).await.unwrap();
        bench.world.until_noted("hang_once", 1).await;
        bench.advance(millis(100)).await;
        let hold = bench.held("run").await;
        assert_eq!(hold.reason, "it did not return within 100 ms");
        assert_eq!(bench.runtime.bodies().len(), 1, "listed as still running");
        bench.advance(secs(3_600)).await;
        assert_eq!(bench.world.bodies("hang_once"), 1);
        bench.world.open("hang_once");
        assert_eq!(bench.end("run").await, json!({ "Ok": "late" }));
        assert_eq!(bench.world.bodies("hang_once"), 1);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_body_past_its_time_without_retry_is_a_fault() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", hanging_reading()).await.unwrap();
    bench.world.until_noted("hang_reading", 1).await;
    bench.advance(millis(100)).await;
    let ended = bench.end("run").await;
    assert_eq!(ended["Err"]["fault"]["TimedOut"]["timeout_ms"], 100, "{ended}");
    assert_eq!(bench.world.bodies("hang_reading"), 1);
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outward_effect_without_a_timeout_of_its_own_has_five_minutes() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", hanging_by_default()).await.unwrap();
    bench.world.until_noted("hang_by_default", 1).await;
    bench.advance(secs(300) - millis(1)).await;
    assert_eq!(bench.status("run").await.as_str(), "running");
    bench.advance(millis(1)).await;
    let ended = bench.end("run").await;
    assert_eq!(ended["Err"]["fault"]["TimedOut"]["timeout_ms"], 300_000, "{ended}");
}

#[durable::effect(idempotent)]
async fn hang_by_default(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    std::future::pending().await
}

#[durable::workflow]
async fn hanging_by_default() -> durable::Result<()> {
    hang_by_default().await
}

#[durable::workflow]
async fn gives_up() -> durable::Result<String> {
    let late = async {
        durable::sleep(millis(50)).await;
        Ok("gave up".to_owned())
    };
    durable::race((hang_by_default_once(), late)).await
}

#[durable::effect(at_most_once)]
async fn hang_by_default_once(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    world.pass("hang_once").await;
    Ok("late".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_waits_for_has_a_grace_and_then_its_run_ends_without_it() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("hang_once");
        bench.runtime.start("run", gives_up()).await.unwrap();
        bench.world.until_noted("hang_by_default_once", 1).await;
        bench.advance(millis(50)).await;
        bench.until_word("run", "ending").await;
        bench.advance(secs(30) - millis(1)).await;
        assert_eq!(bench.status("run").await.as_str(), "ending");
        bench.advance(millis(1)).await;
        assert_eq!(bench.end("run").await, json!({ "Ok": "gave up" }));
        assert_eq!(bench.runtime.bodies().len(), 1, "its run is over, and it still runs");
        let before = bench.names("run").await;
        assert_eq!(before.last(), Some(&"run.completed"));
        assert!(before.contains(&"effect.in_doubt"), "{before:?}");
        bench.world.open("hang_once");
        until("no body", async || bench.runtime.bodies().is_empty()).await;
        bench.looked().await;
        assert_eq!(bench.names("run").await, before, "nothing comes after the end");
        bench.replays("run").await;
    }
}
