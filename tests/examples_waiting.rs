//! The examples that wait: as stories, and led by hand from a second terminal with the command `durable`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/example.rs"]
mod example;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use example::{Example, says_in_order};
use serde_json::{Value, json};
use tempfile::TempDir;

const CRACKED: &str = "refund/ORD-3300:0:ask@0";
const PIANO: &str = "refund/ORD-5150:0:ask@0";

#[test]
fn refunds_are_granted_refused_and_expire_and_the_story_is_told_in_the_same_bytes_each_time() {
    let out = Example::new("approval").runs_well();
    says_in_order(
        &out,
        &[
            "refund/ORD-1041: refunded $40.00",
            "agent     killed: signal: 9",
            "$ durable ask",
            "$ durable answer refund/ORD-3300:0:ask@0 --grant 12000 --by ann",
            "pay(ORD-3300, $120.00): its body runs",
            "$ durable answer refund/ORD-5150:0:ask@0 --refuse 'pianos are loud' --by lead",
            "refund/ORD-5150: refused: pianos are loud",
            "agent     killed: signal: 9",
            "refund/ORD-2077: nobody answered in time",
            "question.answered  by \"ann\", value 12000",
            "all of this was checked, and held",
        ],
    );
    assert_eq!(out.matches("look_into(ORD-3300): its body runs").count(), 1, "{out}");
    assert_eq!(out, Example::new("approval").runs_well());
}

#[test]
fn research_is_steered_loses_two_and_is_undone_and_the_story_is_told_in_the_same_bytes_each_time() {
    let out = Example::new("research").runs_well();
    says_in_order(
        &out,
        &[
            "$ durable signal report steer '\"no jargon\"'",
            "agents    killed: signal: 9",
            "write(draft 2): its body runs, with note on owls after 1; no jargon; note on bees after 1",
            "give_back(desk for bats): its body runs",
            "research/eels is cancelled: too far",
            "give_back(desk for eels): its body runs",
            "give_back(file for ants): its body runs",
            "give_back(place in the print shop): its body runs",
            "report: run report failed: 2 of the notes are missing",
            "9 things taken, each once, and each given back once",
            "all of this was checked, and held",
        ],
    );
    assert_eq!(out, Example::new("research").runs_well());
}

/// The control: a world in which words get lost must not pass.
#[test]
fn the_stories_fail_where_the_command_loses_an_answer_or_a_correction() {
    let dir = tempfile::tempdir().unwrap();
    let lossy = dir.path().join("lossy");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in answer*|*steer*) exit 0;; esac\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_durable")
    );
    fs::write(&lossy, script).unwrap();
    fs::set_permissions(&lossy, fs::Permissions::from_mode(0o700)).unwrap();
    for (name, why) in
        [("approval", "there should be \"pay(ORD-3300"), ("research", "there should be \"write(draft 2)")]
    {
        let mut example = Example::new(name);
        example.command.env("DURABLE_COMMAND", &lossy);
        example.fails(why);
    }
}

#[test]
fn the_examples_that_wait_say_what_can_be_asked_of_them() {
    Example::new("approval").args(&["agent"]).fails("agent DIRECTORY");
    Example::new("research").args(&["--fast"]).fails("agents DIRECTORY");
}

/// How long an example may say nothing: only a fault takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An example in the first terminal; killed and reaped when this is dropped.
struct Terminal {
    child: Child,
    lines: Receiver<String>,
    /// What it has said.
    said: Vec<String>,
}

impl Terminal {
    fn start(name: &str, args: &[&str]) -> Terminal {
        // Only its path and environment: it leaves a store behind, and may.
        let Example { mut command, temp: _ } = Example::new(name).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (line, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        Terminal { child, lines, said: Vec::new() }
    }

    /// Waits until it has said this line.
    #[track_caller]
    fn says(&mut self, line: &str) {
        while !self.said.iter().any(|said| said == line) {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(said) => self.said.push(said),
                Err(error) => panic!("it should say {line:?} ({error}), and has said {:#?}", self.said),
            }
        }
    }

    /// SIGKILL. What it has said.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
        self.rest()
    }

    /// Waits until it has ended well. What it has said.
    fn ends(mut self) -> Vec<String> {
        let said = self.rest();
        assert!(self.child.wait().unwrap().success(), "{said:#?}");
        said
    }

    fn rest(&mut self) -> Vec<String> {
        self.said.extend(self.lines.iter());
        std::mem::take(&mut self.said)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory for an example, and the second terminal.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn dir(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_durable"));
        command.args(args).env("DURABLE_STORE", self.0.path().join("store")).env_remove("USER");
        command
    }

    /// A command that does what it should. What it printed.
    #[track_caller]
    fn durable(&self, args: &[&str]) -> String {
        let out = self.command(args).output().unwrap();
        assert!(out.status.success(), "durable {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// What a command prints with `--json`: a document a line.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let printed = self.durable(&[&["--json"], args].concat());
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn state(&self, run: &str) -> String {
        self.json(&["show", run])[0]["state"].as_str().unwrap().to_owned()
    }

    /// The names of a log's entries.
    #[track_caller]
    fn log(&self, run: &str) -> Vec<String> {
        self.json(&["log", run]).iter().map(|entry| entry["entry"].as_str().unwrap().to_owned()).collect()
    }

    /// The lines of a file that the example writes beside its store.
    fn file(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(Path::new(self.dir()).join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn bodies<'a>(said: &'a [String], of: &str) -> Vec<&'a str> {
    said.iter().map(String::as_str).filter(|line| line.starts_with(of)).collect()
}

#[test]
fn an_approval_is_led_by_hand_through_kills_and_two_answers_at_once() {
    let place = Place::new();
    let mut agent = Terminal::start("approval", &["agent", place.dir()]);
    agent.says("refund/ORD-2077: waits for a person");
    let questions = place.json(&["ask"]);
    assert_eq!(questions.len(), 3, "{questions:?}");
    let cracked = questions.iter().find(|question| question["token"] == CRACKED).unwrap();
    let opinion = "a fair complaint: arrived with a cracked screen";
    assert_eq!(cracked["about"], json!({ "order": "ORD-3300", "cents": 18_000, "opinion": opinion }));
    assert_eq!(cracked["by"], json!(["ann", "lead"]));

    let said = agent.kill();
    assert_eq!(bodies(&said, "look_into").len(), 4);
    let asked = ["run.started", "effect.called", "effect.result", "question.asked"];
    assert_eq!(place.log("refund/ORD-3300"), asked);
    place.durable(&["answer", CRACKED, "--grant", "20000", "--by", "ann"]);
    assert_eq!(place.log("refund/ORD-3300"), asked, "no process with the code has gone on with it");

    let mut agent = Terminal::start("approval", &["agent", place.dir()]);
    // Not more than was asked for.
    agent.says("refund/ORD-3300: refunded $180.00");
    agent.says("refund/ORD-5150: waits for a person");
    let [ann, lead] = [
        place.command(&["answer", PIANO, "--grant", "100", "--by", "ann"]),
        place.command(&["answer", PIANO, "--refuse", "loud", "--by", "lead"]),
    ]
    .map(|mut command| command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let [ann, lead] = [ann, lead].map(|answer| answer.wait_with_output().unwrap());
    let (outcome, late) = match (ann.status.success(), lead.status.success()) {
        (true, false) => ("refund/ORD-5150: refunded $1.00", lead.stderr),
        (false, true) => ("refund/ORD-5150: refused: loud", ann.stderr),
        both => panic!("one answer is the first: {both:?}"),
    };
    agent.says(outcome);
    let late = String::from_utf8(late).unwrap();
    assert!(late.contains("DUR-0062"), "the second is told that there was a first: {late}");

    assert_eq!(bodies(&agent.kill(), "look_into"), [""; 0], "what ran before the questions does not run again");
    let said = Terminal::start("approval", &["agent", place.dir(), "--later", "2h"]).ends();
    assert!(said.iter().any(|line| line == "refund/ORD-2077: nobody answered in time"), "{said:#?}");
    assert!(said.iter().any(|line| line == outcome), "{said:#?}");
    assert_eq!(bodies(&said, "pay"), [""; 0]);

    for order in ["ORD-3300", "ORD-5150", "ORD-2077"] {
        let log = place.log(&format!("refund/{order}"));
        assert_eq!(log[..4], asked);
        assert_eq!(log.iter().filter(|entry| *entry == "question.answered").count(), 1, "{order}: {log:?}");
        assert_eq!(log.last().unwrap(), "run.completed");
    }
    let paid = place.file("payments.jsonl");
    let orders: Vec<_> = paid.iter().map(|payment| payment["order"].as_str().unwrap()).collect();
    let piano = if outcome.contains("refunded") { vec!["ORD-5150"] } else { vec![] };
    assert_eq!(orders, [vec!["ORD-1041", "ORD-3300"], piano].concat());
}

/// What the library's books say of each thing: 1 if it is out.
fn out(place: &Place) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    for line in place.file("ledger.jsonl") {
        *out.entry(line["thing"].as_str().unwrap().to_owned()).or_default() += line["change"].as_i64().unwrap();
    }
    out
}

#[test]
fn research_is_led_by_hand_to_a_report_and_a_correction_that_is_sent_twice_is_taken_once() {
    let place = Place::new();
    let mut agents = Terminal::start("research", &["agents", place.dir()]);
    for topic in ["owls", "bees", "bats", "eels", "ants"] {
        agents.says(&format!("take(desk for {topic}): its body runs"));
    }
    agents.kill();
    for _ in 0..2 {
        place.durable(&["signal", "report", "steer", "\"be brief\"", "--id", "mail-1"]);
    }
    // To a run that no process has in memory, and that has not been looked at: it is kept.
    place.durable(&["signal", "research/owls", "source", "\"owls hunt by ear\""]);
    let mut agents = Terminal::start("research", &["agents", place.dir()]);
    agents.says(r#"progress: 1 notes, 0 missing, "draft 1 after 2""#);
    place.durable(&["signal", "report", "steer", "\"be brief\"", "--id", "mail-1"]);
    place.durable(&["signal", "research/bats", "source", "null"]);
    agents.says(r#"progress: 1 notes, 1 missing, "draft 1 after 2""#);
    for (n, topic) in ["bees", "eels", "ants"].iter().enumerate() {
        place.durable(&["signal", &format!("research/{topic}"), "source", "\"a book\""]);
        agents.says(&format!("write(draft {}): its body runs, with be brief; note on owls after 1; {}", n + 2, {
            ["bees", "eels", "ants"][..=n]
                .iter()
                .map(|topic| format!("note on {topic} after 1"))
                .collect::<Vec<_>>()
                .join("; ")
        }));
    }
    let said = agents.ends();
    assert_eq!(said.last().unwrap(), "report: printed: draft 4 after 5");
    assert_eq!(place.state("report"), "completed");
    assert_eq!(place.state("research/bats"), "failed");
    let log = place.json(&["log", "report"]);
    let corrections =
        log.iter().filter(|entry| entry.to_string().contains("be brief") && entry["entry"] == "signal.received");
    assert_eq!(corrections.count(), 1, "{log:#?}");
    for (thing, out) in out(&place) {
        let kept = thing.starts_with("file") || thing.starts_with("place");
        assert_eq!(out, i64::from(kept), "{thing}");
    }
}

#[test]
fn research_that_is_cancelled_cancels_the_researchers_and_gives_everything_back() {
    let place = Place::new();
    let mut agents = Terminal::start("research", &["agents", place.dir()]);
    agents.says("take(desk for ants): its body runs");
    place.durable(&["signal", "research/owls", "source", "\"owls hunt by ear\""]);
    agents.says(r#"progress: 1 notes, 0 missing, "draft 1 after 1""#);
    let said = place.durable(&["cancel", "report", "no money left", "--by", "kim"]);
    assert!(said.contains("report is cancelled: no money left"), "{said}");
    let said = agents.ends();
    assert_eq!(said.last().unwrap(), "report: run report was cancelled by kim: no money left (DUR-0007)");
    for topic in ["bees", "bats", "eels", "ants"] {
        assert_eq!(place.state(&format!("research/{topic}")), "cancelled");
    }
    assert_eq!(place.state("research/owls"), "completed");
    assert_eq!(place.json(&["runs", "--status", "unfinished"]), [json!(null); 0]);
    let out = out(&place);
    assert!(out.contains_key("place in the print shop") && out.contains_key("file for owls"), "{out:?}");
    assert_eq!(out.values().filter(|out| **out != 0).count(), 0, "{out:?}");
}
