//! Scenarios about running the thing: crashes, doubt, retries, time, run ids, overload, and what is said of runs that cannot go on.
//! Each module is one scenario or one subject; `bench` has the world in which they play and the replay check that ends each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "bench/bench.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod bench;
#[path = "bench/child.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod child;
#[path = "common/frames.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod frames;
#[path = "scenarios_ops/holds.rs"]
mod holds;
#[path = "scenarios_ops/id_1.rs"]
mod id_1;
#[path = "scenarios_ops/id_2.rs"]
mod id_2;
#[path = "scenarios_ops/id_3.rs"]
mod id_3;
#[path = "scenarios_ops/in_doubt.rs"]
mod in_doubt;
#[path = "scenarios_ops/listing.rs"]
mod listing;
#[path = "scenarios_ops/ob_1.rs"]
mod ob_1;
#[path = "scenarios_ops/ob_2.rs"]
mod ob_2;
#[path = "common/odd.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod odd;
#[path = "bench/odd_store.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod odd_store;
#[path = "scenarios_ops/opening.rs"]
mod opening;
#[path = "scenarios_ops/ov_1.rs"]
mod ov_1;
#[path = "common/pass_on.rs"]
mod pass_on;
#[path = "scenarios_ops/reconcile.rs"]
mod reconcile;
#[path = "bench/replay.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod replay;
#[path = "scenarios_ops/replay_control.rs"]
mod replay_control;
#[path = "scenarios_ops/retry.rs"]
mod retry;
#[path = "scenarios_ops/ri_1.rs"]
mod ri_1;
#[path = "scenarios_ops/ri_2.rs"]
mod ri_2;
#[path = "scenarios_ops/rt_1.rs"]
mod rt_1;
#[path = "scenarios_ops/rt_2.rs"]
mod rt_2;
#[path = "scenarios_ops/rt_3.rs"]
mod rt_3;
#[path = "scenarios_ops/shutdown.rs"]
mod shutdown;
#[path = "scenarios_ops/slots.rs"]
mod slots;
#[path = "scenarios_ops/st_2.rs"]
mod st_2;
#[path = "scenarios_ops/st_3.rs"]
mod st_3;
#[path = "common/tape.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod tape;
#[path = "scenarios_ops/tm_1.rs"]
mod tm_1;
#[path = "scenarios_ops/tm_2.rs"]
mod tm_2;
#[path = "scenarios_ops/tm_3.rs"]
mod tm_3;
#[path = "scenarios_ops/tm_4.rs"]
mod tm_4;
#[path = "bench/world.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod world;

/// Does nothing but in a child.
#[test]
fn as_a_child() {
    child::work(async |task, dir, word| match task.as_str() {
        "id_1" => id_1::child(&dir, &word).await,
        "id_2" => id_2::child(&dir).await,
        "ob_1" => ob_1::child(&dir, &word).await,
        "ov_1" => ov_1::child(&dir).await,
        "ri_1" => ri_1::child(&dir, &word).await,
        "rt_1" => rt_1::child(&dir, &word).await,
        "st_2" => st_2::child(&dir).await,
        "st_3" => st_3::child(&dir).await,
        "tm_1" => tm_1::child(&dir, &word).await,
        _ => panic!("no such task: {task}"),
    });
}
