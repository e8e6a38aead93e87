//! O-ND-4: a race between a signal and a sleep that is decided again on replay.

use std::time::Duration;

use durable::{EffectContext, Status};

use crate::support::{BOTH, Backend, Bench, World, every_cut_ends, replays, until};

const MINUTE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(35 * 60);

#[durable::effect(idempotent, timeout = "1d")]
async fn drain(cx: &EffectContext, #[resource] world: &World, n: u32) -> String {
    world.note(cx, n);
    world.pass("drain").await;
    format!("drained {n}")
}

#[durable::effect(idempotent)]
async fn sync(cx: &EffectContext, #[resource] world: &World, turn: u32) -> String {
    world.note(cx, turn);
    format!("synced {turn}")
}

/// `None` is the sleep.
#[durable::workflow]
async fn watch(turns: u32, sleep_first: bool) -> Vec<String> {
    let mut out = Vec::new();
    for turn in 0..turns {
        let told = async { Some(durable::signal::<u32>("wake").await) };
        let pause = async {
            durable::sleep(PAUSE).await;
            None
        };
        let first = if sleep_first { durable::race((pause, told)).await } else { durable::race((told, pause)).await };
        out.push(match first {
            Some(n) => drain(n).await,
            None => sync(turn).await,
        });
    }
    out
}

/// One of two waits.
#[durable::part]
async fn one(sleeps: bool) -> Option<u32> {
    if sleeps {
        durable::sleep(PAUSE).await;
        return None;
    }
    Some(durable::signal::<u32>("wake").await)
}

/// The sleep goes on from turn to turn until it is over, and so does a wait that has not lost.
#[durable::workflow]
async fn watch_with_one_sleep(turns: u32) -> Vec<String> {
    let mut set = durable::Set::new();
    set.add(one(true));
    set.add(one(false));
    let mut out = Vec::new();
    for turn in 0..turns {
        out.push(match set.next().await.flatten() {
            Some(n) => {
                set.add(one(false));
                drain(n).await
            }
            None => {
                set.add(one(true));
                sync(turn).await
            }
        });
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_signal_that_won_by_the_log_wins_on_replay_although_the_sleep_is_overdue() {
    for sleep_first in [false, true] {
        for backend in BOTH {
            let bench = Bench::on(backend).await;
            bench.world.close("drain");
            let run = bench.runtime.start("watch", watch(3, sleep_first)).await.unwrap();
            bench.clock.advance(10 * MINUTE);
            run.signal("wake", &0).await.unwrap();
            bench.world.until_noted("drain", 1).await;
            // The process dies in the drain, and the next one finds the race decided and the sleep long overdue.
            let (tape, log) = (bench.tape("watch"), bench.log("watch").await);
            let called = log.iter().rposition(|entry| entry.name == "effect.called").unwrap() + 1;
            assert!(log.iter().any(|entry| entry.name == "step.closed"));
            bench.clock.advance(40 * MINUTE);
            let next = Bench::after_in(World::new(), &tape, called, &bench.clock).await;
            next.world.until_noted("drain", 1).await;
            next.until_status("watch", "waiting", |status| *status != Status::Opening && *status != Status::Running)
                .await;
            assert_eq!(next.world.bodies("sync"), 0);
            next.runtime.signal("watch", "wake", &1).await.unwrap();
            next.world.until_noted("drain", 2).await;
            // The third turn is the sleep's.
            until("the third turn", async || {
                next.names("watch").await.iter().filter(|name| **name == "timer.set").count() == 3
            })
            .await;
            next.clock.advance(PAUSE);
            next.end("watch").await.unwrap();
            let out = next.runtime.run("watch").await.unwrap().returned_as::<Vec<String>>().await.unwrap();
            assert_eq!(out, ["drained 0", "drained 1", "synced 2"]);
            next.replays("watch").await;
            // From every cut the run ends, whichever side the cut leaves open.
            every_cut_ends(&next, "watch").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleep_and_a_wait_that_live_over_several_turns_end_once_each() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("one", watch_with_one_sleep(4)).await.unwrap();
    for n in 0..2 {
        run.signal("wake", &n).await.unwrap();
        bench.world.until_noted("drain", n as usize + 1).await;
        bench.clock.advance(10 * MINUTE);
    }
    bench.clock.advance(15 * MINUTE);
    bench.world.until_noted("sync", 1).await;
    run.signal("wake", &2).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), ["drained 0", "drained 1", "synced 2", "drained 2"]);
    let names = bench.names("one").await;
    let count = |name| names.iter().filter(|n| **n == name).count();
    assert_eq!((count("timer.fired"), count("signal.received")), (1, 3));
    bench.replays("one").await;
    every_cut_ends(&bench, "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tie_of_a_signal_and_a_sleep_goes_one_way_and_the_same_way_on_every_replay() {
    let ties = 500;
    let bench = Bench::on(Backend::Memory).await;
    for n in 0..ties {
        bench.runtime.start(format!("tie-{n}"), watch(1, n % 2 == 0)).await.unwrap();
    }
    until("all to wait", async || {
        let waiting = durable::Filter::unfinished().status(durable::StatusKind::Running);
        bench.runtime.runs(waiting).await.unwrap().is_empty()
    })
    .await;
    let mut signals = tokio::task::JoinSet::new();
    for n in 0..ties {
        // Some of the signals come before the hand of the clock moves, most at the same time or after; all in the same millisecond.
        if n == ties / 10 {
            bench.clock.advance(PAUSE);
        }
        let runtime = bench.runtime.clone();
        signals.spawn(async move { runtime.signal(format!("tie-{n}"), "wake", &0).await.is_ok() });
    }
    signals.join_all().await;
    let mut drained = 0;
    for n in 0..ties {
        let id = format!("tie-{n}");
        bench.end(&id).await.unwrap();
        let run = bench.runtime.run(&id).await.unwrap();
        let out = run.returned_as::<Vec<String>>().await.unwrap();
        let won = out == ["drained 0"];
        drained += usize::from(won);
        // What lost is there for somebody else, or was told that it came too late.
        assert!(!won || run.messages().await.unwrap().is_empty(), "{id}");
        let times = if n < 5 { 50 } else { 2 };
        replays(&bench.tape(&id), &bench.clock, times).await.unwrap();
    }
    println!("{drained} of {ties} signals won");
    assert_eq!(drained + bench.world.bodies("sync"), ties);
}
