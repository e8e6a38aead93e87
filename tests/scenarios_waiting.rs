//! Scenarios about waiting, other runs and ending: signals, cancel, children, people, shutdown, deploys. Each module is one scenario;
//! `bench` has the world in which they play and the replay check that ends each. Where one says crash or kill, a real process is
//! killed, or what it would have left at each of its writes is opened.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "scenarios_waiting/ag_1.rs"]
mod ag_1;
#[path = "scenarios_waiting/ag_2.rs"]
mod ag_2;
#[path = "scenarios_waiting/ag_3.rs"]
mod ag_3;
#[path = "bench/bench.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod bench;
#[path = "scenarios_waiting/ch_1.rs"]
mod ch_1;
#[path = "bench/child.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod child;
#[path = "scenarios_waiting/cn_1.rs"]
mod cn_1;
#[path = "scenarios_waiting/cn_2.rs"]
mod cn_2;
#[path = "scenarios_waiting/cn_3.rs"]
mod cn_3;
#[path = "common/counting.rs"]
mod counting;
#[path = "bench/film.rs"]
mod film;
#[path = "common/frames.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod frames;
#[path = "common/odd.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod odd;
#[path = "bench/odd_store.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod odd_store;
#[path = "common/pass_on.rs"]
mod pass_on;
#[path = "bench/replay.rs"]
mod replay;
#[path = "scenarios_waiting/sg_1.rs"]
mod sg_1;
#[path = "scenarios_waiting/sg_2.rs"]
mod sg_2;
#[path = "scenarios_waiting/sg_3.rs"]
mod sg_3;
#[path = "scenarios_waiting/sg_4.rs"]
mod sg_4;
#[path = "common/tape.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod tape;
#[path = "scenarios_waiting/tm_5.rs"]
mod tm_5;
#[path = "scenarios_waiting/vr_2.rs"]
mod vr_2;
#[path = "bench/world.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod world;

/// Does nothing but in a child.
#[test]
fn as_a_child() {
    child::work(async |task, dir, word| match task.as_str() {
        "ag_1" => ag_1::child(&dir, &word).await,
        "ag_3" => ag_3::child(&dir, &word).await,
        "cn_1" => cn_1::child(&dir, &word).await,
        "sg_2" => sg_2::child(&dir, &word).await,
        "sg_3" => sg_3::child(&dir).await,
        _ => panic!("no such task: {task}"),
    });
}
