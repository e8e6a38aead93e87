//! What the command tells people to do, they can do with the command.

use serde_json::json;

use crate::{
    bench::{BOTH, Bench, command, run, until_state},
    work::{approves, listens, panics, refunds, wires},
};

async fn all_that_wait(runtime: &durable::Runtime) {
    runtime.start("listening", listens()).await.unwrap();
    runtime.start("asking", approves("ORD-2".into(), 9)).await.unwrap();
    runtime.start("held", wires(5)).await.unwrap();
    runtime.start("sick", panics("/nowhere/at/all".into())).await.unwrap();
    runtime.start("done", refunds("ORD-1".into(), 1)).await.unwrap();
    for (run, state) in [
        ("listening", "awaiting signal"),
        ("asking", "awaiting answer"),
        ("held", "held"),
        ("sick", "parked"),
        ("done", "completed"),
    ] {
        until_state(runtime, run, state).await;
    }
}

#[track_caller]
fn names_no_function(text: &str) {
    for name in ["Runtime::", "AnyRun::", "Error::", "OpenQuestion::", "AnswerRequest::", "call retry"] {
        assert!(!text.contains(name), "{name} is nothing for a person: {text}");
    }
}

#[test]
fn errors_and_next_actions_name_commands() {
    for held in BOTH {
        let bench = Bench::held(held, all_that_wait);
        bench.until_state("held", "held");
        bench.until_state("sick", "parked");
        for (args, told) in [
            (&["show", "nobody"][..], "durable runs"),
            (&["log", "done", "--generation", "7"], "newest"),
            (&["resolve", "held", "0", "9", "--run-again"], "durable holds"),
            (&["resolve", "done", "0", "1", "--run-again"], "durable holds"),
            (&["answer", "done:0:ask@9", "--grant", "1"], "durable ask"),
            (&["answer", "asking:0:ask@0", "--grant", "1", "--by", "eve"], "--by"),
            (&["retry", "done"], "only a parked run"),
        ] {
            for json in [&[][..], &["--json"]] {
                let said = bench.durable(json.iter().chain(args));
                assert!(said.code != Some(0) && said.err.contains(told), "{args:?}: {said:?}");
                names_no_function(&said.err);
            }
        }
        for row in bench.durable(["--json", "runs"]).ok().lines() {
            names_no_function(&row.to_string());
            let shown = bench.durable(["show", row["run"].as_str().unwrap()]).ok().out;
            names_no_function(&shown);
            assert!(row["run"] == "done" || shown.contains("next:"), "{shown}");
        }
    }
}

#[test]
fn a_store_that_had_to_be_named_is_named_in_what_is_told() {
    for held in BOTH {
        let bench = Bench::held(held, all_that_wait);
        bench.until_state("held", "held");
        let store = bench.store().display().to_string();
        let named = format!("durable --store {store}");
        for (args, told) in [
            (&["ask"][..], "answer asking:0:ask@0"),
            (&["holds"], "resolve held 0 1"),
            (&["show", "listening"], "signal listening steer"),
            (&["show", "asking"], "answer asking:0:ask@0"),
            (&["show", "held"], "resolve held 0 1"),
            (&["show", "sick"], "retry sick"),
        ] {
            let told_by_name = format!("{named} {told}");
            let said = run(bench.command(args).env_remove("DURABLE_STORE").args(["--store", &store])).ok().out;
            assert!(said.contains(&told_by_name), "{told_by_name}: {said}");
            let first = run(command(&bench.store()).env_remove("DURABLE_STORE").args(["--store", &store]).args(args));
            assert!(first.ok().out.contains(&told_by_name), "wherever it was named");
            let said = bench.durable(args).ok().out;
            assert!(said.contains(&format!("durable {told}")) && !said.contains("--store"), "{said}");
        }
    }
}

#[test]
fn a_signal_that_was_there_before_says_so() {
    for held in BOTH {
        let bench = Bench::held(held, all_that_wait);
        let send =
            |value: &str| bench.durable(["--json", "signal", "listening", "other", value, "--id", "m-1"]).ok().json();
        assert_eq!(send("1")["sent"], true);
        assert_eq!(send("2")["sent"], false);
        let said = bench.durable(["signal", "listening", "other", "2", "--id", "m-1"]).ok().out;
        assert!(said.contains("had a signal other with the id m-1 before"), "{said}");
        let messages = &bench.durable(["--json", "show", "listening"]).ok().json()["messages"];
        assert_eq!(messages.as_array().unwrap().iter().map(|m| &m["value"]).collect::<Vec<_>>(), [&json!(1)]);
    }
}

#[test]
fn what_is_left_for_later_is_not_said_to_be_done() {
    let bench = Bench::new(all_that_wait);
    let said = bench.durable(["retry", "sick"]).ok().out;
    assert!(said.contains("is tried again when a process that has its code opens the store"), "{said}");
    let said = bench.durable(["resolve", "held", "0", "1", "--succeeded", "5"]).ok().out;
    assert!(said.contains("kept until"), "{said}");
}
