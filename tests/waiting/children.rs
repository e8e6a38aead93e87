//! Runs that other runs have spawned. O-CH-1.

use std::future::IntoFuture;

use durable::{Code, Filter, Status};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, act, in_time, refused, secs, stubborn};

#[durable::workflow]
async fn child(how: String) -> durable::Result<String> {
    match how.as_str() {
        "fail" => Err(durable::Failure::new("the child has failed")),
        "wait" => Ok(durable::signal("go").await),
        "linger" => durable::shield(async { stubborn("work").await }).await,
        "with a child" => durable::spawn(child("wait".into())).id("grandchild").await.await,
        _ => act(&how).await,
    }
}

#[durable::workflow]
async fn parent(how: String) -> durable::Result<String> {
    let child = durable::spawn(child(how)).await;
    durable::publish("child", &child.id().as_str()).await;
    child.await
}

/// Spawns one under a name.
#[durable::workflow]
async fn names(id: String) -> durable::Result<String> {
    durable::spawn(child("wait".into())).id(&id).await.await
}

/// Ends, and leaves behind what it has spawned.
#[durable::workflow]
async fn leaves(detached: bool) -> durable::Result<String> {
    let spawning = durable::spawn(child("wait".into()));
    let child = if detached { spawning.detached().await } else { spawning.await };
    Ok(child.id().as_str().to_owned())
}

/// Has five children, one of which has a child of its own.
#[durable::workflow]
async fn many() -> durable::Result<Vec<String>> {
    let mut children = Vec::new();
    for how in ["wait", "fail", "done", "linger", "with a child"] {
        children.push(durable::spawn(child(how.into())).id(format!("child: {how}")).await);
    }
    let _ = durable::spawn(child("wait".into())).id("detached").detached().await;
    durable::signal::<()>("never").await;
    let mut out = Vec::new();
    for child in children {
        out.push(child.await.unwrap_or_else(|error| error.to_string()));
    }
    Ok(out)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_childs_result_or_error_is_its_parents() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("well", parent("a thing".into())).await.unwrap();
        assert_eq!(bench.end("well").await, json!({ "Ok": "did a thing" }));
        bench.runtime.start("badly", parent("fail".into())).await.unwrap();
        let end = bench.end("badly").await;
        assert_eq!(end["Err"]["message"], json!("the child has failed"));
        // Both are listed, with who spawned them.
        let runs = bench.runtime.runs(Filter::all().workflow("child")).await.unwrap();
        let of: Vec<_> = runs.iter().map(|run| (run.parent.as_ref().unwrap().as_str(), run.status.as_str())).collect();
        assert_eq!(of, [("badly", "failed"), ("well", "completed")]);
        for run in &runs {
            let id: String =
                bench.run(run.parent.as_ref().unwrap().as_str()).await.published("child").await.unwrap().unwrap();
            assert_eq!(id, run.id.as_str());
            let started = bench.entries(&id, "run.started").await;
            assert_eq!(started[0].get("parent").unwrap()["step"], json!(0));
        }
        assert_eq!(bench.run("well").await.info().await.unwrap().parent, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_waits_for_its_child_is_in_no_memory_and_goes_on_in_the_next_process() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", parent("wait".into())).await.unwrap();
        bench.until_away("run").await;
        let Status::AwaitingChild { runs } = bench.status("run").await else { panic!("it waits for its child") };
        bench.until_away(runs[0].as_str()).await;
        let bench = bench.restarted().await;
        bench.sound().await;
        bench.runtime.signal(&runs[0], "go", "gone").await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "gone" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_somebody_cancels_is_a_fault_for_its_parent() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", names("the child".into())).await.unwrap();
        bench.until("run", "awaiting child").await;
        bench.until("the child", "awaiting signal").await;
        let cancel = bench.runtime.cancel("the child", "not that one").into_future();
        in_time("the cancel", cancel).await.unwrap();
        let end = bench.end("run").await;
        assert!(end["Err"]["message"].as_str().unwrap().contains("not that one"), "{end}");
        assert_eq!(bench.entries("run", "child.result").await[0].get("end"), Some(&json!("cancelled")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_taken_is_a_fault_and_whoever_has_it_is_left_alone() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("taken", child("wait".into())).await.unwrap();
        bench.runtime.start("run", names("taken".into())).await.unwrap();
        let end = bench.end("run").await;
        assert!(end["Err"]["message"].as_str().unwrap().contains("taken"), "{end}");
        assert_eq!(bench.status("run").await.as_str(), "failed");
        assert_eq!(bench.until("taken", "awaiting signal").await.as_str(), "awaiting signal");
        assert_eq!(bench.run("taken").await.info().await.unwrap().parent, None);
        bench.runtime.signal("taken", "go", "mine").await.unwrap();
        assert_eq!(bench.end("taken").await, json!({ "Ok": "mine" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_does_not_outlive_its_parent_unless_it_is_detached() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("attached", leaves(false)).await.unwrap();
        bench.runtime.start("detached", leaves(true)).await.unwrap();
        let id = |end: serde_json::Value| end["Ok"].as_str().unwrap().to_owned();
        let (attached, detached) = (id(bench.end("attached").await), id(bench.end("detached").await));
        let Status::Cancelled { .. } = bench.status(&attached).await else { panic!("its parent has ended") };
        let log = bench.log("attached").await;
        let place = |name: &str| log.iter().position(|entry| entry.name == name).unwrap();
        assert!(place("run.ending") < place("child.result"), "the parent ends after its child");
        assert_eq!(bench.until(&detached, "awaiting signal").await.as_str(), "awaiting signal");
        bench.runtime.signal(&detached, "go", "alone").await.unwrap();
        assert_eq!(bench.end(&detached).await, json!({ "Ok": "alone" }));
        bench.sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cancels_a_parent_cancels_its_children_and_theirs_in_whatever_state() {
    for (backend, restarts) in [(Backend::Memory, false), (Backend::Memory, true), (Backend::Sled, true)] {
        let bench = Bench::built(backend, |builder| builder.cancel_grace(secs(3_600))).await;
        bench.runtime.start("run", many()).await.unwrap();
        bench.until("run", "awaiting signal").await;
        for (id, word) in [
            ("child: wait", "awaiting signal"),
            ("child: fail", "failed"),
            ("child: done", "completed"),
            ("child: linger", "running"),
            ("child: with a child", "awaiting child"),
            ("grandchild", "awaiting signal"),
            ("detached", "awaiting signal"),
        ] {
            bench.until(id, word).await;
        }
        bench.outside.until_done("begin work").await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "all of it").await });
        bench.until("child: linger", "cancelling").await;
        bench.until("grandchild", "cancelled").await;
        assert_eq!(bench.status("run").await.as_str(), "cancelling", "one of its children has not ended");
        let bench = if restarts { bench.restarted().await } else { bench };
        bench.outside.open();
        let end = in_time("an answer", cancel).await.unwrap();
        if restarts {
            refused(end, Code::NotCancelledYet);
        } else {
            assert!(matches!(end.unwrap(), Status::Cancelled { .. }));
        }
        let again = bench.runtime.cancel("run", "all of it").into_future();
        assert!(matches!(in_time("the cancel", again).await.unwrap(), Status::Cancelled { .. }));
        let ends: Vec<_> = bench
            .entries("run", "child.result")
            .await
            .iter()
            .map(|entry| (entry.get("run").unwrap().as_str().unwrap().to_owned(), entry.get("end").unwrap().clone()))
            .collect();
        let end = |of: &str| ends.iter().find(|(run, _)| run == of).map(|(_, end)| end.clone());
        assert_eq!(end("child: wait"), Some(json!("cancelled")));
        assert_eq!(end("child: fail"), Some(json!("failed")));
        assert_eq!(end("child: done"), Some(json!("completed")));
        assert_eq!(end("child: linger"), Some(json!("completed")), "its shield had the last word");
        assert_eq!(
            end("child: with a child"),
            Some(json!("cancelled")),
            "that its own child was cancelled is no error to it"
        );
        assert_eq!(bench.status("grandchild").await.as_str(), "cancelled");
        assert_eq!(bench.until("detached", "awaiting signal").await.as_str(), "awaiting signal");
        bench.sound().await;
    }
}

/// What it gets of its child it publishes.
#[durable::part]
async fn gets(how: &str) -> durable::Result<String> {
    let child = durable::spawn(child("wait".into())).id(format!("child {how}")).await;
    let got = match how {
        "awaited" => child.await,
        "all" => durable::try_join_all([child]).await.map(|mut all| all.remove(0)),
        "before" => durable::shield(async { child.await }).await,
        _ => unreachable!("{how}"),
    };
    durable::publish("heard", &got.as_ref().map_err(ToString::to_string)).await;
    got
}

#[durable::workflow]
async fn hears_of_it(how: String) -> durable::Result<String> {
    match how.as_str() {
        "within" => durable::shield(async { gets("awaited").await }).await,
        how => gets(how).await,
    }
}

/// Cancelled are both; only what a shield encloses goes on, and is told of its child's end as ever.
#[tokio::test(flavor = "multi_thread")]
async fn that_a_child_was_cancelled_with_its_parent_is_no_error_to_the_parents_code() {
    for backend in BOTH {
        for (how, end, heard) in [
            ("awaited", "cancelled", None),
            ("all", "cancelled", None),
            ("before", "cancelled", None),
            ("within", "failed", Some(())),
        ] {
            let bench = Bench::on(backend).await;
            bench.runtime.start("run", hears_of_it(how.into())).await.unwrap();
            bench.until("run", "awaiting child").await;
            let child = if how == "within" { "child awaited".to_owned() } else { format!("child {how}") };
            bench.until(&child, "awaiting signal").await;
            let runtime = bench.runtime.clone();
            let cancel = tokio::spawn(async move { runtime.cancel("run", "enough").await });
            if ["before", "within"].contains(&how) {
                // A shield keeps the child.
                bench.until("run", "cancelling").await;
                bench.runtime.cancel(&child, "that too").await.unwrap();
            }
            let status = in_time("the cancel", cancel).await.unwrap().unwrap();
            assert_eq!(status.as_str(), end, "{how}");
            let told = bench.run("run").await.published::<Result<String, String>>("heard").await.unwrap();
            assert_eq!(told.map(|_| ()), heard, "{how}");
            bench.sound().await;
        }
    }
}

/// Says something to whoever listens, and has two children: one that is given a name, and one that is not.
#[durable::workflow]
async fn family(word: String, named: bool) -> durable::Result<String> {
    durable::send("listener", "word", &word).await;
    let spawning = durable::spawn(child(word));
    if named { spawning.id("heir").await.await } else { spawning.await.await }
}

#[durable::workflow]
async fn hears(words: usize) -> durable::Result<Vec<String>> {
    let mut heard = Vec::new();
    while heard.len() < words {
        heard.push(durable::signal("word").await);
    }
    Ok(heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_id_was_another_ones_has_children_and_messages_of_its_own() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("listener", hears(4)).await.unwrap();
        for word in ["one", "two"] {
            bench.runtime.start("run", family(word.into(), false)).await.unwrap();
            assert_eq!(bench.end("run").await, json!({ "Ok": format!("did {word}") }));
            bench.runtime.remove("run").await.unwrap();
        }
        bench.runtime.start("run", family("three".into(), true)).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "did three" }));
        bench.runtime.remove("run").await.unwrap();
        // The name is its child's of before, which is another run's now.
        bench.runtime.start("run", family("four".into(), true)).await.unwrap();
        let end = bench.end("run").await;
        assert!(end["Err"]["message"].as_str().unwrap().contains("heir"), "{end}");
        assert_eq!(bench.end("listener").await, json!({ "Ok": ["one", "two", "three", "four"] }));
        assert_eq!(bench.runtime.runs(Filter::all().workflow("child")).await.unwrap().len(), 3);
        bench.sound().await;
    }
}

/// Leaves a child behind that goes on without it; or has one of its own, which may be the same by name.
#[durable::workflow]
async fn inherits(how: String) -> durable::Result<String> {
    let spawning = durable::spawn(child("wait".into()));
    match how.as_str() {
        "leaves" => Ok(spawning.detached().await.id().to_string()),
        "leaves an heir" => Ok(spawning.id("heir").detached().await.id().to_string()),
        "drops an heir" => {
            drop(spawning.id("heir").await);
            Ok("dropped".into())
        }
        _ => {
            let child = spawning.await;
            durable::publish("child", &child.id().as_str()).await;
            child.await
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_outlives_a_run_is_nothing_to_the_run_that_has_its_id_next() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", inherits("leaves".into())).await.unwrap();
        let left = bench.end("run").await["Ok"].as_str().unwrap().to_owned();
        bench.runtime.remove("run").await.unwrap();
        bench.runtime.start("run", inherits("has".into())).await.unwrap();
        bench.until("run", "awaiting child").await;
        let own: String = bench.run("run").await.published("child").await.unwrap().unwrap();
        // The end of the one is not the end of the other, nor is the other's lost for it.
        bench.runtime.signal(&left, "go", "of before").await.unwrap();
        assert_eq!(bench.end(&left).await, json!({ "Ok": "of before" }));
        bench.runtime.signal(&own, "go", "of now").await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "of now" }));
        bench.sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_outlives_a_run_is_not_cancelled_by_the_run_that_has_its_id_next() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        for (how, end) in [("leaves an heir", "heir"), ("drops an heir", "dropped")] {
            bench.runtime.start("run", inherits(how.into())).await.unwrap();
            assert_eq!(bench.end("run").await, json!({ "Ok": end }));
            bench.runtime.remove("run").await.unwrap();
        }
        bench.runtime.signal("heir", "go", "gone").await.unwrap();
        assert_eq!(bench.end("heir").await, json!({ "Ok": "gone" }));
        bench.sound().await;
    }
}
