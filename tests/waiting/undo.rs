//! What is undone when a run fails or is cancelled, in what order, and what happens if that fails.

use std::future::IntoFuture;

use durable::{Code, Resolution, Status};
use serde_json::json;

use crate::bench::{BOTH, Bench, act, in_time, refused, revert, secs, until};

/// Does three things, each registered to be undone before it is done.
#[durable::workflow]
async fn saga(how: String) -> durable::Result<String> {
    for what in ["flight", "hotel", "car"] {
        durable::undo(revert(what)).await;
        act(what).await?;
    }
    match how.as_str() {
        "fail" => Err(durable::Failure::new("no visa")),
        "wait" => Ok(durable::signal("go").await),
        _ => Ok("booked".into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_or_cancelled_run_has_done_is_undone_the_last_first() {
    for backend in BOTH {
        for how in ["fail", "wait", "book"] {
            let bench = Bench::forgetful(backend).await;
            bench.runtime.start("run", saga(how.into())).await.unwrap();
            if how == "wait" {
                bench.until_away("run").await;
                let cancel = bench.runtime.cancel("run", "no leave").into_future();
                assert_eq!(
                    in_time("the cancel", cancel).await.unwrap(),
                    Status::Cancelled { reason: "no leave".into() }
                );
            } else {
                bench.until("run", if how == "fail" { "failed" } else { "completed" }).await;
            }
            let done = ["flight", "hotel", "car"];
            let undone = ["undo car", "undo hotel", "undo flight"];
            match how {
                "book" => assert_eq!(bench.outside.done(), done),
                _ => assert_eq!(bench.outside.done(), [done, undone].concat()),
            }
            // The log says what was called, and with the keys that the providers have seen.
            let calls = bench.entries("run", "effect.called").await;
            let undoing: Vec<_> = calls.iter().filter(|call| call.get("undo").is_some()).collect();
            assert_eq!(undoing.len(), if how == "book" { 0 } else { 3 });
            if let Some(first) = undoing.first() {
                assert_eq!(
                    (first.path.as_deref(), first.get("effect"), first.get("key"), first.get("contract")),
                    (Some("undo[2]"), Some(&json!("revert")), Some(&json!("car:revert")), Some(&json!("key")))
                );
                assert_eq!(first.get("args"), Some(&json!({ "what": "car" })));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_undone_is_held_for_a_person_and_the_rest_waits() {
    for backend in BOTH {
        for (how, way) in [("fail", "again"), ("wait", "done"), ("fail", "give up")] {
            let bench = Bench::forgetful(backend).await;
            bench.outside.breaks("hotel", true);
            bench.runtime.start("run", saga(how.into())).await.unwrap();
            let mut cancel = None;
            if how == "wait" {
                bench.until_away("run").await;
                let runtime = bench.runtime.clone();
                cancel = Some(tokio::spawn(async move { runtime.cancel("run", "no leave").await }));
            }
            let status = bench.until("run", "held").await;
            assert!(status.next_action().unwrap().contains("resolve"));
            let held = async |bench: &Bench| {
                let hold = bench.runtime.holds().await.unwrap().remove(0);
                assert_eq!(
                    (&*hold.path, &*hold.effect, &*hold.key, &hold.args),
                    ("undo[1]", "revert", "hotel:revert", &json!({ "what": "hotel" }))
                );
                assert!(hold.reason.contains("cannot be undone now"), "{}", hold.reason);
                hold
            };
            let hold = held(&bench).await;
            assert_eq!(status, Status::Held { steps: vec![hold.step] });
            assert_eq!(bench.outside.count("undo flight"), 0);
            // In no memory, and in the next process, it is held as before.
            bench.until_away("run").await;
            assert_eq!(held(&bench).await.step, hold.step);
            assert_eq!(bench.status("run").await, status);
            bench.sound().await;
            let bench = bench.restarted().await;
            assert_eq!(held(&bench).await.attempt, hold.attempt);
            let resolution = match way {
                "again" => {
                    bench.outside.breaks("hotel", false);
                    Resolution::run_again()
                }
                // Nobody reads what it returned, so nobody minds the type.
                "done" => Resolution::succeeded(json!({ "by": "phone" })),
                _ => Resolution::failed("it is lost"),
            };
            bench.runtime.resolve("run", hold.step, hold.attempt, resolution.by("ann")).await.unwrap();
            let end = bench.until("run", if how == "fail" { "failed" } else { "cancelled" }).await;
            assert!(end.is_terminal());
            assert_eq!(bench.outside.count("undo hotel"), usize::from(way == "again"));
            assert_eq!(bench.outside.done().last().map(String::as_str), Some("undo flight"));
            let resolved = bench.entries("run", "effect.resolved").await;
            assert_eq!((resolved.len(), resolved[0].get("by")), (1, Some(&json!("ann"))));
            let late = bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::run_again()).await;
            refused(late, Code::NotInDoubt);
            if let Some(cancel) = cancel {
                refused(in_time("an answer", cancel).await.unwrap(), Code::NotCancelledYet);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_undone_before_a_request_of_unknown_outcome_has_settled() {
    for backend in BOTH {
        let bench = Bench::built(backend, |builder| builder.settle(secs(90)).cancel_grace(secs(10))).await;
        bench.runtime.start("run", hangs()).await.unwrap();
        bench.outside.until_done("begin work").await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "too slow").await });
        assert_eq!(bench.until("run", "cancelling").await, Status::Cancelling { settling_until: None });
        // Its body had ten seconds more.
        bench.clock.advance(secs(10));
        until("the doubt", async || bench.names("run").await.contains(&"effect.in_doubt")).await;
        let until_when = bench.now() + secs(90);
        until("it to settle", async || {
            bench.status("run").await == Status::Cancelling { settling_until: Some(until_when) }
        })
        .await;
        bench.clock.advance(secs(89));
        assert_eq!(bench.status("run").await.as_str(), "cancelling");
        assert_eq!(bench.outside.count("undo work"), 0);
        bench.clock.advance(secs(1));
        assert!(matches!(in_time("the cancel", cancel).await.unwrap().unwrap(), Status::Cancelled { .. }));
        assert_eq!(bench.outside.count("undo work"), 1);
        bench.outside.open();
    }
}

#[durable::workflow]
async fn hangs() -> durable::Result<String> {
    durable::undo(revert("work")).await;
    crate::bench::stubborn("work").await
}
