//! Going on with parked runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use durable::{Code, EffectContext};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, refused, secs},
    world::World,
};

/// What is outside and makes the code panic.
static BROKEN: AtomicBool = AtomicBool::new(false);
static ALWAYS: AtomicUsize = AtomicUsize::new(0);

#[durable::effect(at_most_once)]
async fn act(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn fragile() -> u32 {
    let first = act(1).await;
    assert!(!durable::untracked(|| BROKEN.load(Ordering::SeqCst)), "the template is missing");
    first + act(2).await
}

#[durable::workflow]
async fn hopeless() -> u32 {
    let first = act(3).await;
    durable::untracked(|| ALWAYS.fetch_add(1, Ordering::SeqCst));
    assert_eq!(first, 4, "never");
    first
}

#[durable::workflow]
async fn idle() {
    durable::sleep(secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_run_goes_on_where_it_stood_once_the_cause_is_gone() {
    for backend in BOTH {
        BROKEN.store(true, Ordering::SeqCst);
        let mut bench = Bench::on(backend).await;
        bench.runtime.start("run", fragile()).await.unwrap();
        for _ in 0..3 {
            let parked = bench.parked("run").await;
            assert_eq!(parked.code, Code::Panicked);
            assert!(parked.why.contains("the template is missing") && parked.why.contains("act"), "{}", parked.why);
            // With the cause still there it is parked again, and nothing has run for it.
            bench.runtime.retry("run").await.unwrap();
            bench.parked("run").await;
            let error = refused(bench.runtime.run("run").await.unwrap().returned_as::<u32>().await);
            assert_eq!(error.code(), Code::Panicked);
            assert_eq!(bench.names("run").await, ["run.started", "effect.called", "effect.result"]);
            bench = bench.restarted().await;
        }
        bench.parked("run").await;
        BROKEN.store(false, Ordering::SeqCst);
        bench.runtime.retry("run").await.unwrap();
        assert_eq!(bench.end("run").await, json!(3));
        assert_eq!(bench.world.bodies("act"), 2);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_retries_at_once_are_no_more_than_one_after_the_other() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", hopeless()).await.unwrap();
    bench.parked("run").await;
    for _ in 0..5 {
        let before = ALWAYS.load(Ordering::SeqCst);
        let retries: Vec<_> = (0..10)
            .map(|_| {
                let runtime = bench.runtime.clone();
                tokio::spawn(async move { runtime.retry("run").await })
            })
            .collect();
        let mut tried = 0;
        for retry in retries {
            match retry.await.unwrap() {
                Ok(()) => tried += 1,
                Err(error) => assert_eq!(error.code(), Code::NotParked, "{error}"),
            }
        }
        bench.parked("run").await;
        assert!((1..=10).contains(&tried));
        assert!(ALWAYS.load(Ordering::SeqCst) - before <= tried, "more lives than retries");
    }
    assert_eq!((bench.world.bodies("act"), bench.names("run").await.len()), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_parked_cannot_be_tried_again() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", idle()).await.unwrap();
        bench.until_word("run", "sleeping").await;
        let error = refused(bench.runtime.retry("run").await);
        assert_eq!(error.code(), Code::NotParked);
        assert!(error.to_string().contains("sleeping"), "{error}");
        bench.advance(secs(60)).await;
        bench.end("run").await;
        let error = refused(bench.runtime.retry("run").await);
        assert_eq!(error.code(), Code::NotParked);
        assert!(error.to_string().contains("completed"), "{error}");
        assert_eq!(bench.names("run").await.len(), 4);
    }
}
