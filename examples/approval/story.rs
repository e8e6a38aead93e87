//! The story: what happens, in order, and what must hold at each point.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::{
    agent::{self, Request, dollars},
    bank::Bank,
    stage::{
        process::Process,
        tell::{Teller, check},
        terminal::Terminal,
    },
};

/// How far the agent's clock is ahead, the first two times and the last.
const FRIDAY: &str = "0s";
const MONDAY: &str = "64h";

/// What [`durable::OpenQuestion::token`] is for a run's first question.
const CRACKED: &str = "refund/ORD-3300:0:ask@0";
const PIANO: &str = "refund/ORD-5150:0:ask@0";
const SUITCASE: &str = "refund/ORD-2077:0:ask@0";

/// Plays it. An error names what did not hold.
pub(crate) fn play() -> Result<()> {
    // Dropped after the processes that use it.
    let world = tempfile::tempdir()?;
    let tell = Teller::new();
    let desk = world.path().to_owned();
    let terminal = Terminal::new(&desk.join("store"), tell)?;
    let story = Story { desk, tell, terminal };
    println!("{}", tell.paint.title("four customers want their money back"));
    for Request { order, cents, complaint, .. } in Request::all() {
        println!("  {order}  {:>8}  {complaint}", dollars(cents));
    }
    println!("up to $100.00 the agent decides; above it Ann or the lead does, at a terminal of their own");

    let agent = story.small_is_paid_and_the_rest_asked()?;
    story.granted_while_nothing_runs(agent)?;
    let agent = story.goes_on_with_the_answer()?;
    story.refused_while_it_runs(&agent)?;
    story.expired_over_the_weekend(agent)?;
    tell.held();
    Ok(())
}

struct Story {
    desk: PathBuf,
    tell: Teller,
    /// A person's.
    terminal: Terminal,
}

impl Story {
    fn small_is_paid_and_the_rest_asked(&self) -> Result<Process> {
        self.tell.heading("Friday: the agent pays what is small, and asks about the rest");
        let agent = self.start_agent(FRIDAY)?;
        let mut expected = Vec::new();
        for Request { order, cents, .. } in Request::all() {
            expected.push(format!("look_into({order}): its body runs"));
            if order == "ORD-1041" {
                expected.push(format!("pay({order}, {}): its body runs", dollars(cents)));
            }
        }
        expected.push("refund/ORD-1041: refunded $40.00".to_owned());
        expected
            .extend(["ORD-3300", "ORD-5150", "ORD-2077"].map(|order| format!("refund/{order}: waits for a person")));
        self.tell.hear("agent", &agent, &expected)?;
        self.check_paid(&[("ORD-1041", 4_000)])?;
        Ok(agent)
    }

    /// An answer needs the store, not the agent.
    fn granted_while_nothing_runs(&self, agent: Process) -> Result<()> {
        self.tell.heading("the agent is killed while it waits, and Ann grants a part of it");
        let (more, status) = agent.kill()?;
        check("what the agent said while it waited", more, [""; 0])?;
        self.tell.say("agent", [format!("killed: {status}")]);
        self.terminal.run(&["ask"])?;
        self.terminal.run(&["answer", CRACKED, "--grant", "12000", "--by", "ann"])?;
        self.check_paid(&[("ORD-1041", 4_000)])
    }

    /// Nothing that ran before a question runs again after its answer.
    fn goes_on_with_the_answer(&self) -> Result<Process> {
        self.tell.heading("the agent is started again: it goes on with the answer, and with nothing else");
        let agent = self.start_agent(FRIDAY)?;
        let expected = [
            "pay(ORD-3300, $120.00): its body runs",
            "refund/ORD-1041: refunded $40.00",
            "refund/ORD-3300: refunded $120.00",
            "refund/ORD-5150: waits for a person",
            "refund/ORD-2077: waits for a person",
        ];
        self.tell.hear("agent", &agent, &expected)?;
        self.check_paid(&[("ORD-1041", 4_000), ("ORD-3300", 12_000)])?;
        Ok(agent)
    }

    /// The same command, while the agent holds the store: it asks the agent.
    fn refused_while_it_runs(&self, agent: &Process) -> Result<()> {
        self.tell.heading("the lead refuses while it runs; the first answer counts, and not everybody's does");
        let said = self.terminal.refused(&["answer", PIANO, "--grant", "90000", "--by", "bob"])?;
        ensure!(said.contains("bob") && said.contains("ann"), "it should say who may answer: {said}");
        self.terminal.run(&["answer", PIANO, "--refuse", "pianos are loud", "--by", "lead"])?;
        self.tell.hear("agent", agent, &["refund/ORD-5150: refused: pianos are loud"])?;
        let said = self.terminal.refused(&["answer", PIANO, "--grant", "90000", "--by", "ann"])?;
        ensure!(said.contains("lead"), "it should say who has answered: {said}");
        self.check_paid(&[("ORD-1041", 4_000), ("ORD-3300", 12_000)])
    }

    /// A deadline passes whether or not anything runs.
    fn expired_over_the_weekend(&self, agent: Process) -> Result<()> {
        self.tell.heading("the agent is killed again, and nobody answers until Monday");
        let (_, status) = agent.kill()?;
        self.tell.say("agent", [format!("killed: {status}")]);
        let agent = self.start_agent(MONDAY)?;
        let mut printed = agent.finish()?;
        printed.sort();
        let ends = [
            "refund/ORD-1041: refunded $40.00",
            "refund/ORD-2077: nobody answered in time",
            "refund/ORD-3300: refunded $120.00",
            "refund/ORD-5150: refused: pianos are loud",
        ];
        self.tell.say("agent", &printed);
        check("how the runs ended", printed, ends)?;
        self.terminal.refused(&["answer", SUITCASE, "--grant", "25000", "--by", "ann"])?;
        self.check_paid(&[("ORD-1041", 4_000), ("ORD-3300", 12_000)])?;
        self.tell.say("bank", ["$40.00 for ORD-1041 and $120.00 for ORD-3300, each paid once"]);
        self.log_of_one()
    }

    fn log_of_one(&self) -> Result<()> {
        self.tell.heading("all there is to know of one of them");
        let log = self.terminal.ask(&["log", "refund/ORD-3300", "--json"])?;
        let log = log.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let entries: Vec<_> = log.iter().filter_map(|entry| entry["entry"].as_str()).collect();
        for entry in &log {
            let field = |name: &str| entry.get(name).map(|value| format!("{name} {value}"));
            let about: Vec<_> = ["title", "about", "by", "value"].iter().filter_map(|name| field(name)).collect();
            let line = format!("{:<18} {}", entry["entry"].as_str().unwrap_or_default(), about.join(", "));
            println!("  {} {}", entry["seq"], line.trim_end());
        }
        let expected = [
            "run.started",
            "effect.called",
            "effect.result",
            "question.asked",
            "question.answered",
            "effect.called",
            "effect.result",
            "run.completed",
        ];
        check("the log of ORD-3300", entries, expected)
    }

    fn start_agent(&self, later: &str) -> Result<Process> {
        Process::start("attended-agent", [self.desk.as_os_str(), agent::LATER.as_ref(), later.as_ref()])
    }

    fn check_paid(&self, expected: &[(&str, u64)]) -> Result<()> {
        let payments = Bank::at(&self.desk).payments()?;
        let paid: Vec<_> = payments.iter().map(|payment| (&*payment.order, payment.cents)).collect();
        check("the bank's payments", &*paid, expected)
    }
}
