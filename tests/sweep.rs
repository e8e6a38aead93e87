//! Every place at which a process can die, in a simulated machine: before each write that it submits, and before each sync
//! of its disk; two deaths in a run; and the loss of power, which takes all that was not synced.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/mod.rs"]
mod common;
#[path = "sweep/controls.rs"]
mod controls;
#[path = "../durable-runtime/tests/store/crash.rs"]
mod crash;
#[path = "sweep/disk.rs"]
mod disk;
#[path = "sweep/exhaustive.rs"]
mod exhaustive;
#[path = "sweep/machine.rs"]
mod machine;
#[path = "sweep/power.rs"]
mod power;
