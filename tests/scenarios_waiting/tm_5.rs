//! O-TM-5: a shutdown does not wait for who waits.

use durable::{EffectContext, Filter, StatusKind};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, DEADLINE, millis, secs, until},
    world::World,
};

const DAY: u64 = 86_400;

#[durable::effect(at_most_once)]
async fn act(cx: &EffectContext, #[resource] world: &World, gate: String) -> String {
    world.note(cx, &gate);
    world.pass(&gate).await;
    gate
}

#[durable::workflow]
async fn sleeps() -> u32 {
    durable::sleep(secs(DAY)).await;
    1
}

#[durable::workflow]
async fn waits() -> String {
    durable::signal("go").await
}

#[durable::workflow]
async fn acts(gate: String) -> String {
    act(gate).await
}

async fn count(bench: &Bench, kind: StatusKind) -> usize {
    bench.runtime.runs(Filter::unfinished().status(kind)).await.unwrap().len()
}

/// A hundred in `sleep(1 day)` and ten that wait for a signal, half of each out of memory; three in an effect of two seconds, one in
/// an effect that never returns.
async fn busy(backend: Backend) -> Bench {
    let bench = Bench::on(backend).await;
    bench.world.close("slow");
    bench.world.close("never");
    for half in 0..2 {
        for n in 0..50 {
            bench.runtime.start(format!("sleeper {half} {n}"), sleeps()).await.unwrap();
        }
        for n in 0..5 {
            bench.runtime.start(format!("waiter {half} {n}"), waits()).await.unwrap();
        }
        until("all asleep", async || count(&bench, StatusKind::Sleeping).await == 50 * (half + 1)).await;
        until("all waiting", async || count(&bench, StatusKind::AwaitingSignal).await == 5 * (half + 1)).await;
        if half == 0 {
            // The first half leaves memory.
            bench.advance(secs(2)).await;
        }
    }
    for n in 0..3 {
        bench.runtime.start(format!("slow {n}"), acts("slow".into())).await.unwrap();
    }
    bench.runtime.start("hanging", acts("never".into())).await.unwrap();
    bench.world.until_noted("act", 4).await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_bodies_within_its_grace_and_for_nobody_else() {
    for backend in BOTH {
        let bench = busy(backend).await;
        let (runtime, clock) = (bench.runtime.clone(), bench.clock.clone());
        let down = tokio::spawn(async move { runtime.shutdown(secs(5)).await.unwrap() });
        until("shutting down", async || bench.runtime.start("sleeper 0 0", sleeps()).await.is_err()).await;
        clock.advance(secs(2));
        bench.world.open("slow");
        until("the slow ones to end", async || bench.runtime.bodies().len() == 1).await;
        clock.advance(secs(3) - millis(1));
        assert!(!down.is_finished(), "the grace is not over");
        clock.advance(millis(1));
        let report = tokio::time::timeout(DEADLINE, down).await.expect("the grace is over").unwrap();
        let named: Vec<_> = report.abandoned.iter().map(|body| (body.run.as_str(), body.path.as_str())).collect();
        assert_eq!(named, [("hanging", "act[0]")]);

        let bench = bench.restarted().await;
        for n in 0..3 {
            assert_eq!(bench.end(&format!("slow {n}")).await, json!("slow"), "recorded, and not run again");
            bench.replays(&format!("slow {n}")).await;
        }
        assert_eq!(bench.held("hanging").await.effect, "act");
        assert_eq!(bench.world.bodies("act"), 4);
        until("all asleep", async || count(&bench, StatusKind::Sleeping).await == 100).await;
        until("all waiting", async || count(&bench, StatusKind::AwaitingSignal).await == 10).await;
        assert!(bench.runtime.audit().await.unwrap().is_empty());
        bench.advance(secs(DAY)).await;
        for (half, n) in (0..2).flat_map(|half| (0..50).map(move |n| (half, n))) {
            assert_eq!(bench.end(&format!("sleeper {half} {n}")).await, json!(1));
        }
        for (half, n) in (0..2).flat_map(|half| (0..5).map(move |n| (half, n))) {
            let id = format!("waiter {half} {n}");
            bench.runtime.signal(&id, "go", "on").await.unwrap();
            assert_eq!(bench.end(&id).await, json!("on"));
        }
        bench.replays("sleeper 0 0").await;
        bench.replays("sleeper 1 49").await;
        bench.replays("waiter 0 0").await;
    }
}
