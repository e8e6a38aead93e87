//! `cancel` and `retry`.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use serde_json::json;

use crate::{
    bench::{BOTH, Bench, until_state, until_terminal},
    work::{listens, panics, refunds, sleeps, waits_for_file, wires},
};

#[test]
fn a_run_is_cancelled_and_the_command_says_how_it_ended() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("asleep", sleeps()).await.unwrap();
            runtime.start("done", refunds("ORD-1".into(), 1)).await.unwrap();
            until_state(runtime, "asleep", "sleeping").await;
            until_terminal(runtime, "done").await;
        });
        let said = bench.durable(["--json", "cancel", "asleep", "not wanted", "--by", "ann"]).ok().json();
        assert_eq!((&said["run"], &said["requested"]), (&json!("asleep"), &json!(true)));
        let state = if held { ("cancelled", json!("not wanted")) } else { ("interrupted", json!(null)) };
        assert_eq!((&said["state"], &said["detail"]), (&json!(state.0), &state.1));
        assert_eq!(bench.end_of("asleep")["state"], "cancelled");
        let log = bench.log("asleep");
        let ended = log.last().unwrap();
        assert_eq!((&ended["reason"], &ended["by"]), (&json!("not wanted"), &json!("ann")));
        // To cancel it once more is fine; one that ended otherwise was not cancelled.
        let said = bench.durable(["cancel", "asleep", "again"]).ok();
        assert!(said.out.contains("had ended before: it is cancelled: not wanted") && said.err.is_empty(), "{said:?}");
        let said = bench.durable(["--json", "cancel", "done", "too late"]).exits(1).json();
        assert_eq!((&said["state"], &said["requested"]), (&json!("completed"), &json!(false)));
        let said = bench.durable(["cancel", "done", "too late"]).exits(1);
        assert!(said.out.contains("done had ended before: it is completed") && said.err.is_empty(), "{said:?}");
        bench.durable(["cancel", "nobody", "why"]).exits(3);
        bench.durable(["cancel", "asleep"]).exits(2);
    }
}

#[test]
fn a_cancellation_stands_although_nobody_waits_for_it_any_more() {
    let mut bench = Bench::new(async |_| {});
    let file = bench.file("gate");
    bench.here(async |runtime| {
        runtime.start("slow", waits_for_file(file.display().to_string())).await.unwrap();
        until_state(runtime, "slow", "running").await;
    });
    bench.hold();
    let mut waiting =
        bench.command(["cancel", "slow", "enough"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert!(line.contains("waiting for the run to end") && line.contains("Ctrl-C"), "{line}");
    // As Ctrl-C does, only more so.
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    bench.until_state("slow", "cancelling");
    fs::write(&file, "").unwrap();
    assert_eq!(bench.end_of("slow")["state"], "cancelled");
}

#[test]
fn a_cancellation_of_a_run_that_nobody_goes_on_with_is_left_for_who_will() {
    let bench = Bench::new(async |runtime| {
        runtime.start("listening", listens()).await.unwrap();
        until_state(runtime, "listening", "awaiting signal").await;
    });
    let said = bench.durable(["cancel", "listening", "not wanted"]).ok();
    assert!(said.out.contains("the request stands") && said.out.contains("opens the store"), "{said:?}");
    assert_eq!(bench.end_of("listening")["state"], "cancelled");
}

#[test]
fn a_cancellation_of_a_held_run_says_that_a_doubt_is_left() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("first", wires(500)).await.unwrap();
            runtime.start("second", wires(500)).await.unwrap();
            until_state(runtime, "first", "held").await;
            until_state(runtime, "second", "held").await;
        });
        let said = bench.durable(["cancel", "first", "enough"]).ok().out;
        assert!(said.contains("step 0 (wire[0]): in doubt, and "), "{said}");
        assert_eq!(said.contains("nobody will be asked about it any more"), held, "{said}");
        let said = bench.durable(["--json", "cancel", "second", "enough"]).ok().json();
        assert_eq!(said["in_doubt"], json!(["step 0 (wire[0])"]));
        assert_eq!(bench.end_of("first")["state"], "cancelled");
        assert_eq!(bench.end_of("second")["state"], "cancelled");
    }
}

#[test]
fn a_parked_run_is_tried_again() {
    for held in BOTH {
        let mut bench = Bench::new(async |_| {});
        let file = bench.file("mended");
        bench.here(async |runtime| {
            runtime.start("sick", panics(file.display().to_string())).await.unwrap();
            until_state(runtime, "sick", "parked").await;
        });
        if held {
            bench.hold();
        }
        bench.until_state("sick", "parked");
        let said = bench.durable(["--json", "show", "sick"]).ok().json();
        assert_eq!((&said["code"], said["next"].is_string()), (&json!("DUR-0012"), true));
        // The cause is still there.
        bench.durable(["retry", "sick"]).ok();
        bench.until_state("sick", if held { "parked" } else { "interrupted" });
        bench.here_unless_held(async |runtime| until_state(runtime, "sick", "parked").await);
        fs::write(&file, "").unwrap();
        bench.durable(["--json", "retry", "sick"]).ok();
        assert_eq!(bench.end_of("sick"), json!({ "state": "completed", "outcome": true }));
        assert_eq!(bench.durable(["--json", "retry", "sick"]).exits(1).error_code(), "DUR-0053");
    }
}
