//! The story: what happens, in order, and what must hold at each point.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use durable::LogEntry;

use crate::{
    agent::{self, Order, dollars},
    at_rest,
    model::Model,
    provider::{self, Payment},
    stage::{
        process::Process,
        tell::{Teller, check, shape, shown},
    },
};

/// What the kill leaves on disk: an intent without an outcome.
const KILLED: [&str; 4] = [
    "run.started",
    "effect.called search_policy[0] attempt 1",
    "effect.result search_policy[0] attempt 1",
    "effect.called process_refund[0] attempt 1",
];
/// What the resume adds: decided again, paid once.
const RESUMED: [&str; 3] =
    ["effect.called process_refund[0] attempt 2", "effect.result process_refund[0] attempt 2", "run.completed"];

/// Plays it. An error names what did not hold.
pub(crate) fn play(frozen: bool, forgetful: bool) -> Result<()> {
    // Dropped after the processes that use it.
    let world = tempfile::tempdir()?;
    let story = Story {
        order: Order::ord_3300(),
        store: world.path().join("agent"),
        books: world.path().join("provider"),
        frozen,
        forgetful,
        tell: Teller::new(),
    };
    let Order { id, cents, complaint } = &story.order;
    println!("{} wants {} back: {complaint}", story.tell.paint.title(id), dollars(*cents));
    println!("{} decides, a provider in a process of its own pays, a sled store remembers", Model::from_env()?.name());

    let (provider, address) = story.killed_after_the_payment()?;
    let on_disk = story.on_disk()?;
    story.naive_rerun(&world.path().join("copy"))?;
    story.resume(&provider, &address, &on_disk)?;
    story.tell.held();
    Ok(())
}

struct Story {
    order: Order,
    store: PathBuf,
    books: PathBuf,
    frozen: bool,
    forgetful: bool,
    tell: Teller,
}

impl Story {
    /// The agent pays and dies before it hears that it has paid.
    fn killed_after_the_payment(&self) -> Result<(Process, String)> {
        self.tell.heading("the agent is killed: the provider has paid, the outcome is not on disk");
        let (mut provider, address) = self.start_provider(&self.books, true)?;
        let agent = self.start_agent(&address)?;
        let search = agent.line()?;
        let refund = agent.line()?;
        ensure!(refund == self.refund_body(1), "the agent should ask for the refund now, and says {refund:?}");
        // It says so once the payment is synced, and keeps its answer to itself.
        let paid = provider.line().context("the provider has not paid")?;
        let (more, status) = agent.kill()?;
        provider.tell("answer whom you can")?;

        self.tell.say("agent", [search, refund]);
        self.tell.say("provider", [paid]);
        self.tell.say("agent", [format!("killed: {status}")]);
        check("what the agent said after the payment", more, [""; 0])?;
        check("the agent's exit code, which one that was killed has not", status.code(), None)?;
        self.check_paid("after the kill", &self.books, self.order.cents, 1)?;
        Ok((provider, address))
    }

    /// What a dead process leaves: the log ends in a call that nobody knows the outcome of.
    fn on_disk(&self) -> Result<Vec<LogEntry>> {
        self.tell.heading("what is on disk: the refund was called, and there is no result");
        let log = at_rest::log(&self.store, agent::RUN)?;
        log.iter().for_each(|entry| println!("{}", shown(entry)));
        check("the log on disk", shape(&log), KILLED)?;
        Ok(log)
    }

    /// On a copy of the provider's books, since it does real harm.
    fn naive_rerun(&self, copy: &Path) -> Result<()> {
        self.tell.heading("what a naive rerun does, on a copy of this world");
        fs::create_dir_all(copy)?;
        fs::copy(self.books.join("ledger.jsonl"), copy.join("ledger.jsonl"))?;
        let (provider, address) = self.start_provider(copy, false)?;
        Process::start("naive-agent", [&address])?.finish()?;

        self.tell.say("provider", [provider.line()?]);
        self.say_paid(copy)?;
        self.check_paid("after the naive rerun", copy, 2 * self.order.cents, 2)?;
        self.check_paid("beside the naive rerun", &self.books, self.order.cents, 1)
    }

    /// The same program, started again.
    fn resume(&self, provider: &Process, address: &str, before: &[LogEntry]) -> Result<()> {
        self.tell.heading("what the resume does: the same program, started again");
        let mut printed = self.start_agent(address)?.finish()?;
        let outcome = printed.pop().context("the agent has no outcome")?;
        let answer = provider.line()?;
        let log = at_rest::log(&self.store, agent::RUN)?;
        let (old, new) = log.split_at(before.len().min(log.len()));

        self.tell.say("log", ["search_policy: the answer is here, its body does not run"]);
        self.tell.say("agent", &printed);
        self.tell.say("provider", [&answer]);
        self.tell.say("agent", [&outcome]);
        println!("the log has seq 0 to 3 as before, and now seq 4 to {}:", log.len().saturating_sub(1));
        new.iter().for_each(|entry| println!("{}", shown(entry)));
        self.say_paid(&self.books)?;

        self.check_paid("after the resume", &self.books, self.order.cents, 1)?;
        check("the bodies that the resume ran", printed, [self.refund_body(2)])?;
        check("the provider's answer", answer, "knows the key, answers as the first time: rf-1")?;
        check("the entries before the kill", lines(old), lines(before))?;
        check("the entries after the kill", shape(new), RESUMED)?;
        let keys = log.iter().filter_map(|entry| entry.get("key")?.as_str());
        check("the keys of the two calls", keys.collect::<Vec<_>>(), [self.key(), self.key()])?;
        let refunded = format!("refunded {}", dollars(self.order.cents));
        ensure!(outcome.starts_with(&refunded) && outcome.ends_with("(rf-1)"), "the outcome is {outcome:?}");
        Ok(())
    }

    fn start_provider(&self, books: &Path, holds: bool) -> Result<(Process, String)> {
        let options = [(self.forgetful, provider::FORGETFUL), (holds, provider::HOLDS)];
        let options = options.iter().filter(|(given, _)| *given).map(|(_, option)| Path::new(*option));
        let provider = Process::start("provider", [books].into_iter().chain(options))?;
        let address = provider.line()?;
        Ok((provider, address))
    }

    fn start_agent(&self, address: &str) -> Result<Process> {
        let clock = self.frozen.then_some(Path::new(agent::FROZEN));
        Process::start("agent", [&self.store, Path::new(address)].into_iter().chain(clock))
    }

    fn key(&self) -> String {
        format!("{}:refund:{}", self.order.id, self.order.cents)
    }

    fn refund_body(&self, attempt: u32) -> String {
        format!("process_refund: its body runs, attempt {attempt}, key {}", self.key())
    }

    fn check_paid(&self, when: &str, books: &Path, cents: u64, times: usize) -> Result<()> {
        let payments = provider::read_books(books)?;
        let found = (self.paid(&payments), payments.len());
        check(&format!("the provider's books {when}"), found, (self.written(cents), times))
    }

    fn paid(&self, payments: &[Payment]) -> String {
        self.written(provider::paid(payments, &self.order.id))
    }

    fn written(&self, cents: u64) -> String {
        format!("{} = {}", self.order.id, dollars(cents))
    }

    fn say_paid(&self, books: &Path) -> Result<()> {
        let payments = provider::read_books(books)?;
        let (paid, paint) = (self.paid(&payments), self.tell.paint);
        let verdict = match provider::paid(&payments, &self.order.id) == self.order.cents {
            true => paint.good(format!("{paid}, paid once")),
            false => paint.bad(format!("{paid}, a double refund")),
        };
        self.tell.say("books", [verdict]);
        Ok(())
    }
}

fn lines(log: &[LogEntry]) -> Vec<String> {
    log.iter().map(LogEntry::to_string).collect()
}
