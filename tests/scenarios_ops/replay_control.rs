//! The check must catch code that has changed.

use std::sync::atomic::{AtomicBool, Ordering};

use durable::EffectContext;

use crate::{
    bench::{Backend, Bench},
    replay::{Tape, check, stands},
    world::World,
};

static CHANGED: AtomicBool = AtomicBool::new(false);

#[durable::effect(idempotent)]
async fn step(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn changing() -> u32 {
    let n = if durable::untracked(|| CHANGED.load(Ordering::Relaxed)) { 2 } else { 1 };
    step(1).await + step(n).await
}

#[tokio::test]
async fn the_replay_check_catches_code_that_asks_for_something_else() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", changing()).await.unwrap();
    bench.end("run").await;
    bench.replays("run").await;
    let tape = Tape::of(&*bench.store, "run");
    CHANGED.store(true, Ordering::Relaxed);
    let why = check(&tape, &bench.clock).await.unwrap_err();
    assert!(why.contains("the code and the log disagree"), "{why}");
}

#[tokio::test]
async fn the_replay_check_catches_a_body_that_runs() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("never");
    bench.runtime.start("run", waiting()).await.unwrap();
    bench.world.until_noted("wait", 1).await;
    let tape = Tape::of(&*bench.store, "run");
    let why = stands(&tape, &bench.clock).await.unwrap_err();
    assert!(why.contains("bodies ran") || why.contains("added entries"), "{why}");
}

#[durable::effect(idempotent)]
async fn wait(cx: &EffectContext, #[resource] world: &World) {
    world.note(cx, "");
    world.pass("never").await;
}

#[durable::workflow]
async fn waiting() {
    wait().await;
}
