//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use serde_json::Value as Json;

use crate::failed::EXIT_CODES;

const ABOUT: &str = "\
Looks into a store of durable runs, and acts on them: answers questions, resolves steps in doubt, sends signals, cancels.

Works on a store that no process holds, and on one that a running process holds: then that process is asked, over the socket \
control.sock in the store's directory.";

const AFTER: &str = "\
Example:
  export DURABLE_STORE=agents.db
  durable runs --status held
  durable show run-7f3a
  durable resolve run-7f3a 4 1 --succeeded '{\"receipt\":\"r-9\"}' --by ann

An id that begins with - is written after --; one with control characters with --escaped, as tables show it:
  durable --escaped show 'a\\u{0}b'
";

#[derive(Debug, Parser)]
#[command(name = "durable", version, about = "Looks into a store of durable runs, and acts on them", long_about = ABOUT)]
#[command(after_long_help = format!("{AFTER}\n{EXIT_CODES}"), after_help = EXIT_CODES)]
#[command(subcommand_required = true, arg_required_else_help = true, propagate_version = true, max_term_width = 110)]
pub(crate) struct CommandLine {
    /// The store's directory
    #[arg(long, global = true, value_name = "DIR", env = "DURABLE_STORE", default_value = "agents.db")]
    pub(crate) store: PathBuf,
    /// JSON instead of tables and sentences: one document, or one a line for lists and logs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Run ids on this command line are written with escapes: \n, \t, \r, \\, \u{..}
    #[arg(long, global = true)]
    pub(crate) escaped: bool,
    /// When to use colours; NO_COLOR is heeded too
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colours::Auto)]
    pub(crate) color: Colours,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colours {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists runs, those started last first
    #[command(after_help = "Example: durable runs --status held --status parked --older 1h")]
    Runs(Runs),
    /// Shows a run: state, steps, what it waits for, and what to do next
    #[command(after_help = "Example: durable show run-7f3a")]
    Show(Show),
    /// Shows a run's log
    #[command(
        after_help = "Example: durable log run-7f3a --follow\n         durable --json log run-7f3a | jq .entry\n\n\
        Places in the source (site) are there if a process is asked that has the code."
    )]
    Log(Log),
    /// Sends a signal to a run
    #[command(after_help = "Example: durable signal run-7f3a steer '{\"focus\":\"prices\"}' --id mail-812")]
    Signal(Signal),
    /// Lists the open questions of all runs, with all that is to be approved
    #[command(after_help = "Example: durable ask")]
    Ask,
    /// Answers a question; the first answer counts
    #[command(
        after_help = "Example: durable answer TOKEN --grant true --by ann\n         durable answer TOKEN --refuse 'too much'"
    )]
    Answer(Answer),
    /// Lists the steps in doubt that wait for a person
    #[command(after_help = "Example: durable holds")]
    Holds,
    /// Says what a step in doubt did
    #[command(after_help = "Example: durable resolve run-7f3a 4 1 --succeeded '{\"receipt\":\"r-9\"}' --by ann")]
    Resolve(Resolve),
    /// Cancels a run, and waits until it has ended; Ctrl-C leaves the request standing
    #[command(after_help = "Example: durable cancel run-7f3a 'customer changed their mind' --by ann")]
    Cancel(Cancel),
    /// Goes on with a parked run
    #[command(after_help = "Example: durable retry run-7f3a")]
    Retry(Run),
    /// Writes a run as JSON lines, byte for byte; without its children, which are runs of their own
    #[command(after_help = "Example: durable export run-7f3a -o run-7f3a.jsonl\n\n\
        A run that waits for its children needs them in the other store too: export each one, while no process holds the store.")]
    Export(Export),
    /// Makes a run of what export has written, after verifying it; makes the store too, where there is none
    #[command(after_help = "Example: durable --store other.db import run-7f3a.jsonl\n\n\
        A file holds one run. Its children are imported from files of their own, before it or after it; those that are missing are named.")]
    Import(Import),
    /// Deletes runs that have ended; first says which
    #[command(after_help = "Example: durable purge --status completed --older 30d --dry-run")]
    Purge(Purge),
    /// Gives disk space back: copies what is live to a new database. No process may hold the store
    #[command(after_help = "Example: durable compact")]
    Compact,
    /// Verifies that all that was written of every run is whole, and says what to do where it is not
    #[command(
        after_help = "Example: durable doctor\n\nThe exit code is 1 if something was found. That runs are parked, or wait for code, is said and is \
        no finding."
    )]
    Doctor(Doctor),
    /// Shows the workflows of a binary, or of the process that holds the store, with their numbered steps
    #[command(after_help = "Example: durable workflows target/release/agent --mermaid\n\n\
        The binary is run with DURABLE_DESCRIBE=1 in its environment, its own code up to Runtime::builder() included; there it ends.")]
    Workflows(Workflows),
    /// Explains an error's code
    #[command(after_help = "Example: durable explain DUR-0011")]
    Explain(Explain),
    /// Writes a completion script for a shell
    #[command(after_help = "Example: durable completions bash > ~/.local/share/bash-completion/completions/durable")]
    Completions(Completions),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The run's id
    pub(crate) run: String,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Only runs in this state: running, sleeping, held, parked, completed, .., or awaiting, unfinished, ended for several; may be repeated
    #[arg(long, value_name = "STATE")]
    pub(crate) status: Vec<String>,
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Only runs started at least so long ago, as 90s, 2h, 30d
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(crate) older: Option<Duration>,
    /// Only runs started at most so long ago
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(crate) newer: Option<Duration>,
    /// Only runs with this text in their id or their arguments (as JSON)
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// At most so many; 0: all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The run's id
    pub(crate) run: String,
    /// Of the steps that are over, only so many of the last; 0: all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) steps: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The run's id
    pub(crate) run: String,
    /// Waits for more, until the run has ended, over its fresh logs and restarts of its process
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Which log of a run that went on in fresh ones, from 0; without it the newest
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u32>,
}

/// JSON on the command line; `-` is standard input.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Value(Json),
    Stdin,
}

fn given(text: &str) -> Result<Given, String> {
    if text == "-" {
        return Ok(Given::Stdin);
    }
    serde_json::from_str(text).map(Given::Value).map_err(|error| {
        let as_text = Json::String(text.to_owned()).to_string();
        format!("this is no JSON: {error}; a text is written '{as_text}'")
    })
}

#[derive(Debug, Args)]
pub(crate) struct Signal {
    /// The run's id
    pub(crate) run: String,
    /// The signal's name
    pub(crate) name: String,
    /// The value, as JSON; - reads it from standard input
    #[arg(value_name = "JSON", value_parser = given, allow_negative_numbers = true)]
    pub(crate) value: Given,
    /// Your id for it: the same id sent again is one message
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("reply").required(true))]
pub(crate) struct Answer {
    /// The question's token, from durable ask
    pub(crate) token: String,
    /// Yes, with this value; - reads it from standard input
    #[arg(long, value_name = "JSON", value_parser = given, allow_negative_numbers = true, group = "reply")]
    pub(crate) grant: Option<Given>,
    /// No, and why
    #[arg(long, value_name = "WHY", group = "reply", allow_hyphen_values = true)]
    pub(crate) refuse: Option<String>,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Who {
    /// Who says so; recorded in the log. $USER, where it is left out
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("verdict").required(true))]
pub(crate) struct Resolve {
    /// The run's id
    pub(crate) run: String,
    /// The step, from durable holds
    pub(crate) step: u32,
    /// The attempt that is in doubt, from durable holds
    pub(crate) attempt: u32,
    /// It happened, and this is what the effect would have returned; - reads it from standard input
    #[arg(long, value_name = "JSON", value_parser = given, allow_negative_numbers = true, group = "verdict")]
    pub(crate) succeeded: Option<Given>,
    /// It failed, and why
    #[arg(long, value_name = "WHY", group = "verdict", allow_hyphen_values = true)]
    pub(crate) failed: Option<String>,
    /// It failed with this value of the effect's error type; - reads it from standard input
    #[arg(long, value_name = "JSON", value_parser = given, allow_negative_numbers = true, group = "verdict")]
    pub(crate) failed_with: Option<Given>,
    /// It did not happen, and cannot any more: run it again
    #[arg(long, group = "verdict")]
    pub(crate) run_again: bool,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The run's id
    pub(crate) run: String,
    /// Why; recorded in the log
    #[arg(allow_hyphen_values = true)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The run's id
    pub(crate) run: String,
    /// Where to; without it, or with -, standard output. An existing file is not overwritten
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// What export has written; - reads standard input
    pub(crate) file: PathBuf,
    /// Takes a run of another store that has not ended, and goes on with it here: only if that store is gone for good
    #[arg(long)]
    pub(crate) unfinished: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    /// Only runs that have ended in this way: completed, failed, cancelled, or ended, as without it, for all three; may be repeated
    #[arg(long, value_name = "STATE")]
    pub(crate) status: Vec<String>,
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Only runs that ended at least so long ago, as 12h, 30d
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(crate) older: Option<Duration>,
    /// Only says what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Does not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Opens a store that has lost its newest writes as it is, and so makes it usable again: runs may repeat what the lost entries
    /// had recorded. Copy the directory first
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Workflows {
    /// The binary; without it the process that holds the store is asked
    pub(crate) binary: Option<PathBuf>,
    /// As a Mermaid diagram
    #[arg(long, conflicts_with = "json")]
    pub(crate) mermaid: bool,
    /// How long the binary may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The code, as DUR-0011 or 11
    pub(crate) code: String,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
