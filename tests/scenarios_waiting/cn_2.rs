//! O-CN-2: cancel during an effect.

use std::time::Duration;

use durable::{EffectContext, Status};
use serde_json::json;

use crate::{
    bench::{BOTH, Bench, millis, secs, until},
    world::World,
};

/// Does what it does when the gate opens; told in time that nobody wants it, it does not.
#[durable::effect(at_most_once)]
async fn pay(cx: &EffectContext, #[resource] world: &World, obeys: bool) -> durable::Result<String> {
    world.note(cx, "begun");
    if obeys {
        cx.cancelled().await;
        return Err(durable::Failure::new("stopped before it paid"));
    }
    world.pass("pay").await;
    world.note(cx, "paid");
    Ok("paid".into())
}

#[durable::effect(idempotent)]
async fn clean_up(cx: &EffectContext, #[resource] world: &World, how: &str) -> durable::Result<()> {
    world.note(cx, how);
    Ok(())
}

#[durable::effect(idempotent)]
async fn then(cx: &EffectContext, #[resource] world: &World) {
    world.note(cx, "");
}

/// Puts things in order when it is cancelled, and may take its time for that.
#[durable::workflow]
async fn payer(obeys: bool) -> durable::Result<()> {
    durable::undo(clean_up("taken back")).await;
    let told = async {
        durable::cancelled().await;
        durable::shield(async {
            durable::sleep(secs(1)).await;
            clean_up("in order").await
        })
        .await
    };
    let paid = async { pay(obeys).await.map(drop) };
    let (paid, told) = durable::join((paid, told)).await;
    then().await;
    paid.and(told)
}

fn notes(bench: &Bench) -> Vec<(String, String)> {
    bench.world.ledger().into_iter().map(|line| (line.effect, line.input)).collect()
}

fn note(effect: &str, input: &str) -> (String, String) {
    (effect.to_owned(), input.to_owned())
}

/// Lets time pass until the run has ended.
async fn cancelled(bench: &Bench) -> Status {
    let cancel = bench.runtime.cancel("run", "changed our minds").by("ann").into_future();
    let pass = async {
        loop {
            tokio::time::sleep(millis(1)).await;
            bench.clock.advance(millis(100));
        }
    };
    tokio::select! {
        status = cancel => status.unwrap(),
        () = pass => unreachable!("time passes for ever"),
        () = tokio::time::sleep(crate::bench::DEADLINE) => panic!("{:?}", bench.status("run").await),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_obeys_ends_before_its_run_and_what_it_says_is_recorded() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", payer(true)).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        assert_eq!(cancelled(&bench).await, Status::Cancelled { reason: "changed our minds".into() });
        let log = bench.log("run").await;
        let outcome =
            log.iter().find(|e| e.name == "effect.result" && e.path.as_deref().unwrap().contains("pay")).unwrap();
        assert_eq!(outcome.get("value").unwrap()["Err"]["message"], "stopped before it paid");
        let expected = [note("pay", "begun"), note("clean_up", "in order"), note("clean_up", "taken back")];
        assert_eq!(notes(&bench), expected, "each once, and nothing new");
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_cancelling_while_a_body_that_does_not_obey_runs() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("pay");
        bench.runtime.start("run", payer(false)).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "changed our minds").await.unwrap() });
        bench.until_word("run", "cancelling").await;
        // What is shielded is finished meanwhile.
        bench.advance(secs(1)).await;
        bench.world.until_noted("clean_up", 1).await;
        bench.looked().await;
        assert_eq!(bench.status("run").await, Status::Cancelling { settling_until: None });
        assert!(!cancel.is_finished(), "it is not over while the body runs");
        assert_eq!(notes(&bench), [note("pay", "begun"), note("clean_up", "in order")]);
        bench.world.open("pay");
        assert_eq!(cancel.await.unwrap().as_str(), "cancelled");
        let expected =
            [note("pay", "begun"), note("clean_up", "in order"), note("pay", "paid"), note("clean_up", "taken back")];
        assert_eq!(notes(&bench), expected, "taken back after it has paid, once");
        let log = bench.log("run").await;
        let paid =
            log.iter().find(|e| e.name == "effect.result" && e.path.as_deref().unwrap().contains("pay")).unwrap();
        assert_eq!(paid.get("value"), Some(&json!({ "Ok": "paid" })));
        assert_eq!(bench.count("run", "effect.in_doubt").await, 0);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_outlives_the_grace_is_in_doubt_and_nothing_is_taken_back_before_it_has_settled() {
    let (grace, settle) = (secs(10), secs(60));
    for backend in BOTH {
        let bench = Bench::built(backend, |builder| builder.cancel_grace(grace).settle(settle)).await;
        bench.world.close("pay");
        bench.runtime.start("run", payer(false)).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "changed our minds").await.unwrap() });
        bench.until_word("run", "cancelling").await;
        bench.advance(secs(1)).await;
        bench.world.until_noted("clean_up", 1).await;
        bench.advance(grace - secs(1)).await;
        let settling = |status: &Status| matches!(status, Status::Cancelling { settling_until: Some(_) });
        let status = bench.until_status("run", "settling", settling).await;
        let Status::Cancelling { settling_until: Some(at) } = status else { unreachable!("that was waited for") };
        let now = durable::Clock::wall(&bench.clock);
        assert_eq!(at, std::time::UNIX_EPOCH + Duration::from_millis(now) + settle);
        assert_eq!(bench.count("run", "effect.in_doubt").await, 1);
        assert_eq!(bench.runtime.bodies().len(), 1, "it is listed as still running");
        bench.advance(settle - millis(1)).await;
        assert_eq!(notes(&bench), [note("pay", "begun"), note("clean_up", "in order")]);
        bench.advance(millis(1)).await;
        assert_eq!(cancel.await.unwrap().as_str(), "cancelled");
        assert_eq!(notes(&bench)[2..], [note("clean_up", "taken back")]);
        let names = bench.names("run").await;
        bench.world.open("pay");
        until("the body", async || bench.runtime.bodies().is_empty()).await;
        assert_eq!(bench.names("run").await, names, "what it says now changes nothing");
        bench.replays("run").await;
    }
}
