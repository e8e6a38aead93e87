//! O-OV-1: ten thousand runs at restart.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use durable::{Clock, EffectContext, Filter, Runtime, Status, StatusKind, TestClock, store::Store};

use crate::{
    bench::{BEGINNING, open_sled, secs, until},
    child,
    odd::Odd,
    tm_2::Watched,
    world::World,
};

const RUNS: usize = 10_000;
const BODIES_AT_ONCE: usize = 50;

/// Bodies under way now, and at most.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static BEGUN: AtomicUsize = AtomicUsize::new(0);

#[durable::effect(idempotent)]
async fn work(_cx: &EffectContext, #[resource] world: &World, n: usize) -> usize {
    MOST.fetch_max(1 + NOW.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    world.pass("work").await;
    NOW.fetch_sub(1, Ordering::SeqCst);
    n
}

/// Half sleep, a quarter wait for a signal, a quarter work.
#[durable::workflow]
async fn crowd(n: usize) -> usize {
    match n % 4 {
        0 | 1 => durable::sleep(secs(3_600)).await,
        2 => durable::signal("go").await,
        _ => {
            work(n).await;
        }
    }
    n
}

#[durable::workflow]
async fn passer_by() -> u32 {
    5
}

/// Starts all, and dies when the bodies that may run at once do.
pub(crate) async fn child(dir: &Path) {
    let world = World::in_file(dir.join("ledger"));
    world.close("work");
    let store = open_sled(dir.join("store")).await.unwrap();
    let builder = Runtime::builder().resource(world).clock(TestClock::at(BEGINNING)).bodies_at_once(BODIES_AT_ONCE);
    let runtime = builder.open_store(store).await.unwrap();
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..RUNS {
        let runtime = runtime.clone();
        starts.spawn(async move { runtime.start(format!("run {n:05}"), crowd(n)).await.map(drop) });
    }
    while let Some(started) = starts.join_next().await {
        started.unwrap().unwrap();
    }
    until("the bodies that may", async || BEGUN.load(Ordering::SeqCst) == BODIES_AT_ONCE).await;
    std::process::abort();
}

async fn count(runtime: &Runtime, status: StatusKind) -> usize {
    runtime.runs(Filter::all().workflow("crowd").status(status)).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_runs_go_on_without_more_bodies_than_allowed_and_wait_without_asking() {
    let dir = tempfile::tempdir().unwrap();
    child::dies("ov_1", dir.path(), "");

    let (watched, world) = (Watched::new(), World::new());
    world.close("work");
    let store = open_sled(dir.path().join("store")).await.unwrap();
    let store = Arc::new(Odd::new(store, Store::submit));
    let builder = Runtime::builder().resource(world.clone()).clock(watched.clone()).bodies_at_once(BODIES_AT_ONCE);
    let runtime = builder.open_store(store.clone()).await.unwrap();
    // While the runs come back, a new one is started and ends, though every slot is taken.
    assert_eq!(runtime.start("passer-by", passer_by()).await.unwrap().returned().await.unwrap(), 5);
    until("all to be replayed", async || count(&runtime, StatusKind::Opening).await == 0).await;
    until("the bodies that may", async || BEGUN.load(Ordering::SeqCst) == BODIES_AT_ONCE).await;
    assert_eq!(runtime.start("late", passer_by()).await.unwrap().returned().await.unwrap(), 5);
    assert_eq!(count(&runtime, StatusKind::Sleeping).await, RUNS / 2);
    assert_eq!(count(&runtime, StatusKind::AwaitingSignal).await, RUNS / 4);
    assert_eq!(count(&runtime, StatusKind::Running).await, RUNS / 4);
    assert_eq!(runtime.bodies().len(), BODIES_AT_ONCE);
    // Nor does a signal or a cancel wait for those that work.
    runtime.signal("run 00002", "go", &()).await.unwrap();
    assert_eq!(runtime.run("run 00002").await.unwrap().returned_as::<usize>().await.unwrap(), 2);
    assert_eq!(runtime.cancel("run 00006", "no more").await.unwrap().as_str(), "cancelled");

    world.open("work");
    until("the work done", async || count(&runtime, StatusKind::Completed).await == RUNS / 4 + 1).await;
    assert_eq!(MOST.load(Ordering::SeqCst), BODIES_AT_ONCE);
    assert_eq!(BEGUN.load(Ordering::SeqCst), RUNS / 4, "each of them once in this process");

    // Seven and a half thousand runs wait, out of memory, and nobody asks the store or the clock on their behalf.
    let waiting = async || {
        let runs = runtime.runs(Filter::unfinished()).await.unwrap();
        runs.iter().all(|run| store.inner.run(&run.id).unwrap().unwrap().is_waiting())
    };
    until("all to leave memory", waiting).await;
    let counts = || (store.reads.load(Ordering::SeqCst), store.writes.load(Ordering::SeqCst));
    let before = counts();
    let sleeps = watched.count();
    for second in 0..60 {
        let looks = watched.count();
        watched.clock.advance(secs(1));
        until("the one look at the clock", async || watched.count() > looks).await;
        assert!(watched.clock.monotonic() == 1_000 * (second + 1));
    }
    assert_eq!(counts(), before, "the store was asked for waiting runs");
    assert!(watched.count() - sleeps <= 2 * 60, "{} looks at the clock in a minute", watched.count() - sleeps);

    watched.clock.advance(secs(3_600));
    until("the sleepers awake", async || count(&runtime, StatusKind::Completed).await == RUNS / 4 * 3 + 1).await;
    assert_eq!(count(&runtime, StatusKind::AwaitingSignal).await, RUNS / 4 - 2);
    assert!(runtime.audit().await.unwrap().is_empty());
    assert_eq!(runtime.run("run 00003").await.unwrap().status().await.unwrap(), Status::Completed);
    runtime.shutdown(secs(0)).await.unwrap();
}
