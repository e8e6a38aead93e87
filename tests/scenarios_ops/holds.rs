//! Steps in doubt that wait for a person, and what a person may say.

use durable::{Attempt, Code, EffectContext, Fault, Resolution, StepNo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, millis, refused, secs, until},
    world::World,
};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum PaymentError {
    Declined { code: u16 },
    Engine(String),
}

impl From<Fault> for PaymentError {
    fn from(fault: Fault) -> Self {
        PaymentError::Engine(fault.kind().to_owned())
    }
}

#[durable::effect(at_most_once, timeout = "1s")]
async fn pay(cx: &EffectContext, #[resource] world: &World, cents: u64) -> Result<u64, PaymentError> {
    world.note(cx, cents);
    world.pass("pay").await;
    Ok(cents)
}

#[durable::effect(at_most_once)]
async fn stubborn(cx: &EffectContext, #[resource] world: &World) -> Result<u64, String> {
    world.note(cx, "");
    world.pass("pay").await;
    Ok(1)
}

#[durable::effect(at_most_once)]
async fn plain(cx: &EffectContext, #[resource] world: &World) -> u64 {
    world.note(cx, "");
    world.pass("pay").await;
    1
}

#[durable::effect(idempotent)]
async fn log_line(cx: &EffectContext, #[resource] world: &World, n: u32) {
    world.note(cx, n);
}

#[durable::workflow]
async fn paying(cents: u64) -> Result<u64, PaymentError> {
    pay(cents).await
}

#[durable::workflow]
async fn stubborn_one() -> Result<u64, String> {
    stubborn().await
}

#[durable::workflow]
async fn plain_one() -> u64 {
    plain().await
}

#[durable::workflow]
async fn beside() -> Result<u64, PaymentError> {
    let others = async {
        for n in 0..3 {
            log_line(n).await;
            durable::sleep(secs(60)).await;
        }
        7
    };
    let (paid, n) = durable::join((pay(5), others)).await;
    Ok(paid? + n)
}

mod elsewhere {
    use super::*;

    /// An effect of the same plain name, and of another type.
    #[durable::effect(at_most_once, timeout = "1s")]
    pub(super) async fn pay(cx: &EffectContext, #[resource] world: &World) -> Result<Vec<String>, String> {
        world.note(cx, "");
        world.pass("pay").await;
        Ok(Vec::new())
    }

    #[durable::workflow]
    pub(super) async fn paying_elsewhere() -> Result<Vec<String>, String> {
        pay().await
    }
}

/// A run held at a call that died with its process.
async fn held(backend: Backend) -> Bench {
    let bench = Bench::on(backend).await;
    bench.world.close("pay");
    bench.runtime.start("run", paying(5)).await.unwrap();
    bench.world.until_noted("pay", 1).await;
    let bench = bench.restarted().await;
    bench.held("run").await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_about_another_attempt_or_another_step_is_refused() {
    for backend in BOTH {
        let bench = held(backend).await;
        let hold = bench.held("run").await;
        for attempt in [0, 2, u32::MAX] {
            let error =
                refused(bench.runtime.resolve("run", hold.step, Attempt(attempt), Resolution::succeeded(5)).await);
            assert_eq!(error.code(), Code::StaleAttempt);
            assert!(error.to_string().contains("attempt 1 is"), "{error}");
        }
        let error = refused(bench.runtime.resolve("run", StepNo(9), Attempt(1), Resolution::succeeded(5)).await);
        assert_eq!(error.code(), Code::NotInDoubt);
        // After "run again" the first attempt is the earlier one.
        bench.world.close("pay");
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::run_again()).await.unwrap();
        bench.world.until_noted("pay", 2).await;
        let error = refused(bench.runtime.resolve("run", hold.step, Attempt(1), Resolution::succeeded(5)).await);
        assert_eq!(error.code(), Code::NotInDoubt, "it is under way: {error}");
        bench.advance(secs(1)).await;
        let second = bench.held("run").await;
        assert_eq!(second.attempt, Attempt(2));
        let error = refused(bench.runtime.resolve("run", hold.step, Attempt(1), Resolution::succeeded(5)).await);
        assert_eq!(error.code(), Code::StaleAttempt);
        bench.runtime.resolve("run", second.step, second.attempt, Resolution::succeeded(6)).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": 6 }));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_the_effect_cannot_return_is_refused_and_changes_nothing() {
    for backend in BOTH {
        let bench = held(backend).await;
        let hold = bench.held("run").await;
        let before = bench.names("run").await;
        let wrong = [
            Resolution::succeeded("five"),
            Resolution::succeeded(-1),
            Resolution::succeeded(5.5),
            Resolution::succeeded(json!(null)),
            Resolution::succeeded(json!({ "Ok": 5 })),
            Resolution::failed_with("declined"),
            Resolution::failed_with(json!({ "Declined": { "code": 70_000 } })),
            Resolution::failed_with(json!({ "Declined": {} })),
        ];
        for resolution in wrong {
            let said = format!("{resolution:?}");
            let error = refused(bench.runtime.resolve("run", hold.step, hold.attempt, resolution).await);
            assert_eq!(error.code(), Code::ValueDoesNotFit, "{said}: {error}");
        }
        assert_eq!(bench.names("run").await, before);
        let right = Resolution::failed_with(json!({ "Declined": { "code": 51 } })).by("ada");
        bench.runtime.resolve("run", hold.step, hold.attempt, right).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Err": { "Declined": { "code": 51 } } }));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_checked_against_the_effect_that_is_held_not_another_of_its_name() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("pay");
    bench.runtime.start("here", paying(5)).await.unwrap();
    bench.runtime.start("there", elsewhere::paying_elsewhere()).await.unwrap();
    bench.world.until_noted("pay", 2).await;
    let bench = bench.crashed().await;
    let (here, there) = (bench.held("here").await, bench.held("there").await);
    for (hold, wrong) in [(&here, json!(["a"])), (&there, json!(5))] {
        let wrong = Resolution::succeeded(wrong);
        let error = refused(bench.runtime.resolve(hold.run.as_str(), hold.step, hold.attempt, wrong).await);
        assert_eq!(error.code(), Code::ValueDoesNotFit);
    }
    bench.runtime.resolve("here", here.step, here.attempt, Resolution::succeeded(5)).await.unwrap();
    bench.runtime.resolve("there", there.step, there.attempt, Resolution::succeeded(["a"])).await.unwrap();
    assert_eq!(bench.end("here").await, json!({ "Ok": 5 }));
    assert_eq!(bench.end("there").await, json!({ "Ok": ["a"] }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_words_at_once_one_counts_and_the_others_are_refused() {
    for backend in BOTH {
        for round in 0..10 {
            let bench = held(backend).await;
            let hold = bench.held("run").await;
            let words: Vec<_> = (0..8u64)
                .map(|n| {
                    let (runtime, step, attempt) = (bench.runtime.clone(), hold.step, hold.attempt);
                    tokio::spawn(async move { runtime.resolve("run", step, attempt, Resolution::succeeded(n)).await })
                })
                .collect();
            let mut taken = Vec::new();
            for (n, word) in words.into_iter().enumerate() {
                match word.await.unwrap() {
                    Ok(_) => taken.push(n),
                    Err(error) => assert_eq!(error.code(), Code::NotInDoubt, "{error}"),
                }
            }
            assert_eq!(taken.len(), 1, "round {round}: {taken:?} were told that their word counts");
            assert_eq!(bench.end("run").await, json!({ "Ok": taken[0] }));
            assert_eq!(bench.count("run", "effect.resolved").await, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_was_accepted_counts_after_a_crash() {
    // Durable when `resolve` returns: the process dies before, or after, it got further.
    for _ in 0..20 {
        let bench = held(Backend::Memory).await;
        let hold = bench.held("run").await;
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::succeeded(9)).await.unwrap();
        let bench = bench.crashed().await;
        assert_eq!(bench.end("run").await, json!({ "Ok": 9 }));
        assert_eq!(bench.world.bodies("pay"), 1);
        assert_eq!(bench.count("run", "effect.resolved").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_said_again_after_a_restart_is_refused() {
    for backend in BOTH {
        let bench = held(backend).await;
        let hold = bench.held("run").await;
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::failed("no trace of it")).await.unwrap();
        let bench = bench.restarted().await;
        assert_eq!(bench.end("run").await, json!({ "Err": { "Engine": "resolved_as_failed" } }));
        let error = refused(bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::succeeded(5)).await);
        assert_eq!(error.code(), Code::NotInDoubt);
        assert!(error.to_string().contains("failed"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_the_run_goes_on_while_a_step_is_held() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("pay");
        bench.runtime.start("run", beside()).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        bench.advance(secs(1)).await;
        let hold = bench.held("run").await;
        let mut bench = bench;
        for n in 1..=3 {
            bench.world.until_noted("log_line", n).await;
            until("asleep", async || bench.count("run", "timer.set").await == n).await;
            if n == 2 {
                bench = bench.restarted().await;
            }
            bench.advance(secs(60)).await;
        }
        assert_eq!(bench.held("run").await.since, hold.since, "it has been held since");
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::succeeded(5)).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": 12 }));
        assert_eq!(bench.world.bodies("log_line"), 3);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_said_of_an_effect_that_takes_no_fault_parks_the_run() {
    for name in ["stubborn", "plain"] {
        let bench = Bench::on(Backend::Memory).await;
        bench.world.close("pay");
        if name == "stubborn" {
            bench.runtime.start("run", stubborn_one()).await.unwrap();
        } else {
            bench.runtime.start("run", plain_one()).await.unwrap();
        }
        bench.world.until_noted(name, 1).await;
        let bench = bench.crashed().await;
        let hold = bench.held("run").await;
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::failed("lost")).await.unwrap();
        let parked = bench.parked("run").await;
        assert_eq!(parked.code, Code::FaultNotTaken);
        assert!(parked.why.contains(name) && parked.why.contains("lost"), "{}", parked.why);
        let bench = bench.crashed().await;
        assert_eq!(bench.parked("run").await.code, Code::FaultNotTaken);
        assert_eq!(bench.world.bodies(name), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_again_waits_while_the_body_in_doubt_still_runs() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("pay");
    bench.runtime.start("run", paying(5)).await.unwrap();
    bench.world.until_noted("pay", 1).await;
    bench.advance(secs(1)).await;
    let hold = bench.held("run").await;
    assert_eq!(bench.runtime.bodies().len(), 1, "past its time, and still running");
    bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::run_again()).await.unwrap();
    bench.advance(secs(600)).await;
    assert_eq!(bench.world.bodies("pay"), 1, "two bodies of one at-most-once call at a time");
    let error = refused(bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::succeeded(5)).await);
    assert_eq!(error.code(), Code::NotInDoubt, "the word was given: {error}");
    // Its own end is the better answer.
    bench.world.open("pay");
    assert_eq!(bench.end("run").await, json!({ "Ok": 5 }));
    assert_eq!(bench.world.bodies("pay"), 1);
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_in_doubt_cannot_be_resolved() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("pay");
    bench.runtime.start("run", paying(5)).await.unwrap();
    bench.world.until_noted("pay", 1).await;
    let error = refused(bench.runtime.resolve("run", StepNo(0), Attempt(1), Resolution::succeeded(5)).await);
    assert_eq!(error.code(), Code::NotInDoubt);
    assert!(error.to_string().contains("running"), "{error}");
    bench.advance(millis(1)).await;
    bench.world.open("pay");
    bench.end("run").await;
    let error = refused(bench.runtime.resolve("run", StepNo(0), Attempt(1), Resolution::succeeded(5)).await);
    assert!(error.to_string().contains("completed"), "{error}");
}

#[durable::workflow]
async fn gives_up() -> Result<u64, PaymentError> {
    let late = async {
        durable::sleep(secs(60)).await;
        Ok(0)
    };
    durable::race((pay(5), late)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_step_that_the_code_gives_up_holds_nobody_any_more() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("pay");
        bench.runtime.start("run", gives_up()).await.unwrap();
        bench.world.until_noted("pay", 1).await;
        let bench = bench.restarted().await;
        let hold = bench.held("run").await;
        bench.advance(secs(60)).await;
        assert_eq!(bench.end("run").await, json!({ "Ok": 0 }));
        assert!(bench.runtime.holds().await.unwrap().is_empty());
        let error = refused(bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::run_again()).await);
        assert_eq!(error.code(), Code::NotInDoubt);
        assert_eq!(bench.world.bodies("pay"), 1);
        bench.replays("run").await;
    }
}
