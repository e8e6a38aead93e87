//! `signal`, `ask` and `answer`, `holds` and `resolve`.

use std::{io::Write as _, process::Stdio};

use durable::Runtime;
use serde_json::{Value as Json, json};

use crate::{
    bench::{BOTH, Bench, until, until_state, until_terminal},
    work::{approves, listens, refunds, wires},
};

#[test]
fn a_signal_is_taken_once_however_often_it_is_sent_under_one_id() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("listening", listens()).await.unwrap();
            until_state(runtime, "listening", "awaiting signal").await;
        });
        let sent = bench.durable(["--json", "signal", "listening", "other", "1", "--id", "m-1"]).ok().json();
        assert_eq!(sent, json!({ "run": "listening", "signal": "other", "sent": true }));
        bench.durable(["signal", "listening", "other", "1", "--id", "m-1"]).ok();
        let messages = &bench.durable(["--json", "show", "listening"]).ok().json()["messages"];
        assert_eq!(messages.as_array().unwrap().len(), 1, "{messages}");
        let said = bench.durable(["signal", "listening", "steer", "{\"to\":[1,-2.5,\"x\"]}"]).ok();
        assert!(said.out.contains("listening") && said.out.contains("steer"), "{said:?}");
        assert_eq!(bench.end_of("listening"), json!({ "state": "completed", "outcome": { "to": [1, -2.5, "x"] } }));
        // Every message without an id of its own would be the same.
        bench.durable(["signal", "listening", "steer", "1", "--id", ""]).exits(2);
        // One that has ended takes nothing, and says so.
        let said = bench.durable(["--json", "signal", "listening", "steer", "1"]).exits(1);
        assert_eq!(said.error_code(), "DUR-0008");
    }
}

#[test]
fn a_value_may_be_negative_come_from_standard_input_and_must_be_json() {
    let bench = Bench::new(async |runtime| {
        runtime.start("a", listens()).await.unwrap();
        runtime.start("b", listens()).await.unwrap();
    });
    bench.durable(["signal", "a", "steer", "-5"]).ok();
    let mut child = bench.command(["signal", "b", "steer", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b" {\"large\": true}\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(bench.end_of("a")["outcome"], -5);
    assert_eq!(bench.end_of("b")["outcome"], json!({ "large": true }));
    let said = bench.durable(["signal", "a", "steer", "hello"]).exits(2);
    assert!(said.err.contains("'\"hello\"'"), "it says how a text is written: {said:?}");
}

async fn asking(runtime: &Runtime) {
    for (run, cents) in [("one", 900), ("two", 12)] {
        runtime.start(run, approves("ORD-2".into(), cents)).await.unwrap();
        until_state(runtime, run, "awaiting answer").await;
    }
}

/// The open questions by run.
fn questions(bench: &Bench) -> Vec<(String, Json)> {
    let lines = bench.durable(["--json", "ask"]).ok().lines();
    let mut questions: Vec<(String, Json)> =
        lines.into_iter().map(|line| (line["run"].as_str().unwrap().to_owned(), line)).collect();
    questions.sort_by(|a, b| a.0.cmp(&b.0));
    questions
}

#[test]
fn questions_show_all_that_is_to_be_approved_and_the_first_answer_counts() {
    for held in BOTH {
        let bench = Bench::held(held, asking);
        let open = questions(&bench);
        assert_eq!(open.iter().map(|(run, _)| &**run).collect::<Vec<_>>(), ["one", "two"]);
        let (_, one) = &open[0];
        assert_eq!(one["title"], "refund 900 cents?");
        assert_eq!(one["about"], json!({ "order": "ORD-2", "cents": 900 }));
        assert_eq!(one["by"], json!(["ann", "tester"]));
        let token = |n: usize| open[n].1["token"].as_str().unwrap();
        let person = bench.durable(["ask"]).ok().out;
        for part in ["refund 900 cents?", "\"order\": \"ORD-2\"", "ann, tester", "durable answer"] {
            assert!(person.contains(part), "{part}: {person}");
        }

        let said = bench.durable(["--json", "answer", "--by", "eve", "--grant", "1", "--", token(0)]).exits(1);
        assert!(said.err.contains("eve"), "who may not is named: {said:?}");
        let said = bench.durable(["--json", "answer", "--by", "ann", "--grant", "900", "--", token(0)]).ok().json();
        assert!(said["answered"].is_string(), "{said}");
        let late = bench.durable(["--json", "answer", "--refuse", "too much", "--", token(0)]);
        match held {
            true => assert!(!late.exits(1).error_code().is_empty()),
            // Nobody can say yet whether the first one fits.
            false => assert!(late.ok().json()["answered"].as_str().unwrap().contains("kept")),
        }
        // Without --by it is whoever is logged in.
        bench.durable(["answer", "--refuse", "too little", "--", token(1)]).ok();
        bench.durable(["answer", "--grant", "1", "--", "no such token"]).exits(3);
        bench.durable(["answer", "--", token(1)]).exits(2);
        bench.durable(["answer", "--grant", "1", "--refuse", "no", "--", token(1)]).exits(2);

        assert_eq!(bench.end_of("one"), json!({ "state": "completed", "outcome": "granted 900" }));
        assert_eq!(bench.end_of("two"), json!({ "state": "completed", "outcome": "refused: too little" }));
        let answered = bench.log("two").into_iter().find(|entry| entry["entry"] == "question.answered").unwrap();
        assert_eq!(answered["by"], "tester");
        assert_eq!(questions(&bench).len(), 0);
        assert!(bench.durable(["ask"]).ok().err.contains("no question is open"));
    }
}

async fn held(runtime: &Runtime) {
    for run in ["first", "second", "third", "fourth"] {
        runtime.start(run, wires(500)).await.unwrap();
        until_state(runtime, run, "held").await;
    }
}

#[test]
fn a_step_in_doubt_is_resolved_in_each_way() {
    for is_held in BOTH {
        let bench = Bench::held(is_held, held);
        until("all are held", || bench.durable(["--json", "holds"]).ok().lines().len() == 4);
        let holds = bench.durable(["--json", "holds"]).ok().lines();
        let hold = &holds[0];
        assert_eq!((&hold["run"], &hold["step"], &hold["attempt"]), (&json!("first"), &json!(0), &json!(1)));
        assert_eq!((&hold["args"], &hold["effect"]), (&json!({ "cents": 500 }), &json!("wire")));
        assert!(hold["reason"].as_str().unwrap().contains("no answer"));
        let person = bench.durable(["holds"]).ok().out;
        assert!(person.contains("durable resolve first 0 1 --succeeded JSON"), "{person}");

        bench.durable(["resolve", "first", "0", "1"]).exits(2);
        bench.durable(["resolve", "first", "0", "1", "--run-again", "--failed", "x"]).exits(2);
        assert_eq!(
            bench.durable(["--json", "resolve", "first", "0", "2", "--run-again"]).exits(1).error_code(),
            "DUR-0050"
        );
        assert_eq!(
            bench.durable(["--json", "resolve", "first", "7", "1", "--run-again"]).exits(1).error_code(),
            "DUR-0051"
        );
        if is_held {
            // The process that has the code knows the type.
            let said = bench.durable(["--json", "resolve", "first", "0", "1", "--succeeded", "\"much\""]).exits(2);
            assert_eq!(said.error_code(), "DUR-0052");
        }
        let said =
            bench.durable(["--json", "resolve", "first", "0", "1", "--succeeded", "499", "--by", "ann"]).ok().json();
        let kept = !is_held;
        assert_eq!(said, json!({ "run": "first", "step": 0, "attempt": 1, "resolved": "succeeded", "kept": kept }));
        bench.durable(["resolve", "second", "0", "1", "--failed", "the bank says no"]).ok();
        bench.durable(["resolve", "third", "0", "1", "--failed-with", "{\"message\":\"declined\"}"]).ok();
        assert_eq!(bench.end_of("first"), json!({ "state": "completed", "outcome": { "Ok": 499 } }));
        assert_eq!(bench.end_of("second")["state"], "failed");
        assert_eq!(bench.end_of("third")["state"], "failed");
        let resolved = bench.log("first").into_iter().find(|entry| entry["entry"] == "effect.resolved").unwrap();
        assert_eq!((&resolved["how"], &resolved["by"]), (&json!("succeeded"), &json!("ann")));
        let again = bench.durable(["--json", "resolve", "first", "0", "1", "--run-again"]).exits(1);
        assert_eq!(again.error_code(), "DUR-0051");

        bench.durable(["resolve", "fourth", "0", "1", "--run-again"]).ok();
        let again =
            |bench: &Bench| bench.log("fourth").iter().filter(|entry| entry["entry"] == "effect.called").count() == 2;
        match is_held {
            // It settles first; that it was taken is what the command says.
            true => until("the word was taken", || {
                bench.log("fourth").iter().any(|entry| entry["entry"] == "effect.resolved")
            }),
            false => bench.here(async |runtime| {
                until_logged(runtime, "fourth", "effect.resolved").await;
            }),
        }
        let _ = again;
    }
}

async fn until_logged(runtime: &Runtime, run: &str, name: &str) {
    crate::bench::until_async(name, async || {
        runtime.run(run).await.unwrap().log().await.unwrap().iter().any(|entry| entry.name == name)
    })
    .await;
}

#[test]
fn a_run_that_is_not_in_doubt_has_nothing_to_resolve() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("done", refunds("ORD-1".into(), 1)).await.unwrap();
            until_terminal(runtime, "done").await;
        });
        assert_eq!(
            bench.durable(["--json", "resolve", "done", "0", "1", "--run-again"]).exits(1).error_code(),
            "DUR-0051"
        );
        assert!(bench.durable(["holds"]).ok().err.contains("no step in doubt"));
    }
}
