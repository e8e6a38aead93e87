//! O-RI-1: the same id started twice, by one process.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use durable::{
    Code, EffectContext, Runtime, TestClock,
    store::{Store, Write, memory::MemoryStore},
};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Backend, Bench, open_sled, refused, until},
    child,
    odd::Odd,
    odd_store::{Fuse, fused},
    world::World,
};

#[durable::effect(at_most_once)]
async fn ship(cx: &EffectContext, #[resource] world: &World, order: u32) -> u32 {
    world.note(cx, order);
    world.pass("ship").await;
    order
}

#[durable::workflow]
async fn fulfil(order: u32) -> u32 {
    ship(order).await
}

#[durable::workflow]
async fn cancel(order: u32) -> u32 {
    order
}

/// Starts the run and dies before, or when, that is durable.
pub(crate) async fn child(dir: &Path, word: &str) {
    let creates: fn(&Write) -> bool = |write| matches!(write, Write::Create { .. });
    let fuse = if word == "before" { Fuse::Before(1) } else { Fuse::After(1) };
    let store = fused(open_sled(dir.join("store")).await.unwrap(), creates, fuse);
    let runtime = Runtime::builder().resource(World::in_file(dir.join("ledger"))).open_store(store).await.unwrap();
    runtime.start("order-1", fulfil(1)).await.unwrap().returned().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn fifty_starts_of_one_id_are_one_run() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let starts: Vec<_> = (0..50)
            .map(|n| {
                let runtime = bench.runtime.clone();
                tokio::spawn(async move {
                    match n % 5 {
                        3 => runtime.start("order-1", fulfil(2)).await,
                        4 => runtime.start("order-1", cancel(1)).await,
                        _ => runtime.start("order-1", fulfil(1)).await,
                    }
                })
            })
            .collect();
        let mut outputs = BTreeSet::new();
        let mut conflicts = Vec::new();
        for start in starts {
            match start.await.unwrap() {
                Ok(run) => drop(outputs.insert(run.returned().await.unwrap())),
                Err(error) => conflicts.push(error),
            }
        }
        // Whoever was first decides; all that asked for the same got the same.
        assert_eq!(outputs.len(), 1);
        assert!(conflicts.len() >= 20, "{}", conflicts.len());
        assert!(conflicts.iter().all(durable::Error::is_conflict), "{conflicts:?}");
        assert!(bench.world.bodies("ship") <= 1);
        let log = bench.names("order-1").await;
        assert_eq!(log.iter().filter(|name| **name == "run.started").count(), 1);
        bench.replays("order-1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_names_both_and_touches_nothing() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("ship");
        bench.runtime.start("order-1", fulfil(1)).await.unwrap();
        bench.world.until_noted("ship", 1).await;
        let before = bench.names("order-1").await;
        let other = refused(bench.runtime.start("order-1", fulfil(2)).await);
        assert_eq!(other.code(), Code::OtherArguments);
        let text = other.to_string();
        assert!(text.contains(r#"{"order":1}"#) && text.contains(r#"{"order":2}"#), "{text}");
        let other = refused(bench.runtime.start("order-1", cancel(1)).await);
        assert_eq!(other.code(), Code::OtherWorkflow);
        let text = other.to_string();
        assert!(text.contains("fulfil") && text.contains("cancel"), "{text}");
        let other = refused(bench.runtime.start("order-1", twin::fulfil(1)).await);
        assert_eq!(other.code(), Code::OtherWorkflow, "another module's workflow is another workflow");
        let text = other.to_string();
        assert!(text.contains("ri_1::fulfil") && text.contains("ri_1::twin::fulfil"), "{text}");
        assert_eq!(bench.names("order-1").await, before);

        // The first run is recovered as if nobody had asked.
        let bench = bench.restarted().await;
        let hold = bench.held("order-1").await;
        bench.runtime.resolve("order-1", hold.step, hold.attempt, durable::Resolution::succeeded(1)).await.unwrap();
        assert_eq!(bench.end("order-1").await, json!(1));
        // Also after its end.
        assert_eq!(refused(bench.runtime.start("order-1", fulfil(2)).await).code(), Code::OtherArguments);
        assert_eq!(bench.runtime.start("order-1", fulfil(1)).await.unwrap().returned().await.unwrap(), 1);
        bench.replays("order-1").await;
    }
}

mod twin {
    #[durable::workflow]
    pub(crate) async fn fulfil(order: u32) -> u32 {
        order
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_in_start_leaves_a_run_or_none_and_a_second_start_tells() {
    for word in ["before", "after"] {
        let dir = tempfile::tempdir().unwrap();
        child::dies("ri_1", dir.path(), word);
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
        if word == "before" {
            assert!(refused(bench.runtime.run("order-1").await).is_not_found());
        } else {
            // It goes on by itself.
            bench.end("order-1").await;
        }
        let run = bench.runtime.start("order-1", fulfil(1)).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), 1);
        assert_eq!(bench.world.bodies("ship"), 1);
        bench.replays("order-1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_dropped_may_be_started_again_and_then_goes_on() {
    // Creation is held back until the starter has lost patience.
    let (memory, world) = (Arc::new(MemoryStore::new()), World::new());
    let slow = Odd::new(memory.clone(), |inner: &Arc<MemoryStore>, write, done| match write {
        Write::Create { .. } => {
            let inner = inner.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                inner.submit(write, done);
            });
        }
        other => inner.submit(other, done),
    });
    let runtime = Runtime::builder().resource(world.clone()).open_store(slow).await.unwrap();
    for n in 0..20 {
        let id = format!("order-{n}");
        // Between nothing and twice what it takes.
        let patience = Duration::from_millis(2 * n);
        let first = tokio::time::timeout(patience, runtime.start(&id, fulfil(1))).await;
        drop(first);
        let run = runtime.start(&id, fulfil(1)).await.unwrap();
        let returned = tokio::time::timeout(crate::bench::DEADLINE, run.returned()).await;
        assert_eq!(returned.expect("it goes on").unwrap(), 1);
    }
    assert_eq!(world.bodies("ship"), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_starter_was_dropped_goes_on_when_anybody_asks_for_it() {
    let bench = Bench::on(Backend::Memory).await;
    // The store has the run, and no task of the process knows of it.
    let other = Bench::on(Backend::Memory).await;
    other.world.close("ship");
    other.runtime.start("order-1", fulfil(1)).await.unwrap();
    other.world.until_noted("ship", 1).await;
    let record = other.store.run(&durable::RunId::new("order-1").unwrap()).unwrap().unwrap();
    let first = crate::replay::Tape::of(&*other.store, "order-1").frames[0].clone();
    let (done, wait) = tokio::sync::oneshot::channel();
    let create =
        Write::Create { run: durable::RunId::new("order-1").unwrap(), count: 1, frames: first, head: record.head };
    bench.store.submit(create, Box::new(move |result| drop(done.send(result))));
    wait.await.unwrap().unwrap();
    let run = bench.runtime.run("order-1").await.unwrap();
    assert_eq!(run.returned_as::<u32>().await.unwrap(), 1);
    until("one body", async || bench.world.bodies("ship") == 1).await;
}
