//! O-TM-4: the wall clock jumps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use durable::{EffectContext, Status};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Backend, Bench, millis, secs, until},
    world::World,
};

const HOUR: Duration = secs(3_600);
const DAY: Duration = secs(86_400);

#[durable::effect(at_most_once)]
async fn slow(cx: &EffectContext, #[resource] world: &World) -> u32 {
    world.note(cx, "");
    world.pass("slow").await;
    1
}

#[durable::workflow]
async fn sleeper() -> (SystemTime, SystemTime) {
    let before = durable::now().await;
    durable::sleep(secs(60)).await;
    (before, durable::now().await)
}

#[durable::workflow]
async fn worker() -> u32 {
    slow().await
}

#[durable::workflow]
async fn clockwork(naps: u32) -> Vec<SystemTime> {
    let mut times = vec![durable::now().await];
    for _ in 0..naps {
        durable::sleep(secs(60)).await;
        times.push(durable::now().await);
    }
    times
}

/// Ten runs that sleep for a minute, ten in an effect.
async fn twenty(backend: Backend) -> Bench {
    let bench = Bench::on(backend).await;
    bench.world.close("slow");
    for n in 0..10 {
        bench.runtime.start(format!("sleeper {n}"), sleeper()).await.unwrap();
        bench.runtime.start(format!("worker {n}"), worker()).await.unwrap();
    }
    bench.world.until_noted("slow", 10).await;
    for n in 0..10 {
        bench.until_word(&format!("sleeper {n}"), "sleeping").await;
    }
    bench
}

async fn asleep(bench: &Bench) -> usize {
    let filter = durable::Filter::unfinished().workflow("sleeper");
    bench.runtime.runs(filter).await.unwrap().len()
}

/// The entries' times never go back, and all are in UTC.
async fn in_order(bench: &Bench, id: &str) {
    let log = bench.log(id).await;
    assert!(log.is_sorted_by_key(|entry| entry.at));
    assert!(log.iter().all(|entry| entry.get("at").unwrap().as_str().unwrap().ends_with('Z')));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_of_a_clock_that_lives_neither_shortens_nor_lengthens_a_sleep() {
    let jumps = [BEGINNING - HOUR, BEGINNING + DAY, Duration::ZERO, secs(253_000_000_000)];
    for backend in BOTH {
        for to in jumps {
            let bench = twenty(backend).await;
            bench.clock.set_wall(to);
            bench.advance(secs(30)).await;
            bench.world.open("slow");
            for n in 0..10 {
                assert_eq!(bench.end(&format!("worker {n}")).await, json!(1));
            }
            bench.advance(millis(29_999)).await;
            assert_eq!(asleep(&bench).await, 10, "no earlier than a minute, wall clock at {to:?}");
            bench.advance(millis(1)).await;
            for n in 0..10 {
                bench.end(&format!("sleeper {n}")).await;
                in_order(&bench, &format!("sleeper {n}")).await;
            }
            assert_eq!(bench.world.bodies("slow"), 10);
            bench.replays("sleeper 0").await;
            bench.replays("worker 9").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_set_back_across_a_restart_delays_a_sleep_by_the_jump_at_most() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", sleeper()).await.unwrap();
        bench.until_word("run", "sleeping").await;
        bench.clock.advance(secs(10));
        bench.clock.set_wall(BEGINNING + secs(10) - HOUR);
        let bench = bench.restarted().await;
        bench.until_word("run", "sleeping").await;
        // By the recorded deadline fifty seconds and an hour are left.
        bench.advance(HOUR + secs(50) - millis(1)).await;
        assert_eq!(bench.status("run").await.as_str(), "sleeping");
        bench.advance(millis(1)).await;
        bench.end("run").await;
        in_order(&bench, "run").await;
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_set_forward_across_a_restart_ends_a_sleep_and_fails_nothing() {
    for backend in BOTH {
        let bench = twenty(backend).await;
        bench.clock.set_wall(BEGINNING + DAY);
        let bench = bench.restarted().await;
        for n in 0..10 {
            bench.end(&format!("sleeper {n}")).await;
            bench.held(&format!("worker {n}")).await;
        }
        assert_eq!(bench.world.bodies("slow"), 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_until_a_time_follows_the_wall_clock() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", morning()).await.unwrap();
    bench.until_word("run", "sleeping").await;
    bench.clock.set_wall(BEGINNING - HOUR);
    bench.advance(HOUR).await;
    assert_eq!(bench.status("run").await.as_str(), "sleeping", "it is an hour earlier than it was");
    bench.clock.set_wall(BEGINNING + DAY);
    bench.end("run").await;
    bench.replays("run").await;
}

#[durable::workflow]
async fn morning() {
    durable::sleep_until(UNIX_EPOCH + BEGINNING + DAY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_durable_clock_never_goes_back_inside_a_run() {
    let mut bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", clockwork(60)).await.unwrap();
    for jump in [BEGINNING - DAY, BEGINNING + DAY, BEGINNING - 3 * DAY, BEGINNING + secs(1), BEGINNING + DAY, BEGINNING]
    {
        bench.until_word("run", "sleeping").await;
        bench.clock.set_wall(jump);
        bench = bench.crashed().await;
        let fired = bench.count("run", "timer.fired").await;
        until("one sleep over", async || {
            bench.clock.advance(secs(3_600));
            bench.count("run", "timer.fired").await > fired
        })
        .await;
    }
    until("the end", async || {
        bench.clock.advance(DAY);
        bench.status("run").await.is_terminal()
    })
    .await;
    assert_eq!(bench.status("run").await, Status::Completed);
    let run = bench.runtime.run("run").await.unwrap();
    let times: Vec<SystemTime> = run.returned_as().await.unwrap();
    assert_eq!(times.len(), 61);
    assert!(times.is_sorted(), "{times:?}");
    in_order(&bench, "run").await;
    bench.replays("run").await;
}
