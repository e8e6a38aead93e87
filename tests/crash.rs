//! Real processes on a real store, killed by SIGKILL: at every labelled point of the protocol, and at random.
//!
//! The points: K0 inside `start`; K1 after the intent is durable, before the body; K2 inside the body, after its ledger line;
//! K3 after the body returned, before its outcome is durable; K4 after that, before anything follows from it; K5 after the code
//! returned, before the run's end is durable. A child stops itself at its point, says so, and waits for its parent to kill it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "crash/child.rs"]
mod child;
#[path = "common/mod.rs"]
mod common;
#[path = "crash/controls.rs"]
mod controls;
#[path = "crash/points.rs"]
mod points;
#[path = "crash/random.rs"]
mod random;
#[path = "crash/stops.rs"]
mod stops;
#[path = "crash/waiting.rs"]
mod waiting;
#[path = "crash/work.rs"]
mod work;
