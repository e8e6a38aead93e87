//! What is refused before anything is done: a runtime without resources, and values that are too large.

use std::time::Duration;

use durable::{Builder, Code, EffectContext, Runtime};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, refused},
    world::World,
};

/// Longest value in these tests.
const LIMIT: usize = 2_000;

#[durable::effect(idempotent)]
async fn echo(cx: &EffectContext, #[resource] world: &World, text: String, times: usize) -> durable::Result<String> {
    world.note(cx, text.len());
    Ok(text.repeat(times))
}

#[durable::effect(at_most_once)]
async fn echo_once(cx: &EffectContext, #[resource] world: &World, times: usize) -> durable::Result<String> {
    world.note(cx, times);
    Ok("x".repeat(times))
}

#[durable::workflow]
async fn echoing(text: String, times: usize) -> durable::Result<usize> {
    Ok(echo(text.repeat(times), 1).await?.len())
}

#[durable::workflow]
async fn echoing_much(times: usize) -> durable::Result<usize> {
    Ok(echo("x".into(), times).await?.len())
}

#[durable::workflow]
async fn echoing_once(times: usize) -> durable::Result<usize> {
    Ok(echo_once(times).await?.len())
}

#[durable::workflow]
async fn returning(size: usize) -> String {
    "x".repeat(size)
}

fn limited(builder: Builder) -> Builder {
    builder.value_bytes_max(LIMIT)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_the_resources_that_its_effects_need_does_not_open_and_lists_them() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("store");
    for error in [refused(Runtime::builder().open_in_memory().await), refused(Runtime::builder().open(&place).await)] {
        assert_eq!(error.code(), Code::MissingResources);
        let text = error.to_string();
        for effect in ["effect echo (", "effect echo_once ("] {
            assert!(text.contains(effect), "{effect} in {text}");
        }
        assert!(text.contains("World") && text.contains("opening.rs:"), "{text}");
    }
    assert!(!place.exists(), "nothing was made");
    // A value of another type is no help; the right one is.
    assert_eq!(refused(Runtime::builder().resource(5u32).open(&place).await).code(), Code::MissingResources);
    let runtime = Runtime::builder().resource(World::new()).open(&place).await.unwrap();
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_a_workflow_that_are_too_large_start_nothing() {
    for backend in BOTH {
        let bench = Bench::built(backend, limited).await;
        let error = refused(bench.runtime.start("run", echoing("x".repeat(LIMIT), 1)).await);
        assert_eq!(error.code(), Code::TooLarge);
        let text = error.to_string();
        assert!(text.contains("echoing") && text.contains(&LIMIT.to_string()), "{text}");
        assert!(refused(bench.runtime.run("run").await).is_not_found());
        bench.runtime.start("run", echoing("x".repeat(LIMIT / 2), 1)).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": LIMIT / 2 }));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_of_an_effect_that_is_too_large_runs_no_body() {
    for backend in BOTH {
        let bench = Bench::built(backend, limited).await;
        bench.runtime.start("run", echoing("0123456789".into(), LIMIT)).await.unwrap();
        let ended = bench.end("run").await;
        let fault = &ended["Err"]["fault"]["NotRecordable"];
        assert_eq!((&fault["effect"], &fault["limit"]), (&json!("echo"), &json!(LIMIT)), "{ended}");
        assert!(fault["size"].as_u64().unwrap() > 10 * LIMIT as u64);
        assert_eq!(bench.world.bodies("echo"), 0);
        bench.runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_too_large_ran_once_and_is_an_error_of_its_own() {
    for backend in BOTH {
        let bench = Bench::built(backend, limited).await;
        bench.runtime.start("much", echoing_much(LIMIT)).await.unwrap();
        bench.runtime.start("once", echoing_once(LIMIT)).await.unwrap();
        for (id, effect) in [("much", "echo"), ("once", "echo_once")] {
            let ended = bench.end(id).await;
            let fault = &ended["Err"]["fault"]["NotRecordable"];
            assert_eq!((&fault["effect"], &fault["limit"]), (&json!(effect), &json!(LIMIT)), "{ended}");
            assert_eq!(bench.world.bodies(effect), 1);
            bench.replays(id).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_met_to_the_byte() {
    let bench = Bench::built(Backend::Memory, limited).await;
    // Encoded as `Ok` of a text: what is around the text is found out first.
    let mut sizes = Vec::new();
    for size in LIMIT - 40..LIMIT + 2 {
        let id = format!("run {size}");
        bench.runtime.start(&id, echoing_much(size)).await.unwrap();
        if bench.end(&id).await.get("Ok").is_some() {
            sizes.push(size);
        }
    }
    let most = *sizes.last().unwrap();
    assert_eq!(sizes, (LIMIT - 40..=most).collect::<Vec<_>>(), "one border");
    assert!((LIMIT - 16..LIMIT).contains(&most), "{most}");
    // What was recorded under a larger limit stays readable under a smaller one.
    let bench = bench.crashed_built(|builder| builder.value_bytes_max(100)).await;
    assert_eq!(bench.end(&format!("run {most}")).await, json!({ "Ok": most }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_own_result_is_too_large_is_parked_and_ends_under_a_larger_limit() {
    for backend in BOTH {
        let bench = Bench::built(backend, limited).await;
        bench.runtime.start("run", returning(LIMIT)).await.unwrap();
        let parked = bench.parked("run").await;
        assert_eq!(parked.code, Code::ResultNotRecordable);
        assert!(parked.why.contains(&LIMIT.to_string()), "{}", parked.why);
        let bench = bench.restarted().await;
        assert_eq!(bench.end("run").await, json!("x".repeat(LIMIT)));
        bench.replays("run").await;
    }
}
