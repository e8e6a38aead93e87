//! Scenarios about running the thing: crashes, doubt, retries, time, run ids, overload, and what is said of runs that cannot go on.
//! Each module is one scenario or one subject; `bench` has the world in which they play and the replay check that ends each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "scenarios_ops/bench.rs"]
mod bench;
#[path = "scenarios_ops/child.rs"]
mod child;
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
#[path = "scenarios_ops/odd_store.rs"]
mod odd_store;
#[path = "scenarios_ops/opening.rs"]
mod opening;
#[path = "scenarios_ops/ov_1.rs"]
mod ov_1;
#[path = "scenarios_ops/reconcile.rs"]
mod reconcile;
#[path = "scenarios_ops/replay.rs"]
mod replay;
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
#[path = "scenarios_ops/tm_1.rs"]
mod tm_1;
#[path = "scenarios_ops/tm_2.rs"]
mod tm_2;
#[path = "scenarios_ops/tm_3.rs"]
mod tm_3;
#[path = "scenarios_ops/tm_4.rs"]
mod tm_4;
#[path = "scenarios_ops/world.rs"]
mod world;
