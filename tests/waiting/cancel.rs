//! Cancelling: O-CN-1 to O-CN-3, wherever the run stands.

use std::{
    future::IntoFuture,
    sync::atomic::{AtomicBool, Ordering},
};

use durable::{Code, Question, Reply, Status, StatusKind};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, act, in_time, refused, revert, secs, stubborn, until, yielding};

fn cancelled(reason: &str) -> Status {
    Status::Cancelled { reason: reason.into() }
}

#[durable::workflow]
async fn sleeps() -> durable::Result<()> {
    act("before").await?;
    durable::sleep(secs(86_400)).await;
    act("after").await?;
    Ok(())
}

#[durable::workflow]
async fn works(how: String) -> durable::Result<String> {
    match how.as_str() {
        "stubborn" => stubborn("work").await,
        _ => yielding("work").await,
    }
}

/// Works until it is cancelled, and cleans up whatever happens.
#[durable::workflow]
async fn cleans_up() -> durable::Result<String> {
    durable::shield(async {
        let out = durable::race((async { stubborn("work").await }, async {
            durable::cancelled().await;
            Ok("cancelled".to_owned())
        }))
        .await?;
        durable::sleep(secs(10)).await;
        act("clean up").await?;
        Ok::<_, durable::Failure>(out)
    })
    .await
}

/// Asks a person although it is cancelled.
#[durable::workflow]
async fn asks_on() -> durable::Result<bool> {
    durable::shield(async {
        durable::cancelled().await;
        durable::ask::<()>(Question::new("keep the half of it?")).await.is_granted()
    })
    .await;
    act("never").await?;
    Ok(true)
}

#[durable::workflow]
async fn brief(fail: bool) -> durable::Result<u64> {
    if fail { Err(durable::Failure::new("no luck")) } else { Ok(1) }
}

static PANICS: AtomicBool = AtomicBool::new(false);

#[durable::workflow]
async fn panics() -> durable::Result<()> {
    act("before the panic").await?;
    assert!(!durable::untracked(|| PANICS.load(Ordering::SeqCst)), "out of cheese");
    durable::sleep(secs(60)).await;
    Ok(())
}

#[durable::workflow]
async fn only_when_cancelled() -> durable::Result<()> {
    durable::shield(async {
        durable::cancelled().await;
        act("it was cancelled").await
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_sleeps_is_cancelled_at_once_and_stays_so() {
    for (backend, away) in [(Backend::Memory, false), (Backend::Memory, true), (Backend::Sled, true)] {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", sleeps()).await.unwrap();
        bench.until("run", "sleeping").await;
        bench.clock.advance(secs(60));
        if away {
            bench.until_away("run").await;
        }
        let cancel = bench.runtime.cancel("run", "not needed").by("ann").into_future();
        assert_eq!(in_time("the cancel", cancel).await.unwrap(), cancelled("not needed"));
        let log = bench.log("run").await;
        let requested = log.iter().find(|entry| entry.name == "run.cancel_requested").unwrap();
        assert_eq!((requested.get("reason"), requested.get("by")), (Some(&json!("not needed")), Some(&json!("ann"))));
        // Again: the same answer, and nothing more in the log.
        assert_eq!(bench.runtime.cancel("run", "again").await.unwrap(), cancelled("not needed"));
        let bench = bench.restarted_built(secs(2 * 86_400), |builder| builder).await;
        assert_eq!(bench.status("run").await, cancelled("not needed"));
        assert_eq!(bench.runtime.cancel("run", "again").await.unwrap(), cancelled("not needed"));
        assert_eq!(bench.log("run").await.len(), log.len());
        let output = refused(bench.run("run").await.returned_as::<serde_json::Value>().await, Code::RunCancelled);
        assert!(output.is_run_cancelled() && output.to_string().contains("by ann: not needed"), "{output}");
        assert_eq!(bench.outside.done(), ["before"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_flight_comes_to_its_end_before_the_run_does() {
    for backend in BOTH {
        for how in ["stubborn", "yielding"] {
            let bench = Bench::on(backend).await;
            bench.runtime.start("run", works(how.into())).await.unwrap();
            bench.outside.until_done("begin work").await;
            let runtime = bench.runtime.clone();
            let cancel = tokio::spawn(async move { runtime.cancel("run", "stop").await });
            if how == "stubborn" {
                assert_eq!(bench.until("run", "cancelling").await, Status::Cancelling { settling_until: None });
                assert_eq!(bench.status("run").await.next_action(), None);
                bench.outside.open();
            }
            // Its outcome was delivered, and the code returned it before it could be dropped.
            assert_eq!(in_time("the cancel", cancel).await.unwrap().unwrap(), Status::Completed);
            let result = bench.entries("run", "effect.result").await;
            let end = if how == "stubborn" { "did work" } else { "stopped work" };
            assert_eq!(result[0].get("value"), Some(&json!({ "Ok": end })));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shield_encloses_goes_on_and_the_cleanup_runs_once() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", cleans_up()).await.unwrap();
        bench.outside.until_done("begin work").await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "stop").await });
        until("the cleanup to begin", async || bench.names("run").await.contains(&"timer.set")).await;
        assert_eq!(bench.status("run").await.as_str(), "cancelling");
        let bench = bench.restarted().await;
        refused(in_time("an answer", cancel).await.unwrap(), Code::NotCancelledYet);
        bench.until("run", "cancelling").await;
        bench.clock.advance(secs(10));
        bench.outside.until_done("clean up").await;
        bench.outside.open();
        let again = bench.runtime.cancel("run", "stop").into_future();
        assert_eq!(in_time("the cancel", again).await.unwrap(), Status::Completed, "the code returned by itself");
        assert_eq!(bench.outside.count("clean up"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_under_a_shield_is_open_while_its_run_is_cancelled() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", asks_on()).await.unwrap();
        bench.until("run", "awaiting cancel").await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "stop").await });
        let token = bench.token("run").await;
        bench.until_away("run").await;
        assert_eq!(bench.status("run").await, Status::AwaitingAnswer { tokens: vec![token.clone()] });
        assert_eq!(bench.token("run").await, token, "whether or not the run is in memory");
        bench.runtime.answer(&token, Reply::granted(&())).await.unwrap();
        assert_eq!(in_time("the cancel", cancel).await.unwrap().unwrap(), cancelled("stop"));
        assert_eq!(bench.outside.done(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_ended_is_answered_for_at_once() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("completed", brief(false)).await.unwrap();
        bench.runtime.start("failed", brief(true)).await.unwrap();
        bench.until("completed", "completed").await;
        bench.until("failed", "failed").await;
        assert_eq!(bench.runtime.cancel("completed", "late").await.unwrap(), Status::Completed);
        assert_eq!(bench.runtime.cancel("failed", "late").await.unwrap(), Status::Failed { message: "no luck".into() });
        assert!(!bench.names("completed").await.contains(&"run.cancel_requested"));
        refused(bench.runtime.cancel("nobody", "late").await, Code::RunNotFound);
        refused(bench.runtime.cancel("", "late").await, Code::InvalidRunId);
    }
}

/// O-CN-3.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_races_the_end_says_which_of_the_two_happened() {
    let bench = Bench::on(Backend::Memory).await;
    let mut ends = [0; 2];
    for n in 0..300 {
        let id = format!("run {n}");
        let run = bench.runtime.start(&id, brief(false)).await.unwrap();
        for _ in 0..n % 7 {
            tokio::task::yield_now().await;
        }
        let answer = in_time("the cancel", run.cancel("stop").into_future()).await.unwrap();
        assert_eq!(run.status().await.unwrap(), answer);
        match answer {
            Status::Completed => {
                ends[0] += 1;
                assert_eq!(run.output().await.unwrap(), 1);
            }
            Status::Cancelled { .. } => {
                ends[1] += 1;
                refused(run.output().await, Code::RunCancelled);
            }
            other => panic!("{other:?}"),
        }
        let ended = bench.names(&id).await.into_iter().filter(|name| ["run.completed", "run.cancelled"].contains(name));
        assert_eq!(ended.count(), 1);
    }
    assert_eq!(ends[0] + ends[1], 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_run_is_cancelled_without_its_code() {
    for backend in BOTH {
        PANICS.store(true, Ordering::SeqCst);
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", panics()).await.unwrap();
        bench.until("run", "parked").await;
        let cancel = bench.runtime.cancel("run", "give up").by("bob").into_future();
        assert_eq!(in_time("the cancel", cancel).await.unwrap(), cancelled("give up"));
        let names = bench.names("run").await;
        assert_eq!(names.last(), Some(&"run.cancelled"));
        assert!(!names.contains(&"run.cancel_requested"), "the code might still have had commands there: {names:?}");
        assert_eq!(bench.outside.done(), ["before the panic"]);
        PANICS.store(false, Ordering::SeqCst);
        let bench = bench.restarted().await;
        assert_eq!(bench.status("run").await, cancelled("give up"));
    }
}

static SHIELD_PANICS: AtomicBool = AtomicBool::new(false);

#[durable::workflow]
async fn panics_in_its_shield() -> durable::Result<()> {
    durable::shield(async {
        durable::cancelled().await;
        assert!(!durable::untracked(|| SHIELD_PANICS.load(Ordering::SeqCst)), "out of cheese");
        act("in the shield").await
    })
    .await?;
    act("never").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_answered_that_was_taken_by_code_that_is_parked_in_its_shield() {
    for (backend, mended) in BOTH.into_iter().flat_map(|backend| [(backend, false), (backend, true)]) {
        SHIELD_PANICS.store(true, Ordering::SeqCst);
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", panics_in_its_shield()).await.unwrap();
        bench.until("run", "awaiting cancel").await;
        let cancel = || bench.runtime.cancel("run", "give up").into_future();
        let error = refused(in_time("the cancel", cancel()).await, Code::NotCancelledYet);
        assert!(error.to_string().contains("out of cheese"), "{error}");
        SHIELD_PANICS.store(false, Ordering::SeqCst);
        if mended {
            bench.runtime.retry("run").await.unwrap();
            assert_eq!(bench.until("run", "cancelled").await, cancelled("give up"));
            assert_eq!(bench.outside.done(), ["in the shield"]);
        } else {
            // Whoever asks again has it ended without its code.
            assert_eq!(in_time("the cancel", cancel()).await.unwrap(), cancelled("give up"));
            assert!(bench.outside.done().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_nothing_but_a_cancel_says_so_and_hears_of_it() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", only_when_cancelled()).await.unwrap();
        let status = bench.until("run", "awaiting cancel").await;
        assert!(status.next_action().unwrap().contains("cancel"));
        bench.sound().await;
        let bench = bench.restarted().await;
        bench.until("run", "awaiting cancel").await;
        let cancel = bench.runtime.cancel("run", "now").into_future();
        in_time("the cancel", cancel).await.unwrap();
        assert_eq!(bench.outside.done(), ["it was cancelled"]);
    }
}

#[durable::workflow]
async fn books() -> durable::Result<u64> {
    durable::undo(revert("desk")).await;
    act("desk").await?;
    Ok(durable::signal("confirm").await)
}

/// Asks, and has a child.
#[durable::workflow]
async fn plans() -> durable::Result<u64> {
    let child = durable::spawn(books()).id("booking").await;
    let granted = durable::ask::<u64>("spend it?").await.granted().unwrap_or_default();
    Ok(granted + child.await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_child_is_held_while_both_are_cancelled_awaits_no_answer() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.outside.breaks("desk", true);
        bench.runtime.start("run", plans()).await.unwrap();
        bench.outside.until_done("desk").await;
        let token = bench.token("run").await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "stop").await });
        bench.until("booking", "held").await;
        for _ in 0..3 {
            bench.until_away("run").await;
            assert_eq!(bench.status("run").await, Status::Cancelling { settling_until: None });
            bench.until_away("run").await;
            let listed =
                bench.runtime.runs(durable::Filter::unfinished().status(StatusKind::Cancelling)).await.unwrap();
            assert_eq!(listed.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["run"]);
        }
        refused(bench.runtime.answer(&token, Reply::granted(&5)).await, Code::QuestionClosed);
        bench.outside.breaks("desk", false);
        let hold = bench.runtime.holds().await.unwrap().remove(0);
        bench.runtime.resolve(&hold.run, hold.step, hold.attempt, durable::Resolution::run_again()).await.unwrap();
        assert_eq!(in_time("the cancel", cancel).await.unwrap().unwrap(), cancelled("stop"));
    }
}
