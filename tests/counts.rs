//! What steps cost the disk, in numbers of things done. `benches/steps` has the same in seconds, beside what the disk takes for the
//! same bytes; `allocations.rs` has what a replay allocates, and `durable-runtime/src/steps/tests/polls.rs` how often code is polled.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "counts/held.rs"]
mod held;
#[path = "common/pass_on.rs"]
mod pass_on;

use std::time::Duration;

use durable::{
    EffectContext, Runtime, WorkflowCall,
    store::sled::{Counts, SledOptions, SledStore},
};
use held::Held;

const STEPS: u64 = 1_000;
/// Made, claimed, ended; and one that a run's other writes may fall into.
const PER_RUN: u64 = 4;

#[durable::effect(read_only)]
async fn look(n: u64) -> String {
    format!("{n:0100}")
}

#[durable::effect(key = "{n}")]
async fn act(_cx: &EffectContext, n: u64) -> String {
    format!("{n:0100}")
}

#[durable::workflow]
async fn looks(steps: u64) -> u64 {
    for n in 0..steps {
        look(n).await;
    }
    steps
}

#[durable::workflow]
async fn acts(steps: u64) -> u64 {
    for n in 0..steps {
        act(n).await;
    }
    steps
}

/// What a run writes, and in how many batches.
async fn written(call: WorkflowCall<u64>, held: bool) -> (Counts, u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = Held::new(SledStore::open(dir.path(), SledOptions::new()).unwrap(), held);
    let runtime = Runtime::builder().open_store(store.clone()).await.unwrap();
    let run = runtime.start("run", call).await.unwrap();
    if held {
        store.release_when_ended(1).await;
    }
    run.returned().await.unwrap();
    runtime.shutdown(Duration::ZERO).await.unwrap();
    (store.counts(), store.batches() as u64)
}

/// The store is kept waiting until the run is through: what is written meanwhile is all that the run has to say at once.
#[tokio::test]
async fn steps_that_nobody_outside_can_notice_are_gathered_while_the_disk_is_waited_for() {
    let (counts, batches) = written(looks(STEPS), true).await;
    // 64 KiB at a time, each with what one more step adds.
    let full = counts.entry_bytes / (64 * 1024);
    assert!(batches <= full + 3, "{batches} batches of {} bytes", counts.entry_bytes);
    assert!(counts.commits <= batches + PER_RUN, "{counts:?}");
    assert!(counts.commits * 20 <= STEPS, "at most 0.05 syncs a step: {counts:?}");
}

#[tokio::test]
async fn steps_that_the_world_notices_wait_for_the_disk_once_each() {
    let (counts, batches) = written(acts(STEPS), false).await;
    assert!(batches <= STEPS + 1, "{batches} batches");
    assert!(counts.commits <= STEPS + PER_RUN, "{counts:?}");
    assert!(counts.records <= STEPS + PER_RUN, "{counts:?}");
}

#[tokio::test]
async fn a_run_of_one_step_is_two_commits_if_nobody_outside_can_notice_the_step_and_else_three() {
    let (counts, _) = written(looks(1), false).await;
    assert_eq!(counts.commits, written(looks(0), false).await.0.commits, "the step and the end are written together");
    assert_eq!(written(acts(1), false).await.0.commits, counts.commits + 1);
}

/// The control of the counts: a step that waits for the disk is seen to.
#[tokio::test]
async fn each_wait_for_the_disk_is_seen() {
    let (few, _) = written(acts(10), false).await;
    let (more, _) = written(acts(20), false).await;
    assert_eq!((more.commits - few.commits, more.records - few.records), (10, 10));
}
