//! What the stories of the larger examples are played on: other processes, a second terminal, and a voice that tells what
//! happens. Not a part of any agent.

#![allow(dead_code, reason = "each example takes what it needs")]

pub(crate) mod paint;
pub(crate) mod process;
pub(crate) mod tell;
pub(crate) mod terminal;
