//! An editor sends out five researchers, is corrected in the middle, loses two of them, and gives up: all that was done is
//! undone.
//!
//! ```text
//! cargo run --example research     # the story: real processes, a real SIGKILL, the real command `durable`
//! ```
//!
//! By hand, in two terminals:
//!
//! ```text
//! cargo run --example research -- agents library                            # the first: editor and researchers
//!
//! cargo install --path .                                                    # the second: the command
//! export DURABLE_STORE=library/store
//! durable runs                                                              # who waits for what
//! durable signal research/owls source '"owls hunt by ear"'                  # what a librarian brings
//! durable signal report steer '"no jargon"'                                 # a correction: the next draft follows it
//! durable cancel research/eels 'too far' --by kim
//! durable show report
//! ```
//!
//! The topics are owls, bees, bats, eels and ants. A source that is `null` (there is none) makes a researcher fail. With at
//! most one of them missing the report is printed; with two the editor gives up. Kill the first terminal whenever you like,
//! send signals meanwhile, and start it again.
//!
//! Each agent ([`agents`], the file to read first) is a run of its own, with its own log; the editor is their parent.
//! What they take and give back is written down in a [`ledger`] that the library never touches. This process plays the story
//! ([`story`]), checks all that it tells, and exits 0 only if everything held.

mod agents;
mod ledger;
#[path = "../stage/mod.rs"]
mod stage;
mod story;

use std::{env, path::Path, process::ExitCode};

use anyhow::bail;

use crate::stage::process::end_with_parent;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match play(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("research: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(args: &[&str]) -> anyhow::Result<()> {
    match *args {
        [] => story::play(),
        ["agents", library] => agents::run(Path::new(library)),
        // As the story starts them: only for as long as the story goes on.
        ["attended-agents", library] => {
            end_with_parent(|| ());
            agents::run(Path::new(library))
        }
        _ => bail!("there are: no arguments, for the story; and `agents DIRECTORY`, to be led by hand"),
    }
}
