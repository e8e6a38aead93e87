//! What a replayed step allocates. The one test of its process: the allocator counts for all threads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use durable::{Runtime, store::memory::MemoryStore};
use tokio::sync::Notify;

const STEPS: u64 = 2_000;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Allocations so far, where the code came by.
static PASSED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static MORE: Notify = Notify::const_new();

fn pass() {
    durable::untracked(|| {
        let blocks = dhat::HeapStats::get().total_blocks;
        PASSED.lock().unwrap_or_else(PoisonError::into_inner).push(blocks);
        MORE.notify_one();
    });
}

async fn passed(count: usize) -> Vec<u64> {
    loop {
        let more = MORE.notified();
        {
            let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
            if passed.len() >= count {
                return std::mem::take(&mut passed);
            }
        }
        more.await;
    }
}

#[durable::effect(read_only)]
async fn look(n: u64) -> String {
    format!("{n:0100}")
}

/// `waste`: allocations of the code's own for each step.
#[durable::workflow]
async fn remembers(steps: u64, waste: u64, at_once: bool) -> u64 {
    pass();
    if at_once {
        durable::join_all((0..steps).map(look)).await;
    } else {
        for n in 0..steps {
            for byte in 0..waste {
                black_box(Box::new(byte));
            }
            look(n).await;
        }
    }
    pass();
    durable::signal::<()>("go").await;
    steps
}

/// Allocations a step of the second life of a run.
async fn allocations(waste: u64, at_once: bool) -> f64 {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder().open_store(store.clone()).await.unwrap();
    runtime.start("run", remembers(STEPS, waste, at_once)).await.unwrap();
    passed(2).await;
    runtime.shutdown(Duration::ZERO).await.unwrap();
    let runtime = Runtime::builder().open_store(store.reopened()).await.unwrap();
    let run = runtime.run("run").await.unwrap();
    run.signal("go", &()).await.unwrap();
    let passed = passed(2).await;
    assert_eq!(run.returned_as::<u64>().await.unwrap(), STEPS);
    runtime.shutdown(Duration::ZERO).await.unwrap();
    (passed[1] - passed[0]) as f64 / STEPS as f64
}

#[tokio::test]
async fn a_replayed_step_allocates_a_known_number_of_times_and_what_its_code_allocates_beside_is_seen() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let plain = allocations(0, false).await;
    // Its result as the code has it.
    assert!(plain <= 1.05, "{plain} allocations a replayed step");
    let branch = allocations(0, true).await;
    // Its arguments, its future, what the fold keeps of an open step, its result.
    assert!(branch <= 4.1, "{branch} allocations a replayed branch of join_all");
    // The control: the counter counts.
    let wasteful = allocations(3, false).await;
    assert!((wasteful - plain - 3.0).abs() < 0.1, "{wasteful} and {plain}");
}
