//! What needs somebody is said where the program's own warnings go.

use durable::{Code, EffectContext, Resolution};
use serde_json::json;

use crate::{
    bench::{Backend, Bench, Outside, once, refused, revert, until},
    traces,
};

/// Does not know what it did.
#[durable::effect(at_most_once)]
async fn unsure(cx: &EffectContext, n: u64) -> durable::Result<u64> {
    Err(cx.in_doubt(format!("no answer after {n}")))?
}

#[durable::workflow]
async fn needs_somebody() -> durable::Result<u64> {
    let n = durable::signal("n").await;
    let n = unsure(n).await?;
    durable::untracked(|| assert_eq!(n, 0, "more than nothing"));
    Ok(n)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_somebody_is_said_once_as_a_warning_about_its_run() {
    traces::keep("waiting");
    let from = traces::kept();
    let bench = Bench::forgetful(Backend::Sled).await;
    bench.runtime.start("needs-somebody", needs_somebody()).await.unwrap();
    bench.until_away("needs-somebody").await;
    bench.runtime.signal("needs-somebody", "n", "three").await.unwrap();
    until("it to be set aside", async || bench.entries("needs-somebody", "signal.set_aside").await.len() == 1).await;
    bench.runtime.signal("needs-somebody", "n", &3).await.unwrap();
    bench.until("needs-somebody", "held").await;
    // Woken for what it does not wait for, and by another process.
    for n in 0..3 {
        bench.until_away("needs-somebody").await;
        bench.runtime.signal("needs-somebody", "other", &n).await.unwrap();
        assert_eq!(bench.runtime.holds().await.unwrap().len(), 1);
    }
    let bench = bench
        .observed(async |observer| {
            let hold = observer.holds().await.unwrap().remove(0);
            let word = Resolution::succeeded("one").by("ann");
            observer.resolve(&hold.run, hold.step, hold.attempt, word).await.unwrap();
        })
        .await;
    until("it to be set aside", async || bench.entries("needs-somebody", "resolution.set_aside").await.len() == 1)
        .await;
    let hold = bench.runtime.holds().await.unwrap().remove(0);
    bench.runtime.resolve("needs-somebody", hold.step, hold.attempt, Resolution::succeeded(1)).await.unwrap();
    bench.until("needs-somebody", "parked").await;
    let lines = traces::lines_of("needs-somebody", from);
    let said =
        |what: &str| lines.iter().filter(|line| line.contains("run id=needs-somebody") && line.contains(what)).count();
    for what in [
        "a message is set aside, the wait goes on: ",
        "held, as nobody knows what it did: no answer after 3; find out",
        "`durable resolve needs-somebody 1 1 ..`",
        "a resolution is set aside, the step is in doubt: ",
        "more than nothing",
    ] {
        assert_eq!(said(what), 1, "{what}: {lines:#?}");
    }
    assert_eq!(bench.run("needs-somebody").await.messages().await.unwrap()[0].value, json!(0));
}

/// Wires once, or hears that nobody knows.
#[durable::effect(at_most_once, in_doubt = error)]
async fn once_or_error(#[resource] outside: &Outside, what: &str) -> durable::Result<u64> {
    outside.pass(what).await;
    Ok(7)
}

#[durable::workflow]
async fn wires() -> durable::Result<u64> {
    once("wire").await
}

#[durable::workflow]
async fn hears_of_doubts() -> durable::Result<()> {
    durable::untracked(|| tracing::info!("before the doubt"));
    if once_or_error("wire").await.is_err() {
        durable::untracked(|| tracing::info!("after the doubt"));
    }
    Ok(())
}

#[durable::workflow]
async fn undoes() -> durable::Result<()> {
    durable::undo(revert("desk")).await;
    Err(durable::Failure::new("no visa"))
}

fn said(run: &str, from: usize, what: &str) -> usize {
    let lines = traces::lines_of(run, from);
    lines.iter().filter(|line| line.starts_with(&format!("[run id={run}]")) && line.contains(what)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_has_left_in_doubt_is_said_by_every_process_that_takes_the_run_up() {
    traces::keep("waiting");
    let mut from = traces::kept();
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("crashed", wires()).await.unwrap();
    bench.outside.until_done("begin wire").await;
    let mut bench = bench;
    for away in [false, true, false, true] {
        from = traces::kept();
        let evict_after = if away { std::time::Duration::ZERO } else { std::time::Duration::MAX };
        bench = bench.restarted_built(std::time::Duration::ZERO, |builder| builder.evict_after(evict_after)).await;
        bench.until("crashed", "held").await;
        until("the hold to be said", async || {
            let gone = "held, as nobody knows what it did: the process that ran it is gone; find out";
            said("crashed", from, gone) == 1
        })
        .await;
        if away {
            bench.until_away("crashed").await;
            // Woken, it is not said again.
            bench.runtime.signal("crashed", "other", &1).await.unwrap();
        }
    }
    let word = Resolution::succeeded(9);
    bench.runtime.resolve("crashed", durable::StepNo(0), durable::Attempt(1), word).await.unwrap();
    assert_eq!(bench.end("crashed").await, json!({ "Ok": 9 }));
    assert_eq!(said("crashed", from, "held"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_code_says_when_it_is_first_told_of_a_doubt_is_heard() {
    traces::keep("waiting");
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("hears", hears_of_doubts()).await.unwrap();
    bench.outside.until_done("begin wire").await;
    let from = traces::kept();
    let bench = bench.restarted().await;
    bench.end("hears").await;
    assert_eq!((said("hears", from, "before the doubt"), said("hears", from, "after the doubt")), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_failed_is_announced_as_what_it_is() {
    traces::keep("waiting");
    let from = traces::kept();
    let bench = Bench::on(Backend::Sled).await;
    bench.outside.breaks("desk", true);
    bench.runtime.start("undoes", undoes()).await.unwrap();
    bench.until("undoes", "held").await;
    assert_eq!(said("undoes", from, "held, as what it was to undo may still stand: desk cannot be undone now"), 1);
    assert_eq!(said("undoes", from, "nobody knows"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_comes_when_the_code_has_returned_is_said_to_be_too_late() {
    traces::keep("waiting");
    let from = traces::kept();
    let bench = Bench::on(Backend::Sled).await;
    bench.outside.breaks("desk", true);
    bench.runtime.start("too-late", undoes()).await.unwrap();
    bench.until("too-late", "held").await;
    let bench = bench
        .observed(async |observer| {
            refused(observer.cancel("too-late", "not wanted").by("ann").await, Code::NotCancelledYet);
        })
        .await;
    until("the cancel to be answered for", async || {
        said("too-late", from, "came too late: its code has returned") == 1
    })
    .await;
    bench.outside.breaks("desk", false);
    let hold = bench.runtime.holds().await.unwrap().remove(0);
    bench.runtime.resolve("too-late", hold.step, hold.attempt, Resolution::run_again()).await.unwrap();
    bench.until("too-late", "failed").await;
    assert!(bench.entries("too-late", "run.cancel_requested").await.is_empty());
}
