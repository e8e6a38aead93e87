//! O-ND-7: an early return with branches still open.
//!
//! K5 is a cut of the log before its terminal entry. A child among the branches is in `nd_7_child`.

use std::time::Duration;

use durable::{EffectContext, Status};

use crate::support::{BOTH, Backend, Bench, World, every_cut_ends, every_cut_in, until};

/// A call that nobody can take back: it goes on until its gate opens.
#[durable::effect(idempotent)]
pub(crate) async fn send(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.note(cx, what);
    world.pass(what).await;
    match what.strip_prefix("no ") {
        Some(_) => Err(durable::Failure::new(what)),
        None => Ok(what.to_owned()),
    }
}

/// A call that returns as soon as it is told that nobody waits.
#[durable::effect(idempotent)]
async fn obey(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.note(cx, what);
    cx.cancelled().await;
    Ok(what.to_owned())
}

#[durable::effect(read_only)]
async fn look(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.note(cx, what);
    world.pass(what).await;
    Ok(what.to_owned())
}

/// Ways to leave branches behind.
#[durable::workflow]
async fn leaves(way: String) -> durable::Result<String> {
    let (quick, stuck) = if way.starts_with("err") { ("no e1", "e2") } else { ("e1", "e2") };
    match way.as_str() {
        "race" => durable::race((send(quick), send(stuck), look("e3"))).await,
        "err try_join" => {
            let (a, ..) = durable::try_join((send(quick), send(stuck), look("e3"))).await?;
            Ok(a)
        }
        "err try_join_all" => {
            let all = durable::try_join_all([send(quick), send(stuck), send("e3")]).await?;
            Ok(all.concat())
        }
        "set" | "err set" => {
            let mut set = durable::Set::new();
            set.add(send(quick));
            set.add(send(stuck));
            set.add(send("e3"));
            set.next().await.unwrap_or_else(|| Ok(String::new()))
        }
        "begin" | "err begin" => {
            let _stuck = durable::begin(send(stuck)).await;
            let _read = durable::begin(look("e3")).await;
            let _asleep = durable::begin(durable::sleep(Duration::from_secs(3_600))).await;
            let quick = send(quick).await?;
            Ok(quick)
        }
        "dropped" => {
            let stuck = durable::begin(send(stuck)).await;
            let read = durable::begin(look("e3")).await;
            let quick = send(quick).await;
            drop(read);
            drop(stuck);
            quick
        }
        "timeout" => {
            let _ = durable::timeout(Duration::from_secs(60), send(stuck)).await;
            send(quick).await
        }
        _ => unreachable!("no such way"),
    }
}

const WAYS: [&str; 9] =
    ["race", "err try_join", "err try_join_all", "set", "err set", "begin", "err begin", "dropped", "timeout"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_closes_what_is_open_and_ends_when_bodies_have() {
    for backend in BOTH {
        for way in WAYS {
            let bench = Bench::on(backend).await;
            bench.world.close("e2");
            bench.world.close("e3");
            let run = bench.runtime.start("leaves", leaves(way.into())).await.unwrap();
            if way == "timeout" {
                bench.world.until_noted("send", 1).await;
                bench.until_status("leaves", "running", |status| *status == Status::Running).await;
                until("the timer", async || bench.names("leaves").await.contains(&"timer.set")).await;
                bench.clock.advance(Duration::from_secs(60));
            }
            // The code is over, and the body that nobody waits for is not: the run is ending, and says so.
            bench.until_status("leaves", "ending", |status| *status == Status::Ending).await;
            let log = bench.log("leaves").await;
            let ending = log.iter().position(|entry| entry.name == "run.ending").unwrap();
            assert_eq!(ending, log.len() - 1, "{way}");
            let closed: Vec<u32> = log.iter().filter(|e| e.name == "step.closed").map(|e| e.step.unwrap().0).collect();
            // Branches in the order begun; what variables hold, in the order in which they are dropped: here the last one first.
            let in_order =
                closed.is_sorted() || ((way.contains("begin") || way == "dropped") && closed.iter().rev().is_sorted());
            assert!(in_order && !closed.is_empty(), "{way}: closed {closed:?}");
            let listed = bench.runtime.bodies();
            let held: Vec<_> = listed.iter().map(|body| (body.effect, body.path.clone())).collect();
            assert!(held.iter().all(|(effect, _)| *effect == "send") && !held.is_empty(), "{way}: {held:?}");
            // What is cut off before the end is found by the next process, which repeats nothing and reaches the same end.
            bench.world.open("e2");
            bench.world.open("e3");
            let returned = run.returned().await.unwrap();
            assert_eq!(returned.is_err(), way.starts_with("err"), "{way}");
            assert_eq!(bench.world.inputs("send").iter().filter(|what| what.ends_with("e1")).count(), 1, "{way}");
            let names = bench.names("leaves").await;
            assert!(names.last().is_some_and(|last| ["run.completed", "run.failed"].contains(last)));
            until("the bodies", async || bench.runtime.bodies().is_empty()).await;
            assert_eq!(bench.names("leaves").await, names, "{way}: nothing follows the terminal entry");
            bench.replays("leaves").await;
            if backend == Backend::Memory {
                cut_anywhere(&bench, way).await;
            }
        }
    }
}

/// From every cut the same end is reached, and no body whose outcome is in the log runs again. (A `read_only` body that was
/// closed has no outcome.)
async fn cut_anywhere(bench: &Bench, way: &str) {
    let (tape, log) = (bench.tape("leaves"), bench.log("leaves").await);
    let ending = log.iter().position(|entry| entry.name == "run.ending").unwrap();
    for cut in [ending, ending + 1, tape.frames.len() - 1] {
        let next = Bench::after(&tape, cut, &bench.clock).await;
        next.end("leaves").await.unwrap();
        assert_eq!(crate::support::end_of(&next.log("leaves").await), crate::support::end_of(&log), "{way} at {cut}");
        assert!(next.world.ledger().is_empty(), "{way} at {cut}: {:?}", next.world.ledger());
        crate::support::replays(&next.tape("leaves"), &bench.clock, 2).await.unwrap();
    }
}

#[durable::workflow]
async fn tells_to_stop() -> durable::Result<String> {
    durable::race((send("e1"), obey("told"))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_obeys_lets_its_run_end_at_once() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("obeys", tells_to_stop()).await.unwrap();
        assert_eq!(run.output().await.unwrap(), "e1");
        let log = bench.log("obeys").await;
        let results = log.iter().filter(|entry| entry.name == "effect.result").count();
        assert_eq!(results, 2, "the outcome that nobody waits for is recorded");
        bench.replays("obeys").await;
        until("the bodies", async || bench.runtime.bodies().is_empty()).await;
        every_cut_ends(&bench, "obeys").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_never_obeys_is_in_doubt_after_the_grace_and_its_run_ends() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("e2");
    bench.world.close("e3");
    bench.runtime.start("leaves", leaves("race".into())).await.unwrap();
    bench.until_status("leaves", "ending", |status| *status == Status::Ending).await;
    bench.clock.advance(Duration::from_secs(30));
    bench.end("leaves").await.unwrap();
    let names = bench.names("leaves").await;
    assert_eq!(names[names.len() - 3..], ["run.ending", "effect.in_doubt", "run.completed"]);
    assert_eq!(bench.runtime.bodies().len(), 1, "it is listed as long as it runs");
    let frames = bench.tape("leaves").frames;
    bench.world.open("e2");
    until("the body", async || bench.runtime.bodies().is_empty()).await;
    assert_eq!(bench.tape("leaves").frames, frames, "it cannot append after the end");
    bench.replays("leaves").await;
}

/// Its parts are dropped in the order in which they were begun, and each says which steps it closes.
#[durable::workflow]
async fn deep_drop() -> durable::Result<String> {
    let nested = async {
        let _begun = durable::begin(look("b0")).await;
        durable::join((look("b1"), async { look("b2").await })).await.0
    };
    let all = async { durable::join_all((3..6).map(|i| async move { look(&format!("b{i}")).await })).await.remove(0) };
    durable::race((nested, all, send("e1"))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_branches_are_closed_in_one_order_live_and_on_replay() {
    let bench = Bench::on(Backend::Memory).await;
    (0..6).for_each(|n| bench.world.close(format!("b{n}")));
    let run = bench.runtime.start("deep", deep_drop()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "e1");
    let closed = bench.log("deep").await.iter().filter(|e| e.name == "step.closed").count();
    assert_eq!(closed, 6);
    bench.replays("deep").await;
    let world = || {
        let world = World::new();
        (0..6).for_each(|n| world.close(format!("b{n}")));
        world
    };
    every_cut_in(&bench, "deep", world).await;
}

/// Begun and dropped before anything was awaited: all in one poll.
#[durable::workflow]
async fn drops_at_once() -> durable::Result<String> {
    drop(durable::begin(send("e2")).await);
    drop(durable::begin(look("e3")).await);
    send("e1").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_in_the_poll_that_asked_for_it_never_begins() {
    let bench = Bench::on(Backend::Memory).await;
    assert_eq!(bench.runtime.start("at once", drops_at_once()).await.unwrap().output().await.unwrap(), "e1");
    assert_eq!(bench.world.inputs("send"), ["e1"]);
    assert!(bench.names("at once").await.contains(&"effect.not_started"), "so that no restart holds it in doubt");
    bench.replays("at once").await;
    let tape = bench.tape("at once");
    for cut in 1..tape.frames.len() {
        let next = Bench::after(&tape, cut, &bench.clock).await;
        next.end("at once").await.unwrap();
        next.replays("at once").await;
    }
}
