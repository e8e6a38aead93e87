//! What a caller does must not matter to a run: where it starts it from, whether it stops waiting, what values it gives.

#![expect(clippy::unwrap_used, reason = "a caller that gets no answer fails the test")]

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use durable::{Clock, Code, Hold, Millis, Resolution, Runtime, Status, SystemClock, store::memory::MemoryStore};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::runtime::Runtime as Tokio;

#[durable::workflow]
async fn nap(ms: u64) -> u64 {
    durable::sleep(Duration::from_millis(ms)).await;
    ms
}

#[test]
fn a_run_that_is_started_from_a_runtime_that_ends_goes_on() {
    let home = Tokio::new().unwrap();
    let runtime = home.block_on(Runtime::builder().open_in_memory()).unwrap();
    let away = Tokio::new().unwrap();
    let run = away.block_on(runtime.start("r", nap(50))).unwrap();
    drop(away);
    assert_eq!(home.block_on(run.returned()).unwrap(), 50);
    home.block_on(runtime.shutdown(Duration::ZERO)).unwrap();
}

#[test]
fn a_start_that_nobody_waits_for_any_more_leaves_a_run_that_goes_on() {
    let tokio = Tokio::new().unwrap();
    tokio.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().open(dir.path().join("store")).await.unwrap();
        for i in 0..20u64 {
            let start = runtime.start(format!("r{i}"), nap(0));
            let _ = tokio::time::timeout(Duration::from_micros(50 * i), start).await;
        }
        // Behind all that was submitted before it.
        runtime.start("last", nap(0)).await.unwrap().returned().await.unwrap();
        for info in runtime.runs(durable::Filter::all()).await.unwrap() {
            let run = runtime.run(&info.id).await.unwrap();
            assert_eq!(run.returned_as::<u64>().await.unwrap(), 0, "{}", info.id);
        }
        runtime.shutdown(Duration::ZERO).await.unwrap();
    });
}

#[durable::effect(at_most_once)]
async fn balance() -> durable::Result<Option<i128>> {
    panic!("nobody knows")
}

#[durable::effect(at_most_once)]
async fn rate() -> Option<f64> {
    panic!("nobody knows")
}

#[durable::effect(at_most_once)]
async fn done() -> durable::Result<()> {
    panic!("nobody knows")
}

#[durable::workflow]
async fn asks(what: String) -> String {
    match what.as_str() {
        "balance" => format!("{:?}", balance().await.map_err(|e| e.to_string())),
        "rate" => format!("{:?}", rate().await),
        _ => format!("{:?}", done().await.map_err(|e| e.to_string())),
    }
}

async fn hold_of(runtime: &Runtime, run: &str) -> Hold {
    loop {
        let holds = runtime.holds().await.unwrap();
        if let Some(hold) = holds.into_iter().find(|hold| hold.run.as_str() == run) {
            return hold;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_value_that_a_person_gives_arrives_as_it_was_given_or_is_refused() {
    let runtime = Runtime::builder().open_in_memory().await.unwrap();
    for (what, resolution, got) in [
        ("balance", Resolution::succeeded(Some(i128::MAX)), Some(format!("Ok(Some({}))", i128::MAX))),
        ("rate", Resolution::succeeded(Some(f64::INFINITY)), Some("Some(inf)".into())),
        ("done", Resolution::succeeded(BTreeMap::from([((1u8, 2u8), 3u64)])), None),
    ] {
        let run = runtime.start(what, asks(what.into())).await.unwrap();
        let hold = hold_of(&runtime, what).await;
        let answer = runtime.resolve(what, hold.step, hold.attempt, resolution).await;
        match got {
            Some(got) => {
                answer.unwrap();
                assert_eq!(run.returned().await.unwrap(), got);
            }
            None => assert_eq!(answer.unwrap_err().code(), Code::ValueDoesNotFit),
        }
    }
}

/// What today's code takes.
static MOST: AtomicU8 = AtomicU8::new(100);

#[derive(Serialize)]
struct Percent(u8);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percent, D::Error> {
        let percent = u8::deserialize(deserializer)?;
        assert!(percent <= MOST.load(Ordering::SeqCst), "{percent} percent");
        Ok(Percent(percent))
    }
}

#[durable::workflow]
async fn discount(percent: Percent) -> u8 {
    percent.0
}

#[derive(Serialize, Deserialize)]
struct Tags {
    tags: HashSet<String>,
}

#[durable::workflow]
async fn tagged(tags: Tags, by_name: HashMap<String, u8>) -> usize {
    tags.tags.len() + by_name.len()
}

#[tokio::test]
async fn an_argument_that_replay_would_see_otherwise_is_refused_at_the_start() {
    let runtime = Runtime::builder().open_in_memory().await.unwrap();
    let panics = runtime.start("p", discount(Percent(101))).await.unwrap_err();
    assert_eq!(panics.code(), Code::ArgumentNotRecordable);
    assert!(panics.to_string().contains("percent"), "{panics}");
    let words = || (0..8).map(|i| i.to_string());
    let set = runtime.start("s", tagged(Tags { tags: words().collect() }, HashMap::new())).await.unwrap_err();
    assert_eq!(set.code(), Code::ArgumentNotRecordable);
    assert!(set.to_string().contains("BTreeSet"), "{set}");
    // A map's entries are compared sorted.
    let map = words().map(|word| (word, 1)).collect();
    let run = runtime.start("m", tagged(Tags { tags: HashSet::new() }, map)).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 8);
}

#[durable::workflow]
async fn discount_later(percent: Percent) -> u8 {
    durable::sleep(Duration::from_secs(3600)).await;
    percent.0
}

#[tokio::test]
async fn an_argument_on_which_new_code_panics_parks_the_run_with_the_panics_words() {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder().open_store(store.clone()).await.unwrap();
    runtime.start("r", discount_later(Percent(90))).await.unwrap();
    runtime.shutdown(Duration::ZERO).await.unwrap();
    MOST.store(50, Ordering::SeqCst);
    let runtime = Runtime::builder().open_store(store.reopened()).await.unwrap();
    let run = runtime.run("r").await.unwrap();
    let error = run.returned_as::<u8>().await.unwrap_err();
    MOST.store(100, Ordering::SeqCst);
    assert_eq!(error.code(), Code::Panicked);
    assert!(error.to_string().contains("90 percent"), "{error}");
    runtime.retry("r").await.unwrap();
    while !matches!(run.status().await.unwrap(), Status::Sleeping { .. }) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

static THOUGHTS: AtomicU32 = AtomicU32::new(0);

#[durable::effect(read_only, retry(attempts = 1))]
async fn think() -> durable::Result<u32> {
    // Longer than any shutdown waits, until the last time.
    if THOUGHTS.fetch_add(1, Ordering::SeqCst) < 3 {
        std::future::pending::<()>().await;
    }
    Ok(7)
}

#[durable::workflow]
async fn thinker() -> durable::Result<u32> {
    think().await
}

#[tokio::test]
async fn a_read_that_a_shutdown_drops_is_no_attempt() {
    let mut store = Arc::new(MemoryStore::new());
    for begun in 1..=3 {
        let runtime = Runtime::builder().open_store(store.clone()).await.unwrap();
        runtime.start("r", thinker()).await.unwrap();
        while THOUGHTS.load(Ordering::SeqCst) < begun {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let report = runtime.shutdown(Duration::ZERO).await.unwrap();
        assert_eq!(report.abandoned.len(), 1);
        store = Arc::new(store.reopened());
    }
    let runtime = Runtime::builder().open_store(store).await.unwrap();
    let run = runtime.start("r", thinker()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
}

#[durable::workflow]
async fn drops_a_map() -> usize {
    let mut naps = HashMap::new();
    for i in 0..8u64 {
        naps.insert(i.to_string(), durable::begin(durable::sleep(Duration::from_secs(3600))).await);
    }
    let dropped = naps.len();
    drop(naps);
    durable::sleep(Duration::from_secs(3600)).await;
    dropped
}

#[tokio::test]
async fn the_order_in_which_a_hash_map_drops_its_steps_is_nobodys_business() {
    let mut store = Arc::new(MemoryStore::new());
    for _ in 0..5 {
        let runtime = Runtime::builder().open_store(store.clone()).await.unwrap();
        let run = runtime.start("r", drops_a_map()).await.unwrap();
        loop {
            match run.status().await.unwrap() {
                Status::Sleeping { .. } if run.log().await.unwrap().len() == 18 => break,
                Status::Parked(parked) => panic!("{}", parked.why),
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        runtime.shutdown(Duration::ZERO).await.unwrap();
        store = Arc::new(store.reopened());
    }
}

/// A clock whose wall shows tomorrow, once.
#[derive(Debug)]
struct Glitch {
    clock: SystemClock,
    once: Arc<AtomicBool>,
}

impl Clock for Glitch {
    fn wall(&self) -> Millis {
        let day = if self.once.swap(false, Ordering::SeqCst) { 24 * 60 * 60 * 1000 } else { 0 };
        self.clock.wall() + day
    }

    fn monotonic(&self) -> Millis {
        self.clock.monotonic()
    }

    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.clock.sleep(wait)
    }
}

#[durable::workflow]
async fn until(at_ms: u64) -> u64 {
    durable::sleep_until(UNIX_EPOCH + Duration::from_millis(at_ms)).await;
    at_ms
}

#[tokio::test]
async fn a_wall_clock_that_shows_tomorrow_once_loses_no_deadline() {
    let once = Arc::new(AtomicBool::new(false));
    let clock = SystemClock::new();
    let soon = clock.wall() + 300;
    let runtime = Runtime::builder().clock(Glitch { clock, once: once.clone() }).open_in_memory().await.unwrap();
    let run = runtime.start("r", until(soon)).await.unwrap();
    while !matches!(run.status().await.unwrap(), Status::Sleeping { .. }) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    once.store(true, Ordering::SeqCst);
    // Another run's timer makes the runtime look at the clock that shows tomorrow.
    runtime.start("other", nap(1)).await.unwrap().returned().await.unwrap();
    assert_eq!(run.returned().await.unwrap(), soon);
}
