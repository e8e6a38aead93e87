//! A store whose runs go on in no process: what can be seen of it, and what can be left for it.

use std::time::Duration;

use durable::{Answered, Code, Filter, Reply, Resolution, Resolved, Runtime, Status, StatusKind};
use serde_json::json;

use crate::bench::{Backend, Bench, act, doubtful, refused, revert, secs, stubborn};

#[durable::workflow]
async fn stands(how: String) -> durable::Result<String> {
    durable::publish("how", &how).await;
    match how.as_str() {
        "signal" => Ok(durable::signal("go").await),
        "sleep" => {
            durable::sleep(secs(3_600)).await;
            Ok("slept".into())
        }
        "question" => Ok(durable::ask::<String>("go?").await.granted().unwrap_or_default()),
        "hold" => Ok(format!("wired {}", doubtful("wire").await?)),
        "busy" => stubborn("work").await,
        "child" => durable::spawn(stands("signal".into())).id("the child").await.await,
        "undo" => {
            durable::undo(revert("it")).await;
            Err(durable::Failure::new("to be undone"))
        }
        "fail" => Err(durable::Failure::new("no luck")),
        _ => act("it").await,
    }
}

const HOWS: [&str; 9] = ["signal", "sleep", "question", "hold", "busy", "child", "undo", "fail", "done"];

async fn populated() -> Bench {
    let bench = Bench::on(Backend::Sled).await;
    bench.outside.breaks("it", true);
    for how in HOWS {
        bench.runtime.start(how, stands(how.into())).await.unwrap();
    }
    for (id, word) in [
        ("signal", "awaiting signal"),
        ("sleep", "sleeping"),
        ("question", "awaiting answer"),
        ("hold", "held"),
        ("busy", "running"),
        ("child", "awaiting child"),
        ("the child", "awaiting signal"),
        ("undo", "held"),
        ("fail", "failed"),
        ("done", "completed"),
    ] {
        bench.until(id, word).await;
    }
    bench.outside.until_done("begin work").await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_a_process_shows_all_its_runs_and_none_as_running() {
    let bench = populated().await;
    let bench = bench
        .observed(async |observer| {
            let runs = observer.runs(Filter::all()).await.unwrap();
            let seen: Vec<_> = runs.iter().map(|run| (run.id.as_str(), run.status.as_str())).collect();
            let want = [
                ("busy", "interrupted"),
                ("child", "awaiting child"),
                ("done", "completed"),
                ("fail", "failed"),
                ("hold", "held"),
                ("question", "awaiting answer"),
                ("signal", "awaiting signal"),
                ("sleep", "sleeping"),
                ("the child", "awaiting signal"),
                ("undo", "held"),
            ];
            assert_eq!(seen, want);
            assert!(runs[0].status.next_action().unwrap().contains("open the store"));
            let interrupted = Filter::all().status(StatusKind::Interrupted);
            assert_eq!(observer.runs(interrupted).await.unwrap().len(), 1);
            let finished = Filter::unfinished().status(StatusKind::Completed);
            assert!(observer.runs(finished).await.unwrap().is_empty());
            let holds = observer.holds().await.unwrap();
            let held: Vec<_> = holds.iter().map(|hold| (hold.run.as_str(), &*hold.path, &*hold.key)).collect();
            assert_eq!((held[0].0, held[0].1), ("hold", "doubtful[0]"));
            assert_eq!(held[1], ("undo", "undo[0]", "it:revert"));
            assert_eq!(observer.questions().await.unwrap()[0].token, "question:0:ask@0");
            // Logs, steps, what was published, and results are there.
            let run = observer.run("busy").await.unwrap();
            assert_eq!(run.log().await.unwrap().len(), 3);
            assert_eq!(run.steps().await.unwrap()[1].what, "stubborn");
            assert_eq!(run.published::<String>("how").await.unwrap().unwrap(), "busy");
            refused(run.returned_as::<serde_json::Value>().await, Code::Observing);
            let done = observer.run("done").await.unwrap();
            assert_eq!(done.returned_as::<serde_json::Value>().await.unwrap(), json!({ "Ok": "did it" }));
            assert!(observer.bodies().is_empty());
            refused(observer.retry("busy").await, Code::NotParked);
        })
        .await;
    bench.outside.open();
    assert_eq!(bench.end("busy").await, json!({ "Ok": "did work" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_for_a_run_without_a_process_is_taken_by_the_next_one() {
    let bench = populated().await;
    let bench = bench
        .observed(async |observer| {
            observer.signal("signal", "go", "gone").id("1").await.unwrap();
            observer.signal("signal", "go", "gone").id("1").await.unwrap();
            observer.signal("the child", "go", "gone too").await.unwrap();
            assert_eq!(observer.run("signal").await.unwrap().messages().await.unwrap().len(), 1);
            let answer = observer.answer("question:0:ask@0", Reply::granted("granted")).await.unwrap();
            assert_eq!(answer, Answered::Kept);
            refused(observer.cancel("sleep", "enough").await, Code::NotCancelledYet);
            for hold in observer.holds().await.unwrap() {
                let resolution = Resolution::succeeded(9).by("ann");
                for _ in 0..2 {
                    let resolved = observer.resolve(&hold.run, hold.step, hold.attempt, resolution.clone()).await;
                    assert_eq!(resolved.unwrap(), Resolved::Kept);
                }
            }
            // One that is started here is started, and goes on there.
            observer.start("new", stands("done".into())).await.unwrap();
            assert_eq!(observer.run("new").await.unwrap().status().await.unwrap(), Status::Interrupted);
            assert!(observer.audit().await.unwrap().is_empty());
        })
        .await;
    for (id, end) in [
        ("signal", json!({ "Ok": "gone" })),
        ("child", json!({ "Ok": "gone too" })),
        ("question", json!({ "Ok": "granted" })),
        ("hold", json!({ "Ok": "wired 9" })),
        ("new", json!({ "Ok": "did it" })),
    ] {
        assert_eq!(bench.end(id).await, end, "{id}");
    }
    bench.until("sleep", "cancelled").await;
    assert_eq!(bench.entries("hold", "resolution.set_aside").await.len(), 0, "the same word twice is one");
    bench.until("undo", "failed").await;
    assert_eq!(bench.outside.count("undo it"), 0, "somebody said that it was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_without_a_store_is_not_made_one() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    assert!(Runtime::builder().observe(&nowhere).await.is_err());
    assert!(!nowhere.exists());
    // One that a process holds is not looked at past it.
    let place = dir.path().join("store");
    let runtime = Runtime::builder().open(&place).await;
    let Err(missing) = runtime else { panic!("its effects need something") };
    assert_eq!(missing.code(), Code::MissingResources);
    let outside = crate::bench::Outside::default();
    let runtime = Runtime::builder().resource(outside).control(false).open(&place).await.unwrap();
    refused(Runtime::builder().observe(&place).await, Code::StoreInUse);
    runtime.shutdown(Duration::ZERO).await.unwrap();
    Runtime::builder().observe(&place).await.unwrap().shutdown(Duration::ZERO).await.unwrap();
}
