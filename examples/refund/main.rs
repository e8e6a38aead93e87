//! A refund agent is killed between the payment and the record of it. Does the customer get the money twice?
//!
//! ```text
//! cargo run --example refund               # a scripted model, real processes, a real SIGKILL
//! cargo run --example refund -- --frozen   # the same with a frozen clock: the output never changes by a byte
//! ```
//!
//! The agent ([`agent`], the file to read first) has two steps. `search_policy` is `read_only`: it looks up the shop's
//! policy and lets a model decide which clause applies, in one body, so that one entry of the log holds what the model
//! said. How much that is in money is plain code over the recorded ruling. `process_refund` moves the money and names the
//! key by which the [`provider`] knows the call.
//!
//! This process plays the story ([`story`]) and is each other part of it too, started again with arguments of its own: the
//! provider with its books on disk, the agent, and an agent as it is written without this library ([`naive`]). It checks
//! all that it prints, and exits 0 only if everything held.
//!
//! With `DURABLE_LLM_URL` (such as `https://api.openai.com/v1`), `DURABLE_LLM_MODEL` and `DURABLE_LLM_KEY` set, that model
//! decides.
//!
//! `--forgetful-provider` shows what the contract `key` rests on: the provider forgets its keys, the money moves twice, and
//! the example fails and says so.

mod agent;
mod at_rest;
mod gateway;
mod model;
mod naive;
mod provider;
#[path = "../stage/mod.rs"]
mod stage;
mod story;

use std::{env, path::Path, process::ExitCode};

use anyhow::bail;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match play(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refund: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(args: &[&str]) -> anyhow::Result<()> {
    let given = |option| args.contains(&option);
    match *args {
        // The parts that `story` starts.
        ["provider", books, ..] => {
            provider::serve(Path::new(books), given(provider::FORGETFUL), given(provider::HOLDS))
        }
        ["agent", store, provider, ..] => agent::run(Path::new(store), provider, given(agent::FROZEN)),
        ["naive-agent", provider] => naive::run(provider),
        // What a person starts.
        ref options => match options.iter().find(|option| ![agent::FROZEN, provider::FORGETFUL].contains(option)) {
            Some(unknown) => bail!("unknown option {unknown}; there are {} and {}", agent::FROZEN, provider::FORGETFUL),
            None => story::play(given(agent::FROZEN), given(provider::FORGETFUL)),
        },
    }
}
