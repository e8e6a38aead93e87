//! The limit on bodies under way.

use durable::{Builder, EffectContext, Failure, Filter};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, secs, until},
    world::World,
};

#[durable::effect(at_most_once)]
async fn once(cx: &EffectContext, #[resource] world: &World, gate: String) -> u32 {
    world.note(cx, &gate);
    world.pass(&gate).await;
    1
}

#[durable::effect(idempotent, retry(attempts = 3, first = "1s", max = "1s"))]
async fn twice(cx: &EffectContext, #[resource] world: &World) -> durable::Result<u32> {
    world.note(cx, "");
    world.pass("twice").await;
    match cx.attempt() {
        1 => Err(Failure::new("again")),
        _ => Ok(1),
    }
}

#[durable::workflow]
async fn one(gate: String) -> u32 {
    once(gate).await
}

#[durable::workflow]
async fn many(calls: usize) -> usize {
    durable::join_all((0..calls).map(|_| once("gate".into()))).await.len()
}

#[durable::workflow]
async fn retried() -> durable::Result<u32> {
    twice().await
}

/// Loses interest in its call after a minute.
#[durable::workflow]
async fn impatient() -> bool {
    durable::timeout(secs(60), once("gate".into())).await.is_ok()
}

/// Its code panics beside a body that runs.
#[durable::workflow]
async fn panics_beside() -> u32 {
    let panics = async {
        durable::sleep(secs(1)).await;
        panic!("beside a body")
    };
    durable::join((once("panicking".into()), panics)).await.0
}

fn three(builder: Builder) -> Builder {
    builder.bodies_at_once(3)
}

async fn statuses(bench: &Bench, status: durable::StatusKind) -> usize {
    bench.runtime.runs(Filter::all().workflow("one").status(status)).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_bodies_than_allowed_and_a_crash_puts_no_more_in_doubt() {
    for backend in BOTH {
        let bench = Bench::built(backend, three).await;
        bench.world.close_for_good("gate");
        for n in 0..20 {
            bench.runtime.start(format!("run {n}"), one("gate".into())).await.unwrap();
        }
        bench.world.until_noted("once", 3).await;
        bench.looked().await;
        assert_eq!((bench.world.bodies("once"), bench.runtime.bodies().len()), (3, 3));
        let bench = bench.restarted_built(secs(0), three).await;
        bench.world.until_noted("once", 6).await;
        until("all replayed", async || statuses(&bench, durable::StatusKind::Opening).await == 0).await;
        until("three held", async || statuses(&bench, durable::StatusKind::Held).await == 3).await;
        bench.looked().await;
        assert_eq!((bench.world.bodies("once"), statuses(&bench, durable::StatusKind::Running).await), (6, 17));
        // What was never begun is not in doubt, and ends by itself.
        bench.world.open("gate");
        until("all others", async || statuses(&bench, durable::StatusKind::Completed).await == 17).await;
        for hold in bench.runtime.holds().await.unwrap() {
            let id = hold.run.as_str();
            bench.runtime.resolve(id, hold.step, hold.attempt, durable::Resolution::run_again()).await.unwrap();
            assert_eq!(bench.end(id).await, json!(1));
            bench.replays(id).await;
        }
        assert_eq!(bench.world.bodies("once"), 23);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_that_asks_for_much_keeps_to_the_limit_and_others_get_their_turn() {
    for backend in BOTH {
        let bench = Bench::built(backend, three).await;
        bench.world.close("gate");
        bench.runtime.start("many", many(50)).await.unwrap();
        bench.world.until_noted("once", 3).await;
        bench.runtime.start("other", one("other".into())).await.unwrap();
        bench.looked().await;
        assert_eq!(bench.world.bodies("once"), 3);
        assert_eq!(bench.count("many", "effect.queued").await, 47);
        assert_eq!(bench.count("many", "effect.called").await, 3);
        bench.world.open("gate");
        assert_eq!(bench.end("many").await, json!(50));
        assert_eq!(bench.end("other").await, json!(1));
        assert_eq!(bench.world.bodies("once"), 51);
        bench.replays("many").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_take_a_slot_and_a_wait_for_one_holds_none() {
    let bench = Bench::built(Backend::Memory, |builder| builder.bodies_at_once(1)).await;
    for n in 0..10 {
        bench.runtime.start(format!("run {n}"), retried()).await.unwrap();
    }
    // Those that wait for their back-off hold nothing: all ten have their first attempt.
    until("ten to wait", async || {
        bench.runtime.runs(Filter::all().status(durable::StatusKind::Retrying)).await.unwrap().len() == 10
    })
    .await;
    bench.world.close("twice");
    bench.advance(secs(1)).await;
    bench.world.until_noted("twice", 11).await;
    bench.looked().await;
    assert_eq!((bench.world.bodies("twice"), bench.runtime.bodies().len()), (11, 1));
    bench.world.open("twice");
    for n in 0..10 {
        assert_eq!(bench.end(&format!("run {n}")).await, json!({ "Ok": 1 }));
    }
    assert_eq!(bench.world.bodies("twice"), 20);
    bench.replays("run 9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_its_first_claimant_does_not_want_any_more_goes_to_the_next() {
    let bench = Bench::built(Backend::Memory, |builder| builder.bodies_at_once(1)).await;
    bench.world.close("first");
    bench.runtime.start("first", one("first".into())).await.unwrap();
    bench.world.until_noted("once", 1).await;
    // Ten stand in the queue and then lose interest; the eleventh does not.
    for n in 0..10 {
        bench.runtime.start(format!("impatient {n}"), impatient()).await.unwrap();
        bench.until_word(&format!("impatient {n}"), "running").await;
    }
    bench.runtime.start("patient", one("patient".into())).await.unwrap();
    bench.looked().await;
    bench.advance(secs(60)).await;
    for n in 0..10 {
        assert_eq!(bench.end(&format!("impatient {n}")).await, json!(false));
        bench.replays(&format!("impatient {n}")).await;
    }
    bench.world.open("first");
    assert_eq!(bench.end("patient").await, json!(1));
    assert_eq!(bench.world.bodies("once"), 2, "what nobody waited for any more was not begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_outlives_its_parked_run_still_counts() {
    let bench = Bench::built(Backend::Memory, |builder| builder.bodies_at_once(1)).await;
    bench.world.close("panicking");
    bench.runtime.start("panics", panics_beside()).await.unwrap();
    bench.world.until_noted("once", 1).await;
    bench.runtime.start("next", one("next".into())).await.unwrap();
    bench.advance(secs(1)).await;
    bench.parked("panics").await;
    bench.looked().await;
    bench.advance(secs(1)).await;
    assert_eq!((bench.world.bodies("once"), bench.runtime.bodies().len()), (1, 1), "two bodies under way");
    bench.world.open("panicking");
    assert_eq!(bench.end("next").await, json!(1));
    assert_eq!(bench.world.bodies("once"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_run_that_is_tried_again_takes_the_outcome_of_the_body_that_outlived_it() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("panicking");
    bench.runtime.start("panics", panics_beside()).await.unwrap();
    bench.world.until_noted("once", 1).await;
    bench.advance(secs(1)).await;
    bench.parked("panics").await;
    // Tried again while the body still runs: it is waited for, not taken for dead.
    let runtime = bench.runtime.clone();
    let retry = tokio::spawn(async move { runtime.retry("panics").await });
    bench.world.open("panicking");
    retry.await.unwrap().unwrap();
    bench.parked("panics").await;
    until("the outcome", async || {
        bench.count("panics", "effect.result").await == 1 || bench.runtime.retry("panics").await.is_err()
    })
    .await;
    assert_eq!(bench.world.bodies("once"), 1);
    assert_eq!(bench.count("panics", "effect.in_doubt").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_that_limit_all_run_at_once() {
    // What the other tests would see if the limit did nothing.
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("gate");
    bench.runtime.start("many", many(20)).await.unwrap();
    bench.world.until_noted("once", 20).await;
    assert_eq!(bench.runtime.bodies().len(), 20);
    assert_eq!(bench.count("many", "effect.queued").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_none_is_a_limit_of_one() {
    let bench = Bench::built(Backend::Memory, |builder| builder.bodies_at_once(0)).await;
    bench.runtime.start("many", many(5)).await.unwrap();
    assert_eq!(bench.end("many").await, json!(5));
    bench.replays("many").await;
}
