//! O-ND-5: losers of a race keep nobody busy.

use std::time::Duration;

use durable::{EffectContext, Status};

use crate::support::{BOTH, Bench, World, every_cut};

const HOUR: Duration = Duration::from_secs(3_600);

#[durable::effect(idempotent)]
async fn fast(cx: &EffectContext, #[resource] world: &World) -> u32 {
    world.note(cx, "");
    7
}

#[durable::effect(idempotent)]
async fn done(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn first_of() -> u32 {
    let pause = async {
        durable::sleep(HOUR).await;
        0
    };
    let wall = async {
        let at = durable::now().await + HOUR;
        durable::sleep_until(at).await;
        1
    };
    let within = async { durable::timeout(2 * HOUR, async { durable::sleep(HOUR).await }).await.map_or(2, |()| 3) };
    let told = async { durable::signal::<u32>("x").await };
    let n = durable::race((fast(), pause, wall, within, told)).await;
    done(n).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_its_winner_and_the_losing_sleeps_wake_nobody() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("race", first_of()).await.unwrap();
        // No time passes at all.
        assert_eq!(run.returned().await.unwrap(), 7);
        let log = bench.log("race").await;
        let waits = |entry: &&durable::LogEntry| ["timer.set", "signal.awaited"].contains(&entry.name);
        let set = log.iter().filter(waits).map(|entry| entry.step.unwrap());
        let closed = log.iter().filter(|entry| entry.name == "step.closed").map(|entry| entry.step.unwrap());
        let (set, closed): (Vec<_>, Vec<_>) = (set.collect(), closed.collect());
        assert_eq!((set.len(), &set), (5, &closed), "all sleeps and the wait are closed, in the order asked");
        // A cut behind which the effect is not over yet, in a world where no time has passed.
        every_cut(&bench, "race").await;
        let frames = bench.tape("race").frames;
        bench.clock.advance(2 * HOUR);
        bench.until_status("race", "completed", |status| *status == Status::Completed).await;
        assert_eq!(bench.tape("race").frames, frames, "2 hours later nothing is said");
        // A message that comes later is told so.
        let late = bench.runtime.signal("race", "x", &1).await.unwrap_err();
        assert!(late.is_run_ended(), "{late}");
        assert_eq!(bench.tape("race").frames, frames);
        bench.replays("race").await;
        // After a restart as well.
        let bench = bench.reopened().await;
        bench.clock.advance(2 * HOUR);
        assert_eq!(bench.status("race").await, Status::Completed);
        assert_eq!(bench.tape("race").frames, frames);
        assert!(bench.world.ledger().is_empty());
    }
}

#[durable::workflow]
async fn goes_on_after_the_race() -> u32 {
    let pause = async {
        durable::sleep(HOUR).await;
        0
    };
    let n = durable::race((fast(), pause)).await;
    durable::sleep(24 * HOUR).await;
    done(n).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_losing_sleep_does_not_wake_a_run_that_goes_on() {
    let bench = Bench::on(crate::support::Backend::Memory).await;
    bench.runtime.start("on", goes_on_after_the_race()).await.unwrap();
    let asleep = |status: &Status| matches!(status, Status::Sleeping { until } if until.duration_since(std::time::UNIX_EPOCH).unwrap() > Duration::from_secs(1_700_000_000) + 2 * HOUR);
    bench.until_status("on", "asleep for a day", asleep).await;
    let frames = bench.tape("on").frames;
    bench.clock.advance(2 * HOUR);
    bench.until_status("on", "asleep for a day", asleep).await;
    assert_eq!(bench.tape("on").frames, frames);
    bench.stands("on").await;
    bench.end("on").await.unwrap();
    assert_eq!(bench.world.bodies("done"), 1);
    bench.replays("on").await;
}
