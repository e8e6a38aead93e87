//! Doubt that the code handles, and bodies that do not know themselves.

use durable::{EffectContext, Fault, Resolution};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, secs},
    world::World,
};

#[durable::effect(at_most_once, timeout = "10s", in_doubt = error)]
async fn pay(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    world.pass("pay").await;
    match world.word("pay").as_str() {
        "unknown" => Err(cx.in_doubt("timed out after send").into()),
        "panic" => panic!("the answer cannot be read"),
        _ => Ok("paid".into()),
    }
}

#[durable::effect(at_most_once)]
async fn unsure(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    match world.word("unsure").as_str() {
        "panic" => panic!("the answer cannot be read"),
        "ok" => {
            // What it returns is discarded all the same.
            let _ = cx.in_doubt("connection reset");
            Ok("paid".into())
        }
        _ => Err(cx.in_doubt("connection reset").into()),
    }
}

#[durable::effect(idempotent, retry(attempts = 3, first = "1s", max = "1s"))]
async fn unsure_idempotent(cx: &EffectContext, #[resource] world: &World) -> durable::Result<u32> {
    world.note(cx, "");
    match cx.attempt() {
        3 => Ok(3),
        _ => Err(cx.in_doubt("connection reset").into()),
    }
}

#[durable::effect(key)]
async fn unsure_without_retry(cx: &EffectContext, #[resource] world: &World) -> durable::Result<u32> {
    world.note(cx, "");
    Err(cx.in_doubt("connection reset").into())
}

#[durable::workflow]
async fn paying() -> durable::Result<String> {
    match pay().await {
        Err(failure) if matches!(failure.fault(), Some(Fault::InDoubt { .. })) => Ok(format!("handled: {failure}")),
        other => other,
    }
}

#[durable::workflow]
async fn paying_unsure() -> durable::Result<String> {
    unsure().await
}

#[durable::workflow]
async fn trying() -> durable::Result<u32> {
    unsure_idempotent().await
}

#[durable::workflow]
async fn trying_once() -> durable::Result<u32> {
    unsure_without_retry().await
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_as_an_error_reaches_the_code_once_and_the_body_never_runs_again() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("pay");
        bench.runtime.start("run", paying()).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        let bench = bench.restarted().await;
        let ended = bench.end("run").await;
        assert!(ended["Ok"].as_str().unwrap().starts_with("handled: whether attempt 1 of `pay` happened"), "{ended}");
        assert_eq!(bench.world.bodies("pay"), 1);
        assert_eq!(bench.count("run", "effect.in_doubt").await, 1);
        assert!(bench.runtime.holds().await.unwrap().is_empty());
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_as_an_error_also_where_the_body_says_so_panics_or_takes_too_long() {
    for (word, says) in
        [("unknown", "timed out after send"), ("panic", "the answer cannot be read"), ("late", "within")]
    {
        let bench = Bench::on(Backend::Memory).await;
        bench.world.say("pay", word);
        if word == "late" {
            bench.world.close("pay");
        }
        bench.runtime.start("run", paying()).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        if word == "late" {
            bench.advance(secs(10)).await;
        }
        let ended = bench.end("run").await;
        let text = ended["Ok"].as_str().unwrap();
        assert!(text.starts_with("handled: ") && text.contains(says), "{word}: {text}");
        // A late end changes nothing any more.
        bench.world.open("pay");
        crate::bench::until("no body", async || bench.runtime.bodies().is_empty()).await;
        bench.looked().await;
        assert_eq!(bench.world.bodies("pay"), 1);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_says_that_it_does_not_know_is_held_whatever_it_returns() {
    for word in ["", "ok", "panic"] {
        let bench = Bench::on(Backend::Memory).await;
        bench.world.say("unsure", word);
        bench.runtime.start("run", paying_unsure()).await.unwrap();
        let hold = bench.held("run").await;
        let reason = if word == "panic" { "it panicked: the answer cannot be read" } else { "connection reset" };
        assert_eq!(hold.reason, reason);
        bench.stands("run").await;
        let bench = bench.crashed().await;
        let hold = bench.held("run").await;
        assert_eq!(hold.reason, reason, "also after a restart");
        bench.world.say("unsure", "ok");
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::run_again()).await.unwrap();
        crate::bench::until("the second doubt", async || bench.count("run", "effect.in_doubt").await == 2).await;
        let hold = bench.held("run").await;
        assert_eq!(hold.attempt, durable::Attempt(2));
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::succeeded("paid")).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "paid" }));
        assert_eq!(bench.world.bodies("unsure"), 2);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_about_what_may_be_repeated_is_a_failed_attempt() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", trying()).await.unwrap();
    for bodies in 1..=2 {
        bench.world.until_noted("unsure_idempotent", bodies).await;
        bench.until_word("run", "retrying").await;
        bench.advance(secs(1)).await;
    }
    assert_eq!(bench.end("run").await, json!({ "Ok": 3 }));
    let log = bench.log("run").await;
    assert!(log.iter().filter(|e| e.name == "effect.failed").all(|e| e.get("unsure") == Some(&json!(true))));
    bench.replays("run").await;

    bench.runtime.start("once", trying_once()).await.unwrap();
    let ended = bench.end("once").await;
    assert_eq!(ended["Err"]["fault"]["InDoubt"]["reason"], "connection reset", "{ended}");
    assert_eq!(bench.world.bodies("unsure_without_retry"), 1);
    bench.replays("once").await;
}
