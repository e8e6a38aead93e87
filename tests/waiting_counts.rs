//! What waiting costs, in numbers of things done: no store operation while runs wait, and one replay for each that wakes.
//! `benches/waiting.rs` has the same in bytes and seconds, for 100,000 runs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/counting.rs"]
mod counting;

use std::{collections::BTreeSet, path::Path, time::Duration};

use counting::{Asked, Counting, replayed};
use durable::{
    Filter, RunId, Runtime, TestClock,
    store::sled::{SledOptions, SledStore},
};

/// Runs that wait for a signal, and as many that sleep.
const RUNS: usize = 30;
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[durable::workflow]
async fn waits(n: u64) -> u64 {
    n + durable::signal::<u64>("go").await
}

#[durable::workflow]
async fn sleeps() -> u64 {
    durable::sleep(DAY).await;
    1
}

/// A store that counts, and the clock that its runs have.
struct World {
    store: Counting,
    clock: TestClock,
    runtime: Runtime,
}

impl World {
    async fn open(dir: &Path, clock: &TestClock, evict_after: Duration) -> World {
        let store = Counting::new(SledStore::open(dir, SledOptions::new()).unwrap());
        let builder = Runtime::builder().clock(clock.clone()).evict_after(evict_after);
        let runtime = builder.open_store(store.clone()).await.unwrap();
        World { store, clock: clock.clone(), runtime }
    }

    async fn start_all(&self) {
        for n in 0..RUNS {
            self.runtime.start(format!("wait-{n}"), waits(n as u64)).await.unwrap();
            self.runtime.start(format!("sleep-{n}"), sleeps()).await.unwrap();
        }
    }

    /// Runs that all wait, and are in no memory.
    async fn of_waiting_runs(dir: &Path) -> World {
        let world = World::open(dir, &TestClock::at(DAY), Duration::ZERO).await;
        world.start_all().await;
        world.store.have_gone_to_wait(2 * RUNS).await;
        world.store.take();
        world
    }

    /// Wakes a run, and sees it end.
    async fn wake(&self, n: u64) {
        let run = self.runtime.start(format!("wait-{n}"), waits(n)).await.unwrap();
        run.signal("go", &35_u64).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), n + 35);
    }
}

fn ids(prefix: &str) -> BTreeSet<RunId> {
    (0..RUNS).map(|n| RunId::new(format!("{prefix}-{n}")).unwrap()).collect()
}

/// What was asked that is not about this run.
fn beside(asked: &[Asked], run: &str) -> Vec<Asked> {
    let other = |(_, of): &&Asked| of.as_ref().is_none_or(|of| of.as_str() != run);
    asked.iter().filter(other).cloned().collect()
}

#[tokio::test]
async fn a_signal_replays_the_run_that_it_is_for_and_no_store_operation_is_about_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::of_waiting_runs(dir.path()).await;
    world.clock.advance(HOUR);
    world.wake(7).await;
    let asked = world.store.take();
    assert_eq!(beside(&asked, "wait-7"), []);
    assert_eq!(replayed(&asked).len(), 1);
}

#[tokio::test]
async fn runs_that_are_due_at_one_instant_are_replayed_and_those_that_wait_for_something_else_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::of_waiting_runs(dir.path()).await;
    world.clock.advance(DAY);
    for n in 0..RUNS {
        let run = world.runtime.start(format!("sleep-{n}"), sleeps()).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), 1);
    }
    let asked = world.store.take();
    assert_eq!(replayed(&asked), ids("sleep"));
}

#[tokio::test]
async fn a_store_of_waiting_runs_is_opened_without_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    let World { runtime, clock, .. } = World::of_waiting_runs(dir.path()).await;
    runtime.shutdown(Duration::ZERO).await.unwrap();
    let world = World::open(dir.path(), &clock, Duration::ZERO).await;
    let asked = world.store.take();
    assert!(asked.iter().all(|(what, _)| *what == "runs"), "{asked:?}");
    world.wake(7).await;
    assert_eq!(beside(&world.store.take(), "wait-7"), []);
}

/// Memory does not grow with the number of runs that wait, however long they may stay in it.
#[tokio::test]
async fn only_so_many_runs_linger_in_memory_and_the_others_leave_at_once() {
    const LINGERING: usize = 500;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &TestClock::at(DAY), HOUR).await;
    for n in 0..LINGERING + RUNS {
        world.runtime.start(format!("wait-{n}"), waits(n as u64)).await.unwrap();
    }
    world.store.have_gone_to_wait(RUNS).await;
    world.runtime.shutdown(Duration::ZERO).await.unwrap();
    let world = World::open(dir.path(), &world.clock, Duration::ZERO).await;
    world.store.have_gone_to_wait(LINGERING).await;
    assert_eq!(replayed(&world.store.take()).len(), LINGERING);
}

/// The control of the counts: runs that have not left memory in time are replayed, all of them, and that is seen.
#[tokio::test]
async fn a_store_of_runs_that_were_let_go_of_early_is_seen_to_replay_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &TestClock::at(DAY), HOUR).await;
    world.start_all().await;
    world.runtime.shutdown(Duration::ZERO).await.unwrap();
    let world = World::open(dir.path(), &world.clock, Duration::ZERO).await;
    world.store.have_gone_to_wait(2 * RUNS).await;
    assert_eq!(replayed(&world.store.take()), ids("sleep").into_iter().chain(ids("wait")).collect());
}

/// The control of the silence: whoever asks the store now and then is seen.
#[tokio::test]
async fn somebody_who_polls_the_store_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::of_waiting_runs(dir.path()).await;
    world.runtime.runs(Filter::unfinished()).await.unwrap();
    world.wake(7).await;
    assert_ne!(beside(&world.store.take(), "wait-7"), []);
}
