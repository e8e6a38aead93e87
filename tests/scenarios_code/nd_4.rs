//! O-ND-4: a race that is decided again on replay, between an effect that returns when something happens and a sleep; the one with a signal is
//! in `nd_4_signal`. Also: races of branches that are ready at once, and a sleep that lives over several turns of a loop, in a `Set`.

use std::time::Duration;

use durable::EffectContext;

use crate::support::{BOTH, Backend, Bench, World, every_cut, every_cut_ends, replays, until};

const MINUTE: Duration = Duration::from_secs(60);

#[durable::effect(read_only, timeout = "1d")]
async fn happens(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    world.pass(&format!("happens {} {n}", cx.run_id())).await;
    n
}

#[durable::effect(idempotent, timeout = "1d")]
async fn drain(cx: &EffectContext, #[resource] world: &World, n: u32) -> String {
    world.note(cx, n);
    world.pass("drain").await;
    format!("drained {n}")
}

#[durable::effect(idempotent)]
async fn sync(cx: &EffectContext, #[resource] world: &World, n: u32) -> String {
    world.note(cx, n);
    format!("synced {n}")
}

/// `None` is the sleep.
#[durable::workflow]
async fn watch(turns: u32, sleep_first: bool) -> Vec<String> {
    let mut out = Vec::new();
    for n in 0..turns {
        let event = async { Some(happens(n).await) };
        let pause = async {
            durable::sleep(Duration::from_secs(35 * 60)).await;
            None
        };
        let first = if sleep_first { durable::race((pause, event)).await } else { durable::race((event, pause)).await };
        out.push(match first {
            Some(m) => drain(m).await,
            None => sync(n).await,
        });
    }
    out
}

/// The sleep goes on from turn to turn until it is over.
#[durable::workflow]
async fn watch_with_one_sleep(turns: u32) -> Vec<String> {
    #[durable::part]
    async fn one(n: Option<u32>) -> Option<u32> {
        match n {
            Some(n) => Some(happens(n).await),
            None => {
                durable::sleep(Duration::from_secs(35 * 60)).await;
                None
            }
        }
    }
    let mut set = durable::Set::new();
    set.add(one(None));
    let mut out = Vec::new();
    for n in 0..turns {
        set.add(one(Some(n)));
        out.push(match set.next().await.flatten() {
            Some(m) => drain(m).await,
            None => {
                set.add(one(None));
                sync(n).await
            }
        });
    }
    out
}

fn gate(run: &str, n: u32) -> String {
    format!("happens {run} {n}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_won_by_the_log_wins_on_replay_although_the_sleep_is_overdue() {
    for sleep_first in [false, true] {
        for backend in BOTH {
            let bench = Bench::on(backend).await;
            (0..3).for_each(|n| bench.world.close(gate("watch", n)));
            bench.world.close("drain");
            bench.runtime.start("watch", watch(3, sleep_first)).await.unwrap();
            bench.world.until_noted("happens", 1).await;
            bench.clock.advance(10 * MINUTE);
            bench.world.open(&gate("watch", 0));
            bench.world.until_noted("drain", 1).await;
            // The next process finds the race decided and the sleep long overdue.
            let (tape, log) = (bench.tape("watch"), bench.log("watch").await);
            let called = log.iter().rposition(|entry| entry.name == "effect.called").unwrap() + 1;
            assert!(log.iter().any(|entry| entry.name == "step.closed"));
            bench.clock.advance(40 * MINUTE);
            let world = World::new();
            (1..3).for_each(|n| world.close(gate("watch", n)));
            let next = Bench::after_in(world, &tape, called, &bench.clock).await;
            next.world.until_noted("happens", 1).await;
            assert_eq!(next.world.bodies("sync"), 0);
            next.world.open(&gate("watch", 1));
            next.world.until_noted("happens", 2).await;
            // The third turn is the sleep's.
            next.clock.advance(35 * MINUTE);
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
async fn a_sleep_that_lives_over_several_turns_fires_once() {
    let bench = Bench::on(Backend::Memory).await;
    (0..5).for_each(|n| bench.world.close(gate("one", n)));
    let run = bench.runtime.start("one", watch_with_one_sleep(4)).await.unwrap();
    for n in 0..2 {
        bench.world.until_noted("happens", n as usize + 1).await;
        bench.clock.advance(10 * MINUTE);
        bench.world.open(&gate("one", n));
    }
    bench.world.until_noted("happens", 3).await;
    bench.clock.advance(15 * MINUTE);
    bench.world.until_noted("sync", 1).await;
    // The fourth event does not come: the third one is the fourth turn's.
    bench.world.open(&gate("one", 2));
    assert_eq!(run.returned().await.unwrap(), ["drained 0", "drained 1", "synced 2", "drained 2"]);
    bench.replays("one").await;
    let fired = bench.names("one").await.iter().filter(|name| **name == "timer.fired").count();
    assert_eq!(fired, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tie_goes_one_way_and_the_same_way_on_every_replay() {
    // One world for many ties: the event and the sleep are due in one millisecond, and whichever the executor takes first wins.
    let (ties, mut drained) = (100, 0);
    let bench = Bench::on(Backend::Memory).await;
    for n in 0..ties {
        let id = format!("tie-{n}");
        bench.world.close(gate(&id, 0));
        bench.runtime.start(&id, watch(1, n % 2 == 0)).await.unwrap();
    }
    bench.world.until_noted("happens", ties).await;
    for n in 0..ties {
        // Half of the events come before the hand of the clock moves, half after; all in the same millisecond.
        if n == ties / 2 {
            bench.clock.advance(35 * MINUTE);
        }
        bench.world.open(&gate(&format!("tie-{n}"), 0));
    }
    for n in 0..ties {
        let id = format!("tie-{n}");
        bench.end(&id).await.unwrap();
        let out = bench.runtime.run(&id).await.unwrap().returned_as::<Vec<String>>().await.unwrap();
        drained += usize::from(out == ["drained 0"]);
        replays(&bench.tape(&id), &bench.clock, 5).await.unwrap();
    }
    bench.replays("tie-0").await;
    assert_eq!(drained + bench.world.bodies("sync"), ties);
}

#[durable::workflow]
async fn at_once(of: u32) -> u32 {
    let a = durable::race((async { 1 }, async { 2 })).await;
    let b =
        durable::race((0..of).map(|i| async move { if i == 3 { i } else { happens(i).await } }).collect::<Vec<_>>())
            .await;
    // Neither is begun that stands behind the one that was ready.
    a * 100 + b
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_branches_ready_at_once_the_first_one_wins_and_none_behind_it_is_begun() {
    let bench = Bench::on(Backend::Memory).await;
    (0..10).for_each(|n| bench.world.close(gate("ready", n)));
    let run = bench.runtime.start("ready", at_once(10)).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 103);
    let log = bench.log("ready").await;
    let closed = log.iter().filter(|entry| entry.name == "step.closed").map(|entry| entry.step.unwrap().0);
    assert_eq!(closed.collect::<Vec<_>>(), [0, 1, 2], "closed in the order begun");
    assert_eq!(log.iter().filter(|entry| entry.name == "effect.called").count(), 3);
    bench.replays("ready").await;
    until("the losers to be stopped", async || bench.runtime.bodies().is_empty()).await;
    every_cut(&bench, "ready").await;
}
