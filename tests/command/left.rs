//! What was left in a store that no process holds is shown there until a process takes it.

use std::{fs, time::Duration};

use serde_json::{Value as Json, json};

use crate::{
    bench::{Bench, until, until_async, until_state},
    holder::Holder,
    work::{approves, asks_soon, counts_to, listens, parents, sleeps, wires, wires_behind},
};

fn run_row(bench: &Bench, run: &str) -> Json {
    let rows = bench.durable(["--json", "runs", "--limit", "0"]).ok().lines();
    rows.into_iter().find(|row| row["run"] == run).unwrap()
}

/// The run is told as one that goes on when a process has it, and what it goes on with.
#[track_caller]
fn goes_on_with(bench: &Bench, run: &str, left: &[&str]) {
    let row = run_row(bench, run);
    assert_eq!(row["state"], "interrupted", "{row}");
    let told = row["left"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert_eq!(told, left);
    assert!(row["next"].as_str().unwrap().contains("open the store with a process"), "{row}");
    let table = bench.durable(["runs"]).ok().out;
    let shown = bench.durable(["show", run]).ok().out;
    for left in left {
        assert!(table.contains(left) && shown.contains(left), "{left}: {table}{shown}");
    }
    assert!(shown.contains("next: open the store with a process"), "{shown}");
}

fn step(bench: &Bench, run: &str, step: usize) -> (String, String) {
    let shown = bench.durable(["--json", "show", run]).ok().json();
    let step = &shown["steps"][step];
    (step["state"].as_str().unwrap().to_owned(), step["detail"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_kept_answer_is_shown_and_its_question_asks_nobody_any_more() {
    let bench = Bench::new(async |runtime| {
        for (run, cents) in [("one", 900), ("two", 12)] {
            runtime.start(run, approves("ORD-2".into(), cents)).await.unwrap();
            until_state(runtime, run, "awaiting answer").await;
        }
    });
    let said = bench.durable(["answer", "one:0:ask@0", "--grant", "880", "--by", "ann"]).ok();
    assert!(said.out.contains("kept until the run goes on"), "{said:?}");
    goes_on_with(&bench, "one", &["the answer to ask[0]: 880 by ann"]);
    let (state, detail) = step(&bench, "one", 0);
    assert_eq!(state, "answered");
    assert!(detail.contains("880 by ann; taken, if it fits, when") && detail.contains("opens the store"), "{detail}");
    assert!(!bench.durable(["show", "one"]).ok().out.contains("durable answer"));
    assert_eq!(bench.durable(["--json", "show", "one"]).ok().json()["questions"], json!([]));
    let open = bench.durable(["--json", "ask"]).ok().lines();
    assert_eq!(open.iter().map(|open| &open["run"]).collect::<Vec<_>>(), ["two"]);
    bench.durable(["answer", "two:0:ask@0", "--refuse", "too little", "--by", "tester"]).ok();
    goes_on_with(&bench, "two", &["the answer to ask[0]: refused by tester: too little"]);
    let asked = bench.durable(["ask"]).ok().err;
    assert!(asked.contains("no question is open"), "{asked}");
    for run in ["one", "two"] {
        let told = format!("run {run} has an answer that waits for a process, and may be given another one");
        assert!(asked.contains(&told) && asked.contains(&format!("durable show {run}")), "{asked}");
    }

    assert_eq!(bench.end_of("one")["outcome"], "granted 880");
    assert_eq!(bench.end_of("two")["outcome"], "refused: too little");
    assert_eq!(step(&bench, "one", 0).0, "done");
    assert_eq!(step(&bench, "two", 0).0, "refused", "a no is no failure");
}

#[test]
fn a_kept_word_on_a_step_in_doubt_is_shown_and_the_step_is_no_hold_any_more() {
    let bench = Bench::new(async |runtime| {
        runtime.start("first", wires(500)).await.unwrap();
        until_state(runtime, "first", "held").await;
    });
    bench.durable(["resolve", "first", "0", "1", "--succeeded", "499", "--by", "ann"]).ok();
    goes_on_with(&bench, "first", &["the word of ann on step 0, attempt 1: succeeded with 499"]);
    assert_eq!(step(&bench, "first", 0).0, "resolved");
    let holds = bench.durable(["holds"]).ok().err;
    assert!(holds.contains("no step in doubt") && holds.contains("run first has a word on a step in doubt"), "{holds}");
    assert_eq!(bench.durable(["--json", "show", "first"]).ok().json()["holds"], json!([]));
    assert_eq!(bench.durable(["--json", "runs", "--status", "held"]).ok().lines(), [json!(null); 0]);
    assert_eq!(bench.end_of("first")["outcome"], json!({ "Ok": 499 }));
}

#[test]
fn a_kept_cancel_is_shown_and_what_comes_after_it_is_told() {
    let bench = Bench::new(async |runtime| {
        runtime.start("asking", approves("ORD-2".into(), 900)).await.unwrap();
        runtime.start("asleep", sleeps()).await.unwrap();
        until_state(runtime, "asking", "awaiting answer").await;
        until_state(runtime, "asleep", "sleeping").await;
    });
    for run in ["asking", "asleep"] {
        let said = bench.durable(["--json", "cancel", run, "not wanted", "--by", "ann"]).ok().json();
        assert_eq!((&said["state"], &said["requested"]), (&json!("interrupted"), &json!(true)));
        goes_on_with(&bench, run, &["the request of ann to cancel it: not wanted"]);
        let again = bench.durable(["cancel", run, "for another reason", "--by", "bob"]).ok();
        assert!(again.out.contains("is to be cancelled already, by ann: not wanted"), "{again:?}");
        goes_on_with(&bench, run, &["the request of ann to cancel it: not wanted"]);
    }
    let shown = bench.durable(["show", "asking"]).ok().out;
    assert!(!shown.contains("durable answer") && shown.contains("next: open the store"), "nobody need answer: {shown}");
    let said = bench.durable(["answer", "asking:0:ask@0", "--grant", "900", "--by", "ann"]).ok();
    assert!(said.out.contains("is to be cancelled, by ann: not wanted"), "{said:?}");
    for run in ["asking", "asleep"] {
        assert_eq!(bench.end_of(run), json!({ "state": "cancelled", "outcome": "not wanted" }));
        assert_eq!(step(&bench, run, 0).0, "dropped", "nothing of a run that has ended waits");
    }
}

#[test]
fn a_question_that_has_expired_asks_nobody() {
    let bench = Bench::new(async |runtime| {
        runtime.start("soon", asks_soon(Duration::from_millis(1_500))).await.unwrap();
        until_state(runtime, "soon", "awaiting answer").await;
    });
    until("it has expired", || bench.durable(["--json", "ask"]).ok().lines().is_empty());
    goes_on_with(&bench, "soon", &[]);
    assert_eq!(step(&bench, "soon", 0).0, "expired");
    assert!(!bench.durable(["show", "soon"]).ok().out.contains("durable answer"));
    assert_eq!(bench.durable(["--json", "answer", "soon:0:ask@0", "--grant", "1"]).exits(1).error_code(), "DUR-0063");
    assert_eq!(bench.end_of("soon")["outcome"], "expired");
    assert_eq!(step(&bench, "soon", 0).0, "expired");
}

#[test]
fn a_signal_that_is_waited_for_is_shown() {
    let bench = Bench::new(async |runtime| {
        runtime.start("parent", parents("child".into())).await.unwrap();
        runtime.start("listening", listens()).await.unwrap();
        until_state(runtime, "parent", "awaiting child").await;
        until_state(runtime, "child", "awaiting signal").await;
        until_state(runtime, "listening", "awaiting signal").await;
    });
    bench.durable(["signal", "listening", "other", "1"]).ok();
    assert_eq!(run_row(&bench, "listening")["state"], "awaiting signal", "nobody waits for that one");
    bench.durable(["signal", "listening", "steer", "1"]).ok();
    goes_on_with(&bench, "listening", &["the signal steer"]);
    assert!(!bench.durable(["show", "listening"]).ok().out.contains("durable signal"), "it was sent");
    assert_eq!(run_row(&bench, "parent")["state"], "awaiting child");
}

#[test]
fn an_outcome_that_came_in_a_shutdown_is_shown_as_one() {
    let bench = Bench::new(async |_| {});
    let gate = bench.file("gate");
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = durable::Runtime::builder().open(bench.store()).await.unwrap();
        runtime.start("wiring", wires_behind(gate.display().to_string())).await.unwrap();
        until_async("its body runs", async || !runtime.bodies().is_empty()).await;
        let closing = tokio::spawn({
            let runtime = runtime.clone();
            async move { runtime.shutdown(Duration::from_secs(20)).await.unwrap() }
        });
        until_async("it is closing", async || runtime.start("late", sleeps()).await.is_err()).await;
        fs::write(&gate, "").unwrap();
        closing.await.unwrap();
    });
    goes_on_with(&bench, "wiring", &["the outcome of step 0, attempt 1"]);
    let (state, detail) = step(&bench, "wiring", 0);
    assert_eq!(state, "ended");
    assert!(detail.contains("its outcome is taken"), "{detail}");
    assert_eq!(bench.end_of("wiring")["outcome"], json!({ "Ok": "passed" }));
}

#[test]
fn a_body_whose_process_was_killed_is_not_said_to_be_under_way() {
    let mut bench = Bench::new(async |_| {});
    let gate = bench.file("gate");
    bench.here(async |runtime| {
        runtime.start("slow", crate::work::waits_for_file(gate.display().to_string())).await.unwrap();
        until_state(runtime, "slow", "running").await;
    });
    bench.hold();
    bench.shown("slow", |shown| shown["steps"][0]["state"] == "under way");
    let _: &Holder = bench.holder();
    bench.kill();
    until("the store is free", || bench.durable(["runs"]).code == Some(0));
    goes_on_with(&bench, "slow", &[]);
    assert_eq!(step(&bench, "slow", 0).0, "interrupted");
    fs::write(&gate, "").unwrap();
    assert_eq!(bench.end_of("slow")["state"], "completed");
}

#[test]
fn what_was_of_no_use_is_told_where_it_is_asked_for_again() {
    let bench = Bench::new(async |runtime| {
        runtime.start("one", approves("ORD-2".into(), 900)).await.unwrap();
        runtime.start("first", wires(500)).await.unwrap();
        until_state(runtime, "one", "awaiting answer").await;
        until_state(runtime, "first", "held").await;
    });
    bench.durable(["answer", "one:0:ask@0", "--grant", "\"much\"", "--by", "ann"]).ok();
    let said = bench.durable(["resolve", "first", "0", "1", "--succeeded", "\"much\"", "--by", "ann"]).ok();
    assert!(said.out.contains("kept until the run goes on"), "{said:?}");
    bench.here(async |runtime| {
        for (run, name) in [("one", "signal.set_aside"), ("first", "resolution.set_aside")] {
            until_async(name, async || {
                let log = runtime.run(run).await.unwrap().log().await.unwrap();
                log.iter().any(|entry| entry.name == name)
            })
            .await;
        }
    });
    for list in [&["ask"][..], &["holds"], &["show", "one"], &["show", "first"]] {
        let shown = bench.durable(list).ok().out;
        assert!(shown.contains("1 set aside, the last because: ") && shown.contains("u64"), "{shown}");
    }
    bench.durable(["resolve", "first", "0", "1", "--succeeded", "\"more\""]).ok();
    bench.durable(["resolve", "first", "0", "1", "--succeeded", "499"]).ok();
    assert_eq!(bench.end_of("first")["outcome"], json!({ "Ok": 499 }));
}

#[test]
fn a_message_that_was_set_aside_is_in_show_also_when_its_step_is_done() {
    let mut bench = Bench::new(async |runtime| {
        runtime.start("counting", counts_to()).await.unwrap();
        until_state(runtime, "counting", "awaiting signal").await;
    });
    bench.durable(["signal", "counting", "to", "\"three\""]).ok();
    bench.hold();
    let aside = "1 set aside, the last because: ";
    bench.shown("counting", |shown| shown["steps"][0]["set_aside"].as_str().is_some_and(|said| said.contains(aside)));
    assert!(bench.durable(["show", "counting"]).ok().out.contains(aside));
    bench.durable(["signal", "counting", "to", "3"]).ok();
    assert_eq!(bench.end_of("counting")["outcome"], 3);
    assert!(bench.durable(["show", "counting"]).ok().out.contains(aside));
}
