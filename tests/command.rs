//! The command `durable`, as people use it: the real binary, on a store that no process holds, and beside a process that holds it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(unix)]

#[path = "command/bench.rs"]
mod bench;
#[path = "command/care.rs"]
mod care;
#[path = "command/code.rs"]
mod code;
#[path = "command/copy.rs"]
mod copy;
#[path = "command/holder.rs"]
mod holder;
#[path = "command/leaves.rs"]
mod leaves;
#[path = "command/left.rs"]
mod left;
#[path = "command/live.rs"]
mod live;
#[path = "command/look.rs"]
mod look;
#[path = "command/odd_ids.rs"]
mod odd_ids;
#[path = "command/people.rs"]
mod people;
#[path = "command/socket.rs"]
mod socket;
#[path = "command/stands.rs"]
mod stands;
#[path = "command/stop.rs"]
mod stop;
#[path = "command/words.rs"]
mod words;
#[path = "command/work.rs"]
mod work;
