//! O-ID-1: an at-most-once effect that is interrupted.

use std::path::Path;

use durable::{Attempt, Code, EffectContext, Resolution, Runtime, Status, TestClock};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Backend, Bench, open_sled, refused},
    child,
    odd_store::{Fuse, appends, fused},
    replay::Tape,
    world::World,
};

#[durable::effect(at_most_once)]
async fn wire_money(cx: &EffectContext, #[resource] world: &World, cents: u64) -> durable::Result<String> {
    world.note(cx, cents);
    if world.word("wire_money") == "abort" {
        std::process::abort();
    }
    Ok(format!("wired {cents}"))
}

#[durable::effect(idempotent)]
async fn notify(cx: &EffectContext, #[resource] world: &World, text: String) -> durable::Result<()> {
    world.note(cx, &text);
    Ok(())
}

#[durable::workflow]
async fn transfer(cents: u64) -> durable::Result<String> {
    let receipt = wire_money(cents).await?;
    notify(receipt.clone()).await?;
    Ok(receipt)
}

/// Starts the run and dies at the place named.
pub(crate) async fn child(dir: &Path, word: &str) {
    let fuse = match word {
        "K1" => Fuse::After(1),
        "K3" => Fuse::Before(2),
        "K4" => Fuse::After(2),
        _ => Fuse::Before(usize::MAX),
    };
    let world = World::in_file(dir.join("ledger"));
    if word == "K2" {
        world.say("wire_money", "abort");
    }
    let store = fused(open_sled(dir.join("store")).await.unwrap(), appends, fuse);
    let clock = TestClock::at(BEGINNING);
    let runtime = Runtime::builder().resource(world).clock(clock).open_store(store).await.unwrap();
    let run = runtime.start("transfer", transfer(500)).await.unwrap();
    run.output().await.unwrap();
}

/// The process that comes after one that died at the place named; the run is held there, whatever is tried.
async fn held_after(place: &str, dir: &Path) -> Bench {
    child::dies("id_1", dir, place);
    let bodies = if place == "K1" { 0 } else { 1 };
    let mut bench = Bench::at(dir, &TestClock::at(BEGINNING)).await;
    for _ in 0..=5 {
        let hold = bench.held("transfer").await;
        assert_eq!(
            (hold.effect.as_str(), hold.attempt, &hold.args),
            ("wire_money", Attempt(1), &json!({ "cents": 500 }))
        );
        assert_eq!(hold.path, "wire_money[0]");
        assert!(hold.key.ends_with("/transfer/0/wire_money[0]"), "{}", hold.key);
        assert!(bench.status("transfer").await.next_action().unwrap().contains("Runtime::resolve"));
        assert_eq!((bench.world.bodies("wire_money"), bench.world.bodies("notify")), (bodies, 0), "at {place}");
        assert_eq!(bench.count("transfer", "effect.in_doubt").await, 1, "the doubt is said once, at {place}");
        bench = bench.restarted().await;
    }
    bench.held("transfer").await;
    bench.stands("transfer").await;
    bench
}

async fn resolved(bench: &Bench, resolution: Resolution) {
    let hold = bench.held("transfer").await;
    bench.runtime.resolve("transfer", hold.step, hold.attempt, resolution.clone()).await.unwrap();
    // Whether the run has taken the word yet or not.
    let again = refused(bench.runtime.resolve("transfer", hold.step, hold.attempt, resolution).await);
    assert_eq!(again.code(), Code::NotInDoubt, "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_crash_interrupted_is_held_and_a_person_says_that_it_succeeded() {
    for place in ["K1", "K2", "K3"] {
        let dir = tempfile::tempdir().unwrap();
        let bench = held_after(place, dir.path()).await;
        let bodies = bench.world.bodies("wire_money");
        resolved(&bench, Resolution::succeeded("wired by hand").by("ada")).await;
        assert_eq!(bench.end("transfer").await, json!({ "Ok": "wired by hand" }));
        assert_eq!((bench.world.bodies("wire_money"), bench.world.bodies("notify")), (bodies, 1), "at {place}");
        assert_eq!(bench.world.lines("notify")[0].input, "wired by hand");
        let log = bench.log("transfer").await;
        let word = log.iter().find(|entry| entry.name == "effect.resolved").unwrap();
        assert_eq!((word.get("by"), word.get("how")), (Some(&json!("ada")), Some(&json!("succeeded"))));
        let late =
            refused(bench.runtime.resolve("transfer", word.step.unwrap(), Attempt(1), Resolution::run_again()).await);
        assert_eq!(late.code(), Code::NotInDoubt, "{late}");
        bench.replays("transfer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_crash_interrupted_runs_once_more_when_a_person_says_so() {
    for place in ["K1", "K2", "K3"] {
        let dir = tempfile::tempdir().unwrap();
        let bench = held_after(place, dir.path()).await;
        let bodies = bench.world.bodies("wire_money");
        resolved(&bench, Resolution::run_again()).await;
        assert_eq!(bench.end("transfer").await, json!({ "Ok": "wired 500" }));
        assert_eq!(bench.world.bodies("wire_money"), bodies + 1, "at {place}");
        assert_eq!(bench.world.lines("wire_money").last().unwrap().attempt, 2);
        bench.replays("transfer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_crash_interrupted_is_a_typed_error_when_a_person_says_that_it_failed() {
    for place in ["K1", "K2", "K3"] {
        let dir = tempfile::tempdir().unwrap();
        let bench = held_after(place, dir.path()).await;
        let bodies = bench.world.bodies("wire_money");
        resolved(&bench, Resolution::failed("the bank has not seen it")).await;
        let ended = bench.end("transfer").await;
        let fault = &ended["Err"]["fault"]["ResolvedAsFailed"];
        assert_eq!((&fault["effect"], &fault["attempt"]), (&json!("wire_money"), &json!(1)), "{ended}");
        assert_eq!(fault["reason"], "the bank has not seen it");
        assert_eq!((bench.world.bodies("wire_money"), bench.world.bodies("notify")), (bodies, 0), "at {place}");
        bench.replays("transfer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_outcome_is_durable_is_not_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    child::dies("id_1", dir.path(), "K4");
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    assert_eq!(bench.end("transfer").await, json!({ "Ok": "wired 500" }));
    assert_eq!(bench.world.bodies("wire_money"), 1);
    assert_eq!(bench.count("transfer", "effect.in_doubt").await, 0);
    bench.replays("transfer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_cut_of_the_log_the_money_is_wired_at_most_once() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("transfer", transfer(500)).await.unwrap();
    bench.end("transfer").await;
    let tape = Tape::of(&*bench.store, "transfer");
    let names = bench.names("transfer").await;
    for cut in 1..tape.frames.len() {
        let next = tape.opened(cut, World::new(), &bench.clock).await;
        let status = next.until_status("transfer", "over or held", |s| s.is_terminal() || s.as_str() == "held").await;
        let called = names[..cut].contains(&"effect.called");
        let over = names[..cut].contains(&"effect.result");
        assert_eq!(status == Status::Completed, !called || over, "cut at {cut}");
        assert_eq!(next.world.bodies("wire_money"), usize::from(!called), "cut at {cut}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_in_the_body_finds_the_intent_in_the_store() {
    let bench = Bench::on(Backend::Memory).await;
    let world = bench.world.clone();
    world.close("wire");
    bench.runtime.start("gated", gated()).await.unwrap();
    world.until_noted("wire", 1).await;
    // Read by another process: what the runtime shows is no proof.
    assert_eq!(Tape::of(&*bench.store, "gated").frames.len(), 2);
    let next = bench.crashed().await;
    assert_eq!(next.held("gated").await.effect, "wire");
    assert_eq!(next.world.bodies("wire"), 1);
    next.stands("gated").await;
}

#[durable::effect(at_most_once)]
async fn wire(cx: &EffectContext, #[resource] world: &World) {
    world.note(cx, "");
    world.pass("wire").await;
}

#[durable::workflow]
async fn gated() {
    wire().await;
}
