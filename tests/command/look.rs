//! `runs`, `show`, `log`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use durable::Runtime;
use serde_json::{Value as Json, json};

use crate::{
    bench::{BOTH, Bench, until, until_state, until_terminal},
    work::{approves, fails, listens, panics, parents, plans, refunds, restarts, sleeps, tries, wires},
};

/// A run in every state that one can stay in.
async fn all_states(runtime: &Runtime) {
    runtime.start("done", refunds("ORD-1".into(), 120)).await.unwrap();
    runtime.start("failed", fails("declined".into())).await.unwrap();
    runtime.start("held", wires(500)).await.unwrap();
    runtime.start("listening", listens()).await.unwrap();
    runtime.start("asking", approves("ORD-2".into(), 900)).await.unwrap();
    runtime.start("asleep", sleeps()).await.unwrap();
    runtime.start("sick", panics("/nowhere/at/all".into())).await.unwrap();
    for run in ["done", "failed"] {
        until_terminal(runtime, run).await;
    }
    for (run, state) in [
        ("held", "held"),
        ("listening", "awaiting signal"),
        ("asking", "awaiting answer"),
        ("asleep", "sleeping"),
        ("sick", "parked"),
    ] {
        until_state(runtime, run, state).await;
    }
}

fn names(lines: &[Json]) -> Vec<&str> {
    let mut names: Vec<&str> = lines.iter().map(|line| line["run"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn runs_are_listed_with_what_they_wait_for_and_can_be_filtered() {
    for held in BOTH {
        let bench = Bench::held(held, all_states);
        for (run, state) in [("held", "held"), ("listening", "awaiting signal"), ("sick", "parked")] {
            bench.until_state(run, state);
        }
        let listed = |args: &[&str]| {
            let lines = bench.durable(["--json", "runs"].iter().chain(args)).ok().lines();
            names(&lines).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let all = ["asking", "asleep", "done", "failed", "held", "listening", "sick"];
        assert_eq!(listed(&[]), all);
        assert_eq!(listed(&["--status", "held"]), ["held"]);
        assert_eq!(listed(&["--status", "held", "--status", "failed"]), ["failed", "held"]);
        assert_eq!(listed(&["--status", "awaiting-signal"]), ["listening"]);
        assert_eq!(listed(&["--status", "awaiting"]), ["asking", "listening"]);
        assert_eq!(listed(&["--status", "ended"]), ["done", "failed"]);
        assert_eq!(listed(&["--status", "unfinished"]), ["asking", "asleep", "held", "listening", "sick"]);
        assert_eq!(listed(&["--workflow", "wires"]), ["held"]);
        assert_eq!(listed(&["--text", "ORD-2"]), ["asking"], "a text in the arguments");
        assert_eq!(listed(&["--text", "asl"]), ["asleep"], "a text in the id");
        assert_eq!(listed(&["--older", "1d"]), [""; 0]);
        assert_eq!(listed(&["--newer", "1d"]), all);
        assert_eq!(listed(&["--limit", "2"]).len(), 2);
        assert_eq!(listed(&["--limit", "0"]), all);

        let line = &bench.durable(["--json", "runs", "--status", "failed"]).ok().lines()[0];
        assert_eq!(
            (&line["state"], &line["detail"], &line["ended"]),
            (&json!("failed"), &json!("declined"), &json!(true))
        );
        for field in ["workflow", "module", "started_at", "since"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
        // Without a terminal: no head, no colours, tabs.
        let said = bench.durable(["runs", "--status", "held"]).ok();
        let columns: Vec<&str> = said.out.trim_end_matches('\n').split('\t').collect();
        assert_eq!((columns[0], columns[1], columns[2], columns.len()), ("held", "wires", "held", 7));
        assert!(!said.out.contains('\x1b'));
        let said = bench.durable(["runs", "--limit", "2"]).ok();
        assert!(said.err.contains("2 of 7 runs"), "{said:?}");
        let said = bench.durable(["runs", "--status", "happy"]).exits(2);
        assert!(said.err.contains("and awaiting, unfinished, ended for several at once"), "{said:?}");
    }
}

#[test]
fn each_run_that_cannot_go_on_says_so_with_since_when_and_what_to_do() {
    for held in BOTH {
        let bench = Bench::held(held, all_states);
        for (run, state, next) in [
            ("held", "held", "durable resolve held 0 1 --succeeded JSON"),
            ("listening", "awaiting signal", "durable signal listening steer JSON"),
            ("asking", "awaiting answer", "durable answer "),
            ("sick", "parked", "durable explain DUR-0012"),
        ] {
            bench.until_state(run, state);
            let said = bench.durable(["show", run]).ok().out;
            assert!(said.contains(state), "{said}");
            assert!(said.contains("since") && said.contains(" ago)"), "{said}");
            let told = said.lines().find(|line| line.contains("next:") && line.contains(next));
            assert!(told.is_some(), "{run} is to say {next:?}: {said}");
        }
        // It has a wake-up of its own, and nobody has to do anything but to let a process have it.
        let asleep = bench.durable(["show", "asleep"]).ok().out;
        match held {
            true => assert!(!asleep.contains("next:"), "{asleep}"),
            false => assert!(asleep.contains("next: open the store with a process"), "{asleep}"),
        }
    }
}

#[test]
fn show_tells_steps_with_contracts_attempts_and_outcomes() {
    for held in BOTH {
        let bench = Bench::held(held, all_states);
        let shown = bench.durable(["--json", "show", "done"]).ok().json();
        assert_eq!(shown["args"], json!({ "order": "ORD-1", "cents": 120 }));
        assert_eq!(shown["outcome"], json!({ "Ok": 120 }));
        assert_eq!(
            (&shown["state"], &shown["entries"], &shown["generation"]),
            (&json!("completed"), &json!(6), &json!(0))
        );
        let steps = shown["steps"].as_array().unwrap();
        let told: Vec<_> = steps.iter().map(|step| (&step["path"], &step["contract"], &step["state"])).collect();
        assert_eq!(
            told,
            [
                (&json!("look[0]"), &json!("read_only"), &json!("done")),
                (&json!("refund[0]"), &json!("key"), &json!("done")),
            ]
        );
        assert_eq!((&steps[1]["outcome"], &steps[1]["attempts"]), (&json!(120), &json!(1)));
        assert!(steps[1]["duration_ms"].is_u64(), "{steps:?}");
        // Only a process that has the code knows where it stands.
        assert_eq!(steps[1]["site"].as_str().is_some_and(|site| site.contains("work.rs")), held);

        bench.until_state("held", "held");
        let shown = bench.durable(["--json", "show", "held"]).ok().json();
        assert_eq!(shown["steps"][0]["state"], "in doubt");
        assert_eq!(shown["holds"][0]["args"], json!({ "cents": 500 }));
        let shown = bench.durable(["--json", "show", "asking"]).ok().json();
        assert_eq!(shown["questions"][0]["about"], json!({ "order": "ORD-2", "cents": 900 }));

        // The last of those that are over, and all that are open.
        let shown = bench.durable(["--json", "show", "done", "--steps", "1"]).ok().json();
        assert_eq!((&shown["steps_left_out"], &shown["steps"][0]["path"]), (&json!(1), &json!("refund[0]")));
        let person = bench.durable(["show", "done"]).ok().out;
        for part in ["completed", "refunds", "ORD-1", "look[0]\tread_only\t1\tdone", "refund[0]\tkey\t1\tdone"] {
            assert!(person.contains(part), "{part}: {person}");
        }
    }
}

#[test]
fn a_child_and_its_parent_are_shown_to_each_other_and_messages_wait_in_sight() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("parent", parents("child".into())).await.unwrap();
            until_state(runtime, "parent", "awaiting child").await;
            until_state(runtime, "child", "awaiting signal").await;
            runtime.signal("child", "other", &json!(5)).await.unwrap();
        });
        bench.until_state("parent", "awaiting child");
        bench.until_state("child", "awaiting signal");
        let parent = bench.durable(["--json", "show", "parent"]).ok().json();
        assert_eq!(
            parent["children"],
            json!([
                { "run": "child", "step": 0, "state": "awaiting signal", "args": "{}", "open": true }
            ])
        );
        let child = bench.durable(["--json", "show", "child"]).ok().json();
        assert_eq!(child["parent"], "parent", "{child}");
        assert_eq!((&child["messages"][0]["name"], &child["messages"][0]["value"]), (&json!("other"), &json!(5)));
    }
}

#[test]
fn a_log_is_json_lines_or_a_table_and_each_fresh_log_can_be_read() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("again", restarts(2)).await.unwrap();
            until_terminal(runtime, "again").await;
        });
        let names = |args: &[&str]| -> Vec<String> {
            let lines = bench.durable(["--json", "log", "again"].iter().chain(args)).ok().lines();
            lines.iter().map(|line| line["entry"].as_str().unwrap().to_owned()).collect()
        };
        let steps = ["run.started", "effect.called", "effect.result"].map(str::to_owned);
        let with = |last: &str| -> Vec<String> { steps.iter().cloned().chain([last.to_owned()]).collect() };
        assert_eq!(names(&[]), with("run.completed"));
        assert_eq!(names(&["--generation", "0"]), with("run.restarted"));
        assert_eq!(names(&["--generation", "2"]), with("run.completed"));
        let said = bench.durable(["--json", "log", "again", "--generation", "3"]).exits(3);
        assert_eq!(said.error_code(), "DUR-0024");
        let all = [with("run.restarted"), with("run.restarted"), with("run.completed")].concat();
        assert_eq!(names(&["--generation", "0", "--follow"]), all, "one log after the other");
        let table = bench.durable(["log", "again"]).ok().out;
        assert_eq!(table.lines().count(), 4);
        assert!(table.lines().nth(1).unwrap().contains("look[0]"), "{table}");
        assert_eq!(bench.durable(["--json", "show", "again"]).ok().json()["generation"], 2);
    }
}

#[test]
fn what_is_not_there_is_told_apart_from_what_cannot_be_read() {
    for held in BOTH {
        let bench = Bench::held(held, async |_| {});
        for args in [&["show", "nobody"][..], &["log", "nobody"], &["signal", "nobody", "a", "1"], &["retry", "nobody"]]
        {
            let said = bench.durable(["--json"].iter().chain(args)).exits(3);
            assert_eq!(said.error_code(), "DUR-0002", "{args:?}");
        }
        assert_eq!(bench.durable(["runs"]).ok().out, "");
    }
    let nowhere = tempfile::tempdir().unwrap();
    for place in [nowhere.path().to_owned(), nowhere.path().join("not/there")] {
        let said = crate::bench::run(crate::bench::command(&place).arg("runs")).exits(4);
        assert!(said.err.contains("--store"), "{said:?}");
    }
    assert_eq!(std::fs::read_dir(nowhere.path()).unwrap().count(), 0, "looking makes no store");
}

#[test]
fn a_log_is_followed_until_the_run_ends_also_over_the_death_of_its_process() {
    let mut bench = Bench::held(true, async |runtime| {
        runtime.start("listening", listens()).await.unwrap();
        until_state(runtime, "listening", "awaiting signal").await;
    });
    let mut following =
        bench.command(["--json", "log", "listening", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || -> Json { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["entry"], "run.started");
    assert_eq!(next()["entry"], "signal.awaited");
    bench.kill();
    bench.hold();
    bench.durable(["signal", "listening", "steer", "{\"to\":\"shore\"}"]).ok();
    let received = next();
    assert_eq!(
        (&received["entry"], &received["seq"]),
        (&json!("signal.received"), &json!(2)),
        "nothing twice, nothing left out"
    );
    assert_eq!(next()["entry"], "run.completed");
    assert!(following.wait().unwrap().success());
}

#[test]
fn a_log_of_a_store_that_nobody_holds_is_followed_once_somebody_does() {
    let mut bench = Bench::new(async |runtime| {
        runtime.start("listening", listens()).await.unwrap();
        until_state(runtime, "listening", "awaiting signal").await;
    });
    let mut following = bench.command(["log", "listening", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("run.started"));
    assert!(lines.next().unwrap().unwrap().contains("signal.awaited"));
    // It lets go of the store: a process that wants it gets it.
    bench.hold();
    bench.durable(["signal", "listening", "steer", "1"]).ok();
    assert!(lines.next().unwrap().unwrap().contains("signal.received"));
    assert!(lines.next().unwrap().unwrap().contains("run.completed"));
    assert!(following.wait().unwrap().success());
}

#[test]
fn whoever_stops_reading_is_no_failure() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("done", refunds("x".repeat(200_000), 1)).await.unwrap();
            until_terminal(runtime, "done").await;
        });
        for args in [&["--json", "log", "done"][..], &["export", "done"], &["--json", "show", "done"], &["--help"]] {
            let mut child = bench.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{args:?}: {ended:?}");
            assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{args:?}");
        }
    }
}

#[test]
fn texts_of_others_cannot_take_over_a_terminal() {
    let evil = "a\u{1b}[2J\u{202E}b\nc\u{9b}31m";
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start(evil, refunds(evil.into(), 1)).await.unwrap();
            runtime.start("sad", fails(evil.into())).await.unwrap();
            runtime.start("asking", approves(evil.into(), 1)).await.unwrap();
            until_terminal(runtime, evil).await;
            until_terminal(runtime, "sad").await;
            until_state(runtime, "asking", "awaiting answer").await;
        });
        for args in [
            &["runs"][..],
            &["show", evil],
            &["log", evil],
            &["show", "sad"],
            &["log", "sad"],
            &["ask"],
            &["show", "no\u{1b}[2Jbody"],
        ] {
            for extra in [&[][..], &["--color", "always"]] {
                let said = bench.durable(extra.iter().chain(args));
                let plain = anstream::adapter::strip_str(&format!("{}{}", said.out, said.err)).to_string();
                let bad = |c: &char| (c.is_control() && !"\n\t".contains(*c)) || matches!(c, '\u{202A}'..='\u{202E}');
                // What the command's own colours were is gone: nothing else may be left of theirs.
                assert_eq!(plain.chars().find(bad), None, "{args:?}: {plain:?}");
                let raw = format!("{}{}", said.out, said.err);
                assert!(!raw.contains("\u{1b}[2J") && !raw.contains('\u{9b}'), "{args:?}: {raw:?}");
            }
        }
        assert_eq!(bench.durable(["runs"]).ok().out.lines().count(), 3, "an id with a line feed is one row");
        let ids = bench.durable(["--json", "runs"]).ok().lines();
        assert!(ids.iter().any(|line| line["run"] == evil), "a program gets the id as it is");
    }
}

#[test]
fn colours_are_only_for_those_who_see_them() {
    let bench = Bench::new(async |runtime| {
        runtime.start("done", refunds("ORD-1".into(), 1)).await.unwrap();
        until_terminal(runtime, "done").await;
    });
    assert!(!bench.durable(["show", "done"]).ok().out.contains('\x1b'));
    assert!(bench.durable(["--color", "always", "show", "done"]).ok().out.contains('\x1b'));
    let quiet = crate::bench::run(bench.command(["show", "done"]).env("NO_COLOR", "1"));
    assert!(!quiet.ok().out.contains('\x1b'));
    until("the store is free again", || bench.durable(["runs"]).code == Some(0));
}

#[test]
fn a_step_that_is_tried_again_says_what_its_last_attempt_failed_with() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("trying", tries()).await.unwrap();
            until_state(runtime, "trying", "retrying").await;
        });
        bench.shown("trying", |shown| {
            let detail = shown["steps"][0]["detail"].as_str().unwrap_or_default();
            detail.contains("again 2") && detail.contains("as attempt 1 failed: the bank is busy")
        });
    }
}

#[test]
fn children_of_one_workflow_are_told_apart_by_their_arguments() {
    let bench = Bench::new(async |runtime| {
        runtime.start("parent", parents("child".into())).await.unwrap();
        until_state(runtime, "parent", "awaiting child").await;
        until_state(runtime, "child", "awaiting signal").await;
    });
    let child = bench.durable(["--json", "show", "parent"]).ok().json()["children"][0].clone();
    assert_eq!((&child["args"], &child["open"]), (&json!("{}"), &json!(true)));
}

#[test]
fn a_run_that_is_being_cancelled_sends_nobody_to_its_question_but_to_what_holds_it_up() {
    let mut bench = Bench::new(async |runtime| {
        runtime.start("plan", plans()).await.unwrap();
        until_state(runtime, "plan", "awaiting answer").await;
        until_state(runtime, "booking", "awaiting signal").await;
    });
    bench.durable(["cancel", "plan", "stop", "--by", "ann"]).ok();
    let shown = bench.durable(["show", "plan"]).ok().out;
    assert!(!shown.contains("durable answer"), "{shown}");
    for again in [false, true] {
        if again {
            bench.kill();
            until("the store is free", || bench.durable(["runs"]).code == Some(0));
        }
        bench.hold();
        bench.until_state("booking", "held");
        {
            let shown = bench.shown("plan", |shown| shown["state"] == "cancelling");
            assert_eq!(shown["detail"], "asked for by ann: stop");
            let person = bench.durable(["show", "plan"]).ok().out;
            assert!(!person.contains("durable answer"), "{person}");
            assert!(person.contains("next: its child booking is held: durable show booking"), "{person}");
            assert_eq!(bench.durable(["--json", "ask"]).ok().lines(), [json!(null); 0]);
        }
        let row = bench.durable(["--json", "runs", "--status", "cancelling"]).ok().lines();
        assert_eq!(names(&row), ["plan"]);
    }
}
