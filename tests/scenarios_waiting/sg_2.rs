//! O-SG-2: signals while the run is busy, in order. A crash is a real one: the process that sends and runs is killed.

use std::path::Path;

use durable::{EffectContext, Runtime, TestClock, store::Write};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Bench, millis, open_sled, secs, until},
    child::{self, Talking, say, stop},
    frames,
    odd_store::{Fuse, appends, stopping},
    world::World,
};

#[durable::effect(idempotent)]
async fn busy(cx: &EffectContext, #[resource] world: &World) -> u32 {
    world.note(cx, "");
    world.pass("busy").await;
    0
}

#[durable::workflow]
async fn sums() -> Vec<u32> {
    let mut all = vec![busy().await];
    for _ in 0..10 {
        all.push(durable::signal::<u32>("n").await);
    }
    all
}

/// All that a sender has, with the ids by which it may repeat itself; another name between them.
async fn send(runtime: &Runtime, said: bool) {
    for n in 1..=10 {
        runtime.signal("run", "other", &(100 + n)).id(n.to_string()).await.unwrap();
        runtime.signal("run", "n", &n).id(n.to_string()).await.unwrap();
        if said {
            say(&format!("sent {n}"));
        }
    }
}

/// `K2`: in the body, all sent. `K4`: its outcome is durable. `fifth`: so is the fifth message's receipt, and the others are not sent.
/// `sending`: says what was sent, until it is killed.
pub(crate) async fn child(dir: &Path, word: &str) {
    let world = World::in_file(dir.join("ledger"));
    world.close("busy");
    let (is, fuse): (fn(&Write) -> bool, _) = match word {
        "K4" => (|write| frames::names(write).contains(&"effect.result"), Fuse::After(1)),
        _ => (appends, Fuse::After(usize::MAX)),
    };
    let store = stopping(open_sled(dir.join("store")).await.unwrap(), is, fuse);
    let builder = Runtime::builder().resource(world.clone()).clock(TestClock::at(BEGINNING));
    let runtime = builder.open_store(store).await.unwrap();
    runtime.start("run", sums()).await.unwrap();
    world.until_noted("busy", 1).await;
    if word == "fifth" {
        world.open("busy");
        let run = runtime.run("run").await.unwrap();
        for n in 1..=5 {
            run.signal("n", &n).id(n.to_string()).await.unwrap();
            let received = async || run.log().await.unwrap().iter().filter(|e| e.name == "signal.received").count();
            until("its receipt", async || received().await == n).await;
        }
        stop();
    }
    send(&runtime, word == "sending").await;
    if word == "K2" {
        stop();
    }
    world.open("busy");
    std::future::pending::<()>().await;
}

/// What must be there in the end: each in order, the other name untouched.
async fn in_order(bench: &Bench, at: &str) {
    assert_eq!(bench.end("run").await, json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), "{at}");
    let unread = bench.runtime.run("run").await.unwrap().messages().await.unwrap();
    let unread: Vec<_> = unread.iter().map(|message| (message.name.as_str(), message.value.clone())).collect();
    assert_eq!(unread, (101..=110).map(|n| ("other", json!(n))).collect::<Vec<_>>(), "{at}");
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_came_while_the_run_was_busy_are_taken_in_order() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("busy");
        bench.runtime.start("run", sums()).await.unwrap();
        bench.world.until_noted("busy", 1).await;
        send(&bench.runtime, false).await;
        bench.advance(secs(2)).await;
        bench.world.open("busy");
        in_order(&bench, "without a crash").await;
        assert_eq!(bench.world.bodies("busy"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_is_lost_or_doubled_when_the_process_is_killed() {
    // Bodies begun in the end: the one that the kill interrupted runs again.
    for (word, bodies, received) in [("K2", 2, 0), ("K4", 1, 0), ("fifth", 1, 5)] {
        let dir = tempfile::tempdir().unwrap();
        child::killed("sg_2", dir.path(), word);
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + millis(10))).await;
        if received > 0 {
            assert!(bench.count("run", "signal.received").await >= received, "{word}");
            send(&bench.runtime, false).await;
        }
        in_order(&bench, word).await;
        assert_eq!(bench.world.bodies("busy"), bodies, "{word}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_before_a_kill_is_delivered_and_the_rest_may_be_sent_again() {
    for last in [1, 4, 9] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Talking::start("sg_2", dir.path(), "sending");
        while child.said().unwrap() != format!("sent {last}") {}
        child.kill();
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + millis(10))).await;
        let run = bench.runtime.run("run").await.unwrap();
        // In this order: one that is taken meanwhile is counted twice, and not left out.
        let unread = run.messages().await.unwrap().iter().filter(|message| message.name == "n").count();
        let taken = bench.count("run", "signal.received").await;
        assert!(taken + unread >= last, "{taken} and {unread} of {last}");
        // The sender does not know which of them were accepted.
        send(&bench.runtime, false).await;
        in_order(&bench, &format!("killed after {last}")).await;
    }
}
