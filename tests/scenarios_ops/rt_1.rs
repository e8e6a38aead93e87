//! O-RT-1: attempts count across crashes.

use std::path::Path;

use durable::{EffectContext, Failure, Runtime, TestClock};
use serde_json::{Value, json};

use crate::{
    bench::{BEGINNING, Bench, open_sled},
    child,
    world::World,
};

/// What a supervisor would try.
const RESTARTS: usize = 20;

#[durable::effect(idempotent, retry(attempts = 3, first = "1ms"))]
async fn boom(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    std::process::abort()
}

#[durable::effect(idempotent, retry(attempts = 1))]
async fn boom_once(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    std::process::abort()
}

#[durable::effect(idempotent)]
async fn boom_without_retry(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    std::process::abort()
}

#[durable::effect(key, retry(attempts = 3, first = "1ms"))]
async fn fails_then_boom(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    match cx.attempt() {
        1 => Err(Failure::new("not yet")),
        _ => std::process::abort(),
    }
}

#[durable::effect(key, retry(attempts = 3, first = "1ms"))]
async fn boom_then_fails(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    match cx.attempt() {
        1 | 2 => std::process::abort(),
        _ => Err(Failure::new("declined")),
    }
}

#[durable::effect(read_only, retry(attempts = 3, first = "1ms"))]
async fn boom_read_only(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    std::process::abort()
}

#[durable::effect(idempotent)]
async fn boom_twice(#[resource] world: &World, cx: &EffectContext) -> durable::Result<()> {
    world.note(cx, "");
    match cx.attempt() {
        1 | 2 => std::process::abort(),
        _ => Err(Failure::new("a returned error is final")),
    }
}

#[durable::workflow]
async fn explode(how: String) -> durable::Result<()> {
    match how.as_str() {
        "boom" => boom().await,
        "boom_once" => boom_once().await,
        "boom_without_retry" => boom_without_retry().await,
        "fails_then_boom" => fails_then_boom().await,
        "boom_then_fails" => boom_then_fails().await,
        "boom_read_only" => boom_read_only().await,
        "boom_twice" => boom_twice().await,
        _ => Ok(()),
    }
}

/// Lets the run go on until it has ended.
pub(crate) async fn child(dir: &Path, how: &str) {
    let store = open_sled(dir.join("store")).await.unwrap();
    let runtime = Runtime::builder().resource(World::in_file(dir.join("ledger"))).open_store(store).await.unwrap();
    let run = runtime.start("run", explode(how.into())).await.unwrap();
    run.returned().await.unwrap().unwrap_err();
    runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
}

/// Restarts the process until the run has ended: the attempts in the ledger, and what the workflow got.
async fn supervised(how: &str) -> (Vec<u32>, Value) {
    let dir = tempfile::tempdir().unwrap();
    let deaths = (0..RESTARTS).take_while(|_| !child::survives("rt_1", dir.path(), how)).count();
    assert!(deaths < RESTARTS, "{how} kills its process for ever");
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    let ended = bench.end("run").await;
    let attempts = || bench.world.lines(how).into_iter().map(|line| line.attempt).collect::<Vec<_>>();
    let before = attempts();
    // Restarts that follow run nothing.
    assert!(child_survives_once_closed(&bench, dir.path(), how).await);
    assert_eq!(before, attempts());
    (before, ended)
}

async fn child_survives_once_closed(bench: &Bench, dir: &Path, how: &str) -> bool {
    bench.replays("run").await;
    bench.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    child::survives("rt_1", dir, how)
}

fn used_up(ended: &Value) -> (u64, bool) {
    let fault = &ended["Err"]["fault"]["AttemptsUsedUp"];
    (fault["attempts"].as_u64().unwrap_or_else(|| panic!("{ended}")), fault["crashed"].as_bool().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn three_attempts_are_three_bodies_though_each_kills_its_process() {
    let (attempts, ended) = supervised("boom").await;
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(used_up(&ended), (3, true));
    let message = ended["Err"]["message"].as_str().unwrap();
    assert!(message.contains("3 attempts are used up") && message.contains("crash"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_attempt_is_one_body() {
    let (attempts, ended) = supervised("boom_once").await;
    assert_eq!((attempts, used_up(&ended)), (vec![1], (1, true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retry_a_crash_is_no_attempt_but_six_bodies_are_all() {
    let most = 1 + durable::REPEATS_AFTER_CRASH_MAX;
    let (attempts, ended) = supervised("boom_without_retry").await;
    assert_eq!(attempts, (1..=most).collect::<Vec<_>>());
    assert_eq!(used_up(&ended), (most.into(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retry_an_error_returned_after_crashes_is_final() {
    let (attempts, ended) = supervised("boom_twice").await;
    assert_eq!((attempts, &ended["Err"]["message"]), (vec![1, 2, 3], &json!("a returned error is final")));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_crashes_are_counted_together() {
    let (attempts, ended) = supervised("fails_then_boom").await;
    assert_eq!((attempts, used_up(&ended)), (vec![1, 2, 3], (3, true)));
    let (attempts, ended) = supervised("boom_then_fails").await;
    assert_eq!((attempts, &ended["Err"]["message"]), (vec![1, 2, 3], &json!("declined")), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_effect_that_kills_its_process_ends_too() {
    let (attempts, ended) = supervised("boom_read_only").await;
    assert_eq!(used_up(&ended), (3, true));
    // The first body begins before its call is durable, so a crash may lose that it ran; no later one does.
    assert!((3..=4).contains(&attempts.len()), "{attempts:?}");
}
