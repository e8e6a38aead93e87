//! Waiting, other runs, ending: what people and programs outside ask of runs, and what becomes of it. Each module is one subject; `bench`
//! has the world in which they play.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "waiting/audit.rs"]
mod audit;
#[path = "waiting/bench.rs"]
mod bench;
#[path = "waiting/cancel.rs"]
mod cancel;
#[path = "waiting/children.rs"]
mod children;
#[path = "common/counting.rs"]
mod counting;
#[path = "waiting/eviction.rs"]
mod eviction;
#[path = "waiting/fresh_log.rs"]
mod fresh_log;
#[path = "waiting/kept.rs"]
mod kept;
#[path = "waiting/no_cancel.rs"]
mod no_cancel;
#[path = "waiting/no_code.rs"]
mod no_code;
#[path = "waiting/observing.rs"]
mod observing;
#[path = "common/odd.rs"]
#[allow(dead_code, reason = "each test binary takes what it needs")]
mod odd;
#[path = "common/pass_on.rs"]
mod pass_on;
#[path = "waiting/published.rs"]
mod published;
#[path = "waiting/questions.rs"]
mod questions;
#[path = "waiting/shields.rs"]
mod shields;
#[path = "waiting/signals.rs"]
mod signals;
#[path = "waiting/stands.rs"]
mod stands;
#[path = "common/traces.rs"]
mod traces;
#[path = "waiting/undo.rs"]
mod undo;
#[path = "waiting/unreadable.rs"]
mod unreadable;
#[path = "waiting/warnings.rs"]
mod warnings;
#[path = "waiting/who_answers.rs"]
mod who_answers;
