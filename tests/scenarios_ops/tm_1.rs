//! O-TM-1: a timer that is due while nothing runs.

use std::path::Path;

use durable::{EffectContext, Runtime, Status, TestClock};

use crate::{
    bench::{BEGINNING, BOTH, Backend, Bench, millis, open_sled, secs},
    child,
    odd_store::{Fuse, appends, fused},
    world::World,
};

#[durable::effect(idempotent)]
async fn ring(cx: &EffectContext, #[resource] world: &World) {
    world.note(cx, "");
}

#[durable::workflow]
async fn alarm() {
    durable::sleep(secs(10)).await;
    ring().await;
}

/// Dies at the write named while its timer is fired.
pub(crate) async fn child(dir: &Path, word: &str) {
    let fuse = match word {
        "before firing" => Fuse::Before(2),
        "after firing" => Fuse::After(2),
        _ => Fuse::Before(3),
    };
    let clock = TestClock::at(BEGINNING);
    let store = fused(open_sled(dir.join("store")).await.unwrap(), appends, fuse);
    let world = World::in_file(dir.join("ledger"));
    let runtime = Runtime::builder().resource(world).clock(clock.clone()).open_store(store).await.unwrap();
    let run = runtime.start("run", alarm()).await.unwrap();
    crate::bench::until("asleep", async || run.status().await.unwrap().as_str() == "sleeping").await;
    clock.advance(secs(10));
    run.returned().await.unwrap();
}

async fn asleep(backend: Backend) -> Bench {
    let bench = Bench::on(backend).await;
    bench.runtime.start("run", alarm()).await.unwrap();
    let status = bench.until_word("run", "sleeping").await;
    assert_eq!(status, Status::Sleeping { until: std::time::UNIX_EPOCH + BEGINNING + secs(10) });
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_ends_at_its_deadline_or_when_the_process_is_back() {
    for backend in BOTH {
        for back_at in [secs(5), secs(10), secs(3_600), secs(30 * 86_400)] {
            let bench = asleep(backend).await;
            bench.clock.advance(secs(3));
            // The process is gone, and time goes on without it.
            let bench = bench.restarted_after(back_at - secs(3)).await;
            if back_at < secs(10) {
                bench.until_word("run", "sleeping").await;
                bench.advance(secs(5) - millis(1)).await;
                assert_eq!(bench.world.bodies("ring"), 0, "not before its time");
                bench.advance(millis(1)).await;
            }
            bench.end("run").await;
            assert_eq!(bench.world.bodies("ring"), 1);
            assert_eq!(bench.count("run", "timer.fired").await, 1);
            bench.replays("run").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_while_a_timer_fires_fires_it_once() {
    for word in ["before firing", "after firing", "after that"] {
        let dir = tempfile::tempdir().unwrap();
        child::dies("tm_1", dir.path(), word);
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + secs(10))).await;
        bench.end("run").await;
        assert_eq!(bench.count("run", "timer.fired").await, 1, "{word}");
        // Its outcome was not durable in the last case, and it may be repeated.
        assert_eq!(bench.world.bodies("ring"), if word == "after that" { 2 } else { 1 }, "{word}");
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sleeps_that_end_in_one_moment_all_end() {
    let bench = Bench::on(Backend::Memory).await;
    for n in 0..1_000 {
        bench.runtime.start(format!("run {n}"), alarm()).await.unwrap();
        bench.until_word(&format!("run {n}"), "sleeping").await;
    }
    let bench = bench.crashed().await;
    bench.clock.advance(secs(10));
    for n in 0..1_000 {
        bench.end(&format!("run {n}")).await;
    }
    assert_eq!(bench.world.bodies("ring"), 1_000);
}
