//! Scenarios about the workflow's code: what it asks, in which order, with which values, and what becomes of a run whose code
//! has changed. Each module is one scenario; `support` has the world in which they play and the replay check that ends each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/frames.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod frames;
#[path = "common/tape.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod image;
#[path = "scenarios_code/lh_1.rs"]
mod lh_1;
#[path = "scenarios_code/nd_1.rs"]
mod nd_1;
#[path = "scenarios_code/nd_2.rs"]
mod nd_2;
#[path = "scenarios_code/nd_3.rs"]
mod nd_3;
#[path = "scenarios_code/nd_4.rs"]
mod nd_4;
#[path = "scenarios_code/nd_4_signal.rs"]
mod nd_4_signal;
#[path = "scenarios_code/nd_5.rs"]
mod nd_5;
#[path = "scenarios_code/nd_6.rs"]
mod nd_6;
#[path = "scenarios_code/nd_7.rs"]
mod nd_7;
#[path = "scenarios_code/nd_7_child.rs"]
mod nd_7_child;
#[path = "scenarios_code/nd_8.rs"]
mod nd_8;
#[path = "common/pass_on.rs"]
mod pass_on;
#[path = "scenarios_code/pl_1.rs"]
mod pl_1;
#[path = "scenarios_code/pl_2.rs"]
mod pl_2;
#[path = "scenarios_code/pl_signals.rs"]
mod pl_signals;
#[path = "scenarios_code/scripted.rs"]
mod scripted;
#[path = "scenarios_code/shapes.rs"]
mod shapes;
#[path = "scenarios_code/support.rs"]
mod support;
#[path = "scenarios_code/tape.rs"]
mod tape;
#[path = "scenarios_code/vr_1.rs"]
mod vr_1;
#[path = "scenarios_code/vr_3.rs"]
mod vr_3;
