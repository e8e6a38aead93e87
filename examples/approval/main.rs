//! A refund above a limit waits for a person: minutes or weeks, also while nothing runs.
//!
//! ```text
//! cargo run --example approval     # the story: real processes, a real SIGKILL while they wait, the real command `durable`
//! ```
//!
//! By hand, in two terminals:
//!
//! ```text
//! cargo run --example approval -- agent desk                                # the first: the agent; kill it whenever you like
//!
//! cargo install --path .                                                    # the second: the command
//! export DURABLE_STORE=desk/store
//! durable ask                                                               # what is asked
//! durable answer refund/ORD-3300:0:ask@0 --grant 12000 --by ann
//! durable answer refund/ORD-5150:0:ask@0 --refuse 'no receipt' --by lead
//! durable show refund/ORD-3300                                              # where a run stands
//! ```
//!
//! Answer while the agent is killed, and start it again: it goes on with the answer. ORD-2077's customer waits for an hour only:
//! do nothing, or start the agent again with `--later 2h`, and see the question expire.
//!
//! The agent ([`agent`], the file to read first) looks into the complaint, asks if the sum is not small, and pays at a
//! bank ([`bank`]) that knows keys. What ran before the question never runs again. This process plays the story
//! ([`story`]), checks all that it tells, and exits 0 only if everything held.

mod agent;
mod bank;
#[path = "../stage/mod.rs"]
mod stage;
mod story;

use std::{env, path::Path, process::ExitCode, time::Duration};

use anyhow::bail;

use crate::stage::process::end_with_parent;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match play(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("approval: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(args: &[&str]) -> anyhow::Result<()> {
    let Some((role, rest)) = args.split_first() else { return story::play() };
    match (*role, rest) {
        ("agent", [desk]) => agent::run(Path::new(desk), Duration::ZERO),
        ("agent", [desk, agent::LATER, time]) => agent::run(Path::new(desk), humantime::parse_duration(time)?),
        // As the story starts it: only for as long as the story goes on.
        ("attended-agent", [desk, agent::LATER, time]) => {
            end_with_parent(|| ());
            agent::run(Path::new(desk), humantime::parse_duration(time)?)
        }
        _ => bail!(
            "there are: no arguments, for the story; and `agent DIRECTORY [--later TIME]`, to be answered by hand"
        ),
    }
}
