//! Runs that go on in a fresh log: what is carried over.

use std::future::IntoFuture;

use durable::{Code, Reply, Status};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, in_time, refused, revert, until};

/// Takes one word in each life, and registers something to be undone.
#[durable::workflow]
async fn lives(life: u32, words: Vec<String>) -> durable::Result<Vec<String>> {
    durable::undo(revert(&format!("life {life}"))).await;
    let mut words = words;
    words.push(durable::signal("word").await);
    durable::publish("life", &life).await;
    if life < 2 {
        return durable::restart_as(lives(life + 1, words)).await;
    }
    let go_on = durable::ask::<()>("go on?").await;
    if go_on.is_granted() { Ok(words) } else { Err(durable::Failure::new("stop")) }
}

#[durable::workflow]
async fn for_ever(n: u64) -> durable::Result<u64> {
    match durable::signal::<u64>("n").await {
        0 => Ok(n),
        more => durable::restart_as(for_ever(n + more)).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_mail_and_what_is_to_be_undone_go_along_into_the_fresh_log() {
    for backend in BOTH {
        for ends in ["refused", "cancelled", "granted"] {
            let bench = Bench::forgetful(backend).await;
            let run = bench.runtime.start("run", lives(0, Vec::new())).await.unwrap();
            for (id, word) in [("1", "one"), ("2", "two"), ("3", "three"), ("2", "two")] {
                run.signal("word", word).id(id).await.unwrap();
            }
            let token = bench.token("run").await;
            assert_eq!(token, "run:2:ask@0");
            // The ids of what earlier logs have taken are known still.
            run.signal("word", "one").id("1").await.unwrap();
            assert!(run.messages().await.unwrap().is_empty());
            let bench = bench.restarted().await;
            let run = bench.run("run").await;
            assert_eq!(run.generations().await.unwrap(), 3);
            let undone = ["undo life 2", "undo life 1", "undo life 0"];
            match ends {
                "granted" => {
                    bench.runtime.answer(&token, Reply::granted(&())).await.unwrap();
                    assert_eq!(bench.end("run").await, json!({ "Ok": ["one", "two", "three"] }));
                    assert_eq!(bench.outside.done(), [""; 0]);
                }
                "refused" => {
                    bench.runtime.answer(&token, Reply::refused("no")).await.unwrap();
                    bench.until("run", "failed").await;
                    assert_eq!(bench.outside.done(), undone);
                }
                _ => {
                    in_time("the cancel", run.cancel("stop").into_future()).await.unwrap();
                    assert_eq!(bench.outside.done(), undone);
                }
            }
            // Each log is there to be read; the run is one.
            for log in 0..2 {
                let log = run.log_of(log).await.unwrap();
                assert_eq!((log[0].name, log.last().unwrap().name), ("run.started", "run.restarted"));
            }
            let last = run.log().await.unwrap();
            assert_eq!((last[0].get("undos"), last.len()), (Some(&json!(2)), run.log_of(2).await.unwrap().len()));
            let none = refused(run.log_of(3).await, Code::LogNotFound);
            assert!(none.to_string().contains("no log 3"), "{none}");
            assert_eq!(run.info().await.unwrap().started_at, std::time::UNIX_EPOCH + crate::bench::BEGINNING);
            assert_eq!(run.published::<u32>("life").await.unwrap(), Some(2));
            refused(bench.runtime.answer("run:0:ask@0", Reply::refused("")).await, Code::QuestionNotFound);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_run_waits_over_all_its_logs() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("run", for_ever(0)).await.unwrap();
        let waiting = tokio::spawn(async move { run.output().await });
        for n in 1..=20u64 {
            bench.runtime.signal("run", "n", &n).await.unwrap();
        }
        bench.runtime.signal("run", "n", &0).await.unwrap();
        assert_eq!(in_time("the run", waiting).await.unwrap().unwrap(), 210);
        assert_eq!(bench.run("run").await.generations().await.unwrap(), 21);
        // The same start is the same run, whatever it goes on with.
        let run = bench.runtime.start("run", for_ever(0)).await.unwrap();
        assert_eq!(run.output().await.unwrap(), 210);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_goes_on_in_a_fresh_log_is_one_child() {
    for backend in [Backend::Memory, Backend::Sled] {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("parent", waits_for_ever()).await.unwrap();
        bench.until("ever", "awaiting signal").await;
        bench.runtime.signal("ever", "n", &5).await.unwrap();
        until("the next log", async || bench.run("ever").await.generations().await.unwrap() == 2).await;
        bench.until("ever", "awaiting signal").await;
        let info = bench.run("ever").await.info().await.unwrap();
        assert_eq!(info.parent.unwrap().as_str(), "parent");
        assert!(matches!(bench.status("parent").await, Status::AwaitingChild { .. }));
        bench.runtime.signal("ever", "n", &0).await.unwrap();
        assert_eq!(bench.end("parent").await, json!({ "Ok": 5 }));
        assert_eq!(bench.entries("parent", "child.result").await.len(), 1);
    }
}

#[durable::workflow]
async fn waits_for_ever() -> durable::Result<u64> {
    durable::spawn(for_ever(0)).id("ever").await.await
}

/// Goes on in a fresh log at once, each time, and leaves a child behind that must end first.
#[durable::workflow]
async fn spins(n: u64) -> durable::Result<u64> {
    durable::undo(revert(&format!("log {n}"))).await;
    let _child = durable::spawn(waits_for_ever()).await;
    durable::restart_as(spins(n + 1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_comes_through_to_code_that_goes_on_in_a_fresh_log_each_time_before_it_waits() {
    for backend in BOTH {
        for restarts in [false, true] {
            let bench = Bench::forgetful(backend).await;
            bench.runtime.start("run", spins(0)).await.unwrap();
            until("a third log", async || bench.run("run").await.generations().await.unwrap() > 2).await;
            let bench = if restarts { bench.restarted().await } else { bench };
            let cancel = bench.runtime.cancel("run", "enough").into_future();
            let end = in_time("the cancel", cancel).await.unwrap();
            assert_eq!(end, Status::Cancelled { reason: "enough".into() });
            let logs = bench.run("run").await.generations().await.unwrap();
            let undone: Vec<_> = (0..logs).rev().map(|n| format!("undo log {n}")).collect();
            assert_eq!(bench.outside.done(), undone);
            bench.sound().await;
        }
    }
}
