//! A second terminal, and the command `durable` in it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};

use super::tell::Teller;

/// Where the command is, if not where cargo builds it.
const COMMAND: &str = "DURABLE_COMMAND";

/// Runs the command `durable` on a store, shows it as a person would see it, and gives what it printed.
pub(crate) struct Terminal {
    command: PathBuf,
    store: PathBuf,
    tell: Teller,
}

impl Terminal {
    /// Builds the command if need be.
    pub(crate) fn new(store: &Path, tell: Teller) -> Result<Terminal> {
        let command = match env::var_os(COMMAND) {
            Some(command) => command.into(),
            None => built()?,
        };
        Ok(Terminal { command, store: store.to_owned(), tell })
    }

    /// A command that does what it should.
    pub(crate) fn run(&self, args: &[&str]) -> Result<String> {
        let (said, ok) = self.attempt(args)?;
        ensure!(ok, "durable {} has failed: {said}", args.join(" "));
        Ok(said)
    }

    /// A command that is refused.
    pub(crate) fn refused(&self, args: &[&str]) -> Result<String> {
        let (said, ok) = self.attempt(args)?;
        ensure!(!ok, "durable {} should have been refused, and says {said}", args.join(" "));
        Ok(said)
    }

    /// A command whose output is for the story alone.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = self.output(args)?;
        ensure!(status.success(), "durable {} has failed: {}", args.join(" "), String::from_utf8_lossy(&stderr));
        Ok(String::from_utf8(stdout)?)
    }

    fn attempt(&self, args: &[&str]) -> Result<(String, bool)> {
        let Output { status, stdout, stderr } = self.output(args)?;
        // Beside an answer it may say that it waits, if it does for long.
        let said = String::from_utf8(if status.success() { stdout } else { stderr })?;
        println!("  {} durable {}", self.tell.paint.dim("$"), quoted(args));
        said.trim_end().lines().for_each(|line| println!("{}", format!("    {}", timeless(line)).trim_end()));
        Ok((said, status.success()))
    }

    fn output(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.command);
        command.args(args).env("DURABLE_STORE", &self.store);
        command.output().with_context(|| format!("cannot run {}", self.command.display()))
    }
}

/// Without times and ages, which are others each time that the story is told.
fn timeless(line: &str) -> String {
    let is_time = |word: &str| word.ends_with('Z') && humantime::parse_rfc3339(word).is_ok();
    let is_age = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && humantime::parse_duration(word).is_ok();
    let mut words: Vec<_> = line.split(['\t', ' ']).collect();
    words.iter_mut().filter(|word| is_time(word) || is_age(word)).for_each(|word| *word = "..");
    words.dedup_by(|a, b| *a == ".." && *b == "..");
    words.join(" ")
}

/// As a shell takes it.
fn quoted(args: &[&str]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    let quote = |arg: &&str| match !arg.is_empty() && arg.chars().all(plain) {
        true => (*arg).to_owned(),
        false => format!("'{}'", arg.replace('\'', r"'\''")),
    };
    args.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// `cargo run --example` builds no command, so this does, with the profile and in the target directory of the example itself.
fn built() -> Result<PathBuf> {
    let example = env::current_exe()?;
    let profile = example.ancestors().nth(2).context("the example is not where cargo puts one")?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--bin", "durable", "--target-dir"]);
    cargo.arg(profile.parent().context("the example is not in a target directory")?);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    // What cargo told this process about its package would be news to build scripts, which then would all run again.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name.to_string_lossy().starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    let built = cargo.output().context("cannot run cargo")?;
    ensure!(built.status.success(), "the command durable does not build: {}", String::from_utf8_lossy(&built.stderr));
    Ok(profile.join("durable"))
}
