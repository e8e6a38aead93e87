//! The process that is asked ends, or is stopped, while it is asked.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
    thread,
};

use serde_json::{Value as Json, json};

use crate::{
    bench::{Bench, until, until_state},
    holder::Holder,
    work::{listens, sleeps},
};

async fn listening(runtime: &durable::Runtime) {
    runtime.start("listening", listens()).await.unwrap();
    until_state(runtime, "listening", "awaiting signal").await;
}

#[test]
fn a_log_is_followed_to_its_end_also_if_the_process_ends_with_the_run() {
    for _ in 0..4 {
        let bench = Bench::new(listening);
        let holder = Holder::start_until(bench.dir.path(), "listening");
        let mut following =
            bench.command(["--json", "log", "listening", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
        let mut next = || serde_json::from_str::<Json>(&lines.next().unwrap().unwrap()).unwrap()["entry"].clone();
        assert_eq!([next(), next()], ["run.started", "signal.awaited"]);
        bench.durable(["signal", "listening", "steer", "1"]).ok();
        holder.ended();
        assert_eq!([next(), next()], ["signal.received", "run.completed"]);
        assert!(following.wait().unwrap().success());
    }
}

#[test]
fn a_log_is_followed_over_processes_that_are_too_short_to_be_met() {
    let bench = Bench::new(listening);
    let mut following = bench.command(["log", "listening", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().nth(1).unwrap().unwrap().contains("signal.awaited"));
    // Nobody offers a socket here at any time.
    until("the store is free", || bench.durable(["signal", "listening", "steer", "1"]).code == Some(0));
    let holder = Holder::start_until(bench.dir.path(), "listening");
    holder.ended();
    assert!(lines.next().unwrap().unwrap().contains("signal.received"));
    assert!(lines.next().unwrap().unwrap().contains("run.completed"));
    assert!(following.wait().unwrap().success());
}

#[test]
fn a_cancel_says_how_the_run_ended_also_if_its_process_ends_with_it() {
    for _ in 0..6 {
        let bench = Bench::new(async |runtime| {
            runtime.start("asleep", sleeps()).await.unwrap();
            until_state(runtime, "asleep", "sleeping").await;
        });
        let holder = Holder::start_until(bench.dir.path(), "asleep");
        let said = bench.durable(["--json", "cancel", "asleep", "not wanted", "--by", "ann"]).ok().json();
        let end = json!({ "run": "asleep", "state": "cancelled", "detail": "not wanted", "requested": true });
        assert_eq!(said, end);
        holder.ended();
    }
}

#[test]
fn a_signal_that_ends_the_process_is_acknowledged_and_taken_once() {
    for _ in 0..4 {
        let bench = Bench::new(listening);
        let holder = Holder::start_until(bench.dir.path(), "listening");
        let sent = bench.durable(["--json", "signal", "listening", "steer", "1"]).ok().json();
        assert_eq!((&sent["run"], &sent["sent"]), (&json!("listening"), &json!(true)));
        holder.ended();
        let log = bench.log("listening");
        let received = log.iter().find(|entry| entry["entry"] == "signal.received").unwrap();
        assert_eq!(received["messages"], json!([1]), "once");
        assert_eq!(bench.durable(["--json", "show", "listening"]).ok().json()["messages"], json!([]));
    }
}

#[test]
fn a_process_that_is_stopped_is_named_and_its_answer_is_waited_for() {
    for json in [false, true] {
        let mut bench = Bench::held(true, listening);
        let pid = bench.holder().pid().to_string();
        bench.holder().signal("STOP");
        let mut command: Command = match json {
            true => bench.command(["--json", "runs"]),
            false => bench.command(["runs"]),
        };
        let mut asking = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(asking.stderr.take().unwrap()).lines();
        let line = said.next().unwrap().unwrap();
        assert!(line.contains(&format!("kill -CONT {pid}")) && line.contains("stopped"), "{line}");
        if json {
            let line: Json = serde_json::from_str(&line).unwrap();
            assert!(line["waiting"].is_string(), "{line}");
        }
        bench.holder().signal("CONT");
        let mut out = String::new();
        asking.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(asking.wait().unwrap().success() && out.contains("listening"), "{out}");
        assert_eq!(said.count(), 0, "once");
    }
}

#[test]
fn who_only_waits_long_is_not_taken_for_stopped() {
    let mut bench = Bench::held(true, listening);
    let mut following =
        bench.command(["log", "listening", "-f"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().nth(1).unwrap().unwrap().contains("signal.awaited"));
    // Long enough that the process was asked whether it is there: another command that it stops at says so.
    bench.holder().signal("STOP");
    let mut asking = bench.command(["runs"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(BufReader::new(asking.stderr.take().unwrap()).lines().next().unwrap().unwrap().contains("stopped"));
    bench.holder().signal("CONT");
    assert!(asking.wait().unwrap().success());
    bench.durable(["signal", "listening", "steer", "1"]).ok();
    assert!(lines.by_ref().nth(1).unwrap().unwrap().contains("run.completed"));
    drop(thread::spawn(move || lines.count()));
    assert!(following.wait().unwrap().success());
}
