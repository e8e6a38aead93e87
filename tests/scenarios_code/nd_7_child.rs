//! O-ND-7: an early return with branches still open, a child among them.

use durable::{EffectContext, Status};
use serde_json::json;

use crate::{
    nd_7::send,
    support::{BOTH, Backend, Bench, World, end_of, replays, until},
};

#[durable::effect(idempotent)]
async fn child_work(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.note(cx, what);
    world.pass(what).await;
    Ok(what.to_owned())
}

#[durable::workflow]
async fn child(what: String) -> durable::Result<String> {
    child_work(&what).await?;
    Ok(durable::signal("never").await)
}

/// Three calls and a child at once, and back as soon as the first call is through, or has failed.
#[durable::workflow]
async fn leaves(way: String) -> durable::Result<String> {
    let quick = if way.starts_with("err") { "no e1" } else { "e1" };
    match way.as_str() {
        "race" => {
            let child = durable::spawn(child("in a race".into())).await;
            durable::race((send(quick), send("e2"), send("e3"), async { child.await })).await
        }
        "err try_join" => {
            let child = durable::spawn(child("in a try_join".into())).await;
            let all = durable::try_join((send(quick), send("e2"), send("e3"), async { child.await })).await?;
            Ok(all.0)
        }
        "in a variable" | "err in a variable" => {
            let _child = durable::spawn(child("in a variable".into())).await;
            let _stuck = durable::begin(send("e2")).await;
            let quick = send(quick).await?;
            Ok(quick)
        }
        "detached" => {
            let _child = durable::spawn(child("detached".into())).detached().await;
            let quick = send(quick).await?;
            Ok(quick)
        }
        _ => unreachable!("no such way"),
    }
}

const WAYS: [&str; 5] = ["race", "err try_join", "in a variable", "err in a variable", "detached"];

/// The one child.
async fn child_of(bench: &Bench) -> String {
    let mut found = None;
    until("the child to wait", async || {
        let runs = bench.runtime.runs(durable::Filter::all().workflow("child")).await.unwrap();
        found = runs.into_iter().next();
        found.as_ref().is_some_and(|child| child.status.as_str() == "awaiting signal")
    })
    .await;
    found.unwrap().id.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_cancels_the_child_that_is_open_and_ends_after_it() {
    for backend in BOTH {
        for way in WAYS {
            let bench = Bench::on(backend).await;
            for gate in ["e1", "no e1", "e2", "e3"] {
                bench.world.close(gate);
            }
            let run = bench.runtime.start("leaves", leaves(way.into())).await.unwrap();
            let child = child_of(&bench).await;
            bench.world.open("e1");
            bench.world.open("no e1");
            if way == "detached" {
                assert_eq!(run.output().await.unwrap(), "e1");
                assert_eq!(bench.status(&child).await.as_str(), "awaiting signal", "nobody's any more, it goes on");
                bench.replays("leaves").await;
                bench.stands(&child).await;
                continue;
            }
            // Told in the batch that says so, the child ends while bodies that nobody can take back still run.
            bench.until_status(&child, "cancelled", |status| matches!(status, Status::Cancelled { .. })).await;
            bench.until_status("leaves", "ending", |status| *status == Status::Ending).await;
            let log = bench.log("leaves").await;
            let closed: Vec<u32> = log.iter().filter(|e| e.name == "step.closed").map(|e| e.step.unwrap().0).collect();
            assert!(closed.is_sorted() || closed.iter().rev().is_sorted(), "{way}: closed {closed:?}");
            let spawned = log.iter().find(|entry| entry.name == "child.spawned").unwrap().step.unwrap();
            assert!(closed.contains(&spawned.0), "{way}: {closed:?}");
            bench.world.open("e2");
            bench.world.open("e3");
            assert_eq!(run.returned().await.unwrap().is_err(), way.starts_with("err"), "{way}");
            let log = bench.log("leaves").await;
            let result = log.iter().find(|entry| entry.name == "child.result").unwrap();
            assert_eq!(
                (result.get("end"), result.get("run")),
                (Some(&json!("cancelled")), Some(&json!(child))),
                "{way}"
            );
            assert_eq!(bench.world.inputs("send").iter().filter(|what| what.ends_with("e1")).count(), 1, "{way}");
            bench.replays("leaves").await;
            bench.replays(&child).await;
            if backend == Backend::Memory {
                end_is_reached_again(&bench, way).await;
            }
        }
    }
}

/// K5: from the end of the code on, the same end is reached, no body is repeated, and the child is not started again.
async fn end_is_reached_again(bench: &Bench, way: &str) {
    let (tape, log) = (bench.tape_of_all("leaves"), bench.log("leaves").await);
    let ending = log.iter().position(|entry| entry.name == "run.ending").unwrap();
    for cut in ending..tape.frames.len() {
        let next = Bench::after(&tape, cut, &bench.clock).await;
        next.end("leaves").await.unwrap();
        assert_eq!(end_of(&next.log("leaves").await), end_of(&log), "{way} at {cut}");
        assert!(next.world.ledger().is_empty(), "{way} at {cut}: {:?}", next.world.ledger());
        assert_eq!(next.runtime.runs(durable::Filter::all()).await.unwrap().len(), 2, "{way} at {cut}");
        replays(&next.tape("leaves"), &bench.clock, 2).await.unwrap();
    }
}
