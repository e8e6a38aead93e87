//! Shutting down, with and without grace.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use durable::{Code, EffectContext, Runtime, TestClock, store::memory::MemoryStore};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Backend, Bench, millis, refused, secs, until},
    odd::Odd,
    world::World,
};

#[durable::effect(at_most_once)]
async fn once(cx: &EffectContext, #[resource] world: &World, gate: String) -> durable::Result<String> {
    world.note(cx, &gate);
    world.pass(&gate).await;
    Ok(format!("passed {gate}"))
}

/// Stops when it is told that nobody waits.
#[durable::effect(at_most_once)]
async fn polite(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    cx.cancelled().await;
    Ok("stopped in time".into())
}

#[durable::effect(idempotent)]
async fn after(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    Ok(())
}

#[durable::workflow]
async fn through(gate: String) -> durable::Result<String> {
    let passed = once(gate).await?;
    after().await?;
    Ok(passed)
}

#[durable::workflow]
async fn politely() -> durable::Result<String> {
    polite().await
}

#[durable::workflow]
async fn sleeps() {
    durable::sleep(secs(86_400)).await;
}

/// A hundred sleepers, three bodies that will return, one that will not.
async fn busy(backend: Backend) -> Bench {
    let bench = Bench::on(backend).await;
    bench.world.close("slow");
    bench.world.close("never");
    for n in 0..100 {
        bench.runtime.start(format!("sleeper {n}"), sleeps()).await.unwrap();
    }
    for n in 0..3 {
        bench.runtime.start(format!("slow {n}"), through("slow".into())).await.unwrap();
    }
    bench.runtime.start("hanging", through("never".into())).await.unwrap();
    bench.world.until_noted("once", 4).await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_within_the_grace_is_kept_and_what_does_not_is_named() {
    for backend in BOTH {
        let bench = busy(backend).await;
        let (runtime, clock) = (bench.runtime.clone(), bench.clock.clone());
        let down = tokio::spawn(async move { runtime.shutdown(secs(5)).await.unwrap() });
        until("shutting down", async || bench.runtime.start("new", sleeps()).await.is_err()).await;
        clock.advance(secs(2));
        bench.world.open("slow");
        until("the slow ones to end", async || bench.runtime.bodies().len() == 1).await;
        assert!(!down.is_finished(), "the grace is not over");
        clock.advance(secs(3) - millis(1));
        assert!(!down.is_finished());
        clock.advance(millis(1));
        let report = tokio::time::timeout(crate::bench::DEADLINE, down).await.expect("grace over").unwrap();
        assert_eq!(report.abandoned.len(), 1, "{report:?}");
        let left = &report.abandoned[0];
        assert_eq!((left.run.as_str(), left.effect, left.path.as_str()), ("hanging", "once", "once[0]"));
        assert_eq!(bench.world.bodies("after"), 0, "no body begins any more");

        // Everything goes on, and no body runs twice.
        let bench = bench.restarted().await;
        for n in 0..3 {
            assert_eq!(bench.end(&format!("slow {n}")).await, json!({ "Ok": "passed slow" }));
            bench.replays(&format!("slow {n}")).await;
        }
        assert_eq!(bench.held("hanging").await.effect, "once");
        for n in 0..100 {
            bench.until_word(&format!("sleeper {n}"), "sleeping").await;
        }
        assert_eq!((bench.world.bodies("once"), bench.world.bodies("after")), (4, 3));
        bench.advance(secs(86_400)).await;
        for n in 0..100 {
            bench.end(&format!("sleeper {n}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sleepers_do_not_delay_a_shutdown() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for n in 0..20 {
            bench.runtime.start(format!("sleeper {n}"), sleeps()).await.unwrap();
        }
        // The clock stands still: a shutdown that waits for anything would hang.
        let report = bench.runtime.shutdown(secs(3_600)).await.unwrap();
        assert!(report.abandoned.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_can_stop_is_told() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", politely()).await.unwrap();
        bench.world.until_noted("polite", 1).await;
        let report = bench.runtime.shutdown(secs(3_600)).await.unwrap();
        assert!(report.abandoned.is_empty(), "{report:?}");
        let bench = bench.restarted().await;
        assert_eq!(bench.end("run").await, json!({ "Ok": "stopped in time" }));
        assert_eq!(bench.world.bodies("polite"), 1);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_or_comes_later_is_told_that_the_runtime_is_shut_down() {
    for backend in BOTH {
        let bench = busy(backend).await;
        let run = bench.runtime.run("sleeper 1").await.unwrap();
        let waiting = tokio::spawn(async move { run.returned_as::<serde_json::Value>().await });
        bench.looked().await;
        bench.runtime.shutdown(Duration::ZERO).await.unwrap();
        assert_eq!(refused(waiting.await.unwrap()).code(), Code::Closed);
        assert_eq!(refused(bench.runtime.start("new", sleeps()).await).code(), Code::Closed);
        assert_eq!(refused(bench.runtime.run("sleeper 1").await).code(), Code::Closed);
        assert_eq!(refused(bench.runtime.retry("sleeper 1").await).code(), Code::Closed);
        assert_eq!(refused(bench.runtime.holds().await).code(), Code::Closed);
        // A second shutdown finds nothing to do.
        assert!(bench.runtime.shutdown(secs(1)).await.unwrap().abandoned.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_shutdowns_at_once_both_return() {
    for backend in BOTH {
        let bench = busy(backend).await;
        let (one, other) = (bench.runtime.clone(), bench.runtime.clone());
        let (first, second) = tokio::join!(one.shutdown(Duration::ZERO), other.shutdown(Duration::ZERO));
        first.unwrap();
        second.unwrap();
        let bench = bench.restarted().await;
        assert_eq!(bench.held("hanging").await.effect, "once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_decided_and_not_begun_is_not_in_doubt() {
    // Writes are held back, so that the body cannot begin; then all are let through at once, while the runtime shuts down.
    let (memory, held) = (Arc::new(MemoryStore::new()), Arc::new(Mutex::new(Some(Vec::new()))));
    let queue = held.clone();
    let store = Odd::new(memory.clone(), move |inner: &Arc<MemoryStore>, write, done| {
        let mut queue = queue.lock().unwrap();
        match (&mut *queue, crate::odd_store::appends(&write)) {
            (Some(held), true) => held.push((write, done)),
            _ => {
                drop(queue);
                durable::store::Store::submit(inner, write, done);
            }
        }
    });
    let (world, clock) = (World::new(), TestClock::at(BEGINNING));
    world.close("gate");
    let runtime = Runtime::builder().resource(world.clone()).clock(clock.clone()).open_store(store).await.unwrap();
    runtime.start("run", through("gate".into())).await.unwrap();
    until("the call to be written", async || !held.lock().unwrap().as_ref().unwrap().is_empty()).await;
    let closing = runtime.clone();
    let down = tokio::spawn(async move { closing.shutdown(secs(60)).await.unwrap() });
    until("the call to be taken back", async || held.lock().unwrap().as_ref().unwrap().len() == 2).await;
    for (write, done) in held.lock().unwrap().take().unwrap() {
        durable::store::Store::submit(&*memory, write, done);
    }
    assert!(down.await.unwrap().abandoned.is_empty());
    assert_eq!(world.bodies("once"), 0);
    let bench = Bench::of(Arc::new(memory.reopened()), world.next(), &clock).await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "passed gate" }));
    assert_eq!((bench.world.bodies("once"), bench.count("run", "effect.in_doubt").await), (1, 0));
    assert_eq!(bench.count("run", "effect.not_started").await, 1);
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_while_many_runs_come_back_does_not_replay_them_all_first() {
    let bench = Bench::on(Backend::Memory).await;
    for n in 0..300 {
        bench.runtime.start(format!("sleeper {n}"), sleeps()).await.unwrap();
    }
    let bench = bench.crashed_built(|builder| builder.runs_at_once(1)).await;
    bench.runtime.shutdown(Duration::ZERO).await.unwrap();
    let bench = bench.restarted().await;
    for n in 0..300 {
        bench.until_word(&format!("sleeper {n}"), "sleeping").await;
    }
}

#[durable::effect(at_most_once)]
fn blocks(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    world.block();
    Ok("too late".into())
}

#[durable::workflow]
async fn blocked() -> durable::Result<String> {
    blocks().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_blocks_its_thread_is_named_and_its_late_return_disturbs_nobody() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", blocked()).await.unwrap();
        bench.world.until_noted("blocks", 1).await;
        let report = bench.runtime.shutdown(Duration::ZERO).await.unwrap();
        assert_eq!(report.abandoned.iter().map(|body| body.effect).collect::<Vec<_>>(), ["blocks"]);
        let old = bench.world.clone();
        let bench = bench.restarted().await;
        bench.held("run").await;
        old.go();
        bench.looked().await;
        let hold = bench.held("run").await;
        bench.runtime.resolve("run", hold.step, hold.attempt, durable::Resolution::succeeded("seen")).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "seen" }));
        assert_eq!(bench.world.bodies("blocks"), 1);
        bench.replays("run").await;
    }
}
