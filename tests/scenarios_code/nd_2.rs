//! O-ND-2: effects asked in the order of a `HashMap`.
//!
//! A new process has a new hash seed; here the seed is a number that the test changes between two runtimes, so that the orders are
//! known. K4 is a cut of the log behind the third charge's outcome.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, DefaultHasher, Hasher},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use durable::{Code, EffectContext};
use tokio::sync::Mutex;

use crate::support::{BOTH, Backend, Bench, World};

const ITEMS: [(&str, u64); 8] =
    [("tea", 3), ("oats", 5), ("rice", 7), ("salt", 11), ("milk", 13), ("figs", 17), ("soap", 19), ("rope", 23)];

/// Hashes of another process.
#[derive(Clone)]
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// This process's seed, and whether the code calls every item by a longer name. One test at a time may set them.
static SEED: AtomicU64 = AtomicU64::new(0);
static RENAMED: AtomicBool = AtomicBool::new(false);
static TURN: Mutex<()> = Mutex::const_new(());

fn items() -> HashMap<String, u64, Seeded> {
    let mut map = HashMap::with_hasher(Seeded(SEED.load(Ordering::SeqCst)));
    let renamed = if RENAMED.load(Ordering::SeqCst) { "s" } else { "" };
    map.extend(ITEMS.map(|(item, amount)| (format!("{item}{renamed}"), amount)));
    map
}

fn order(seed: u64) -> Vec<String> {
    SEED.store(seed, Ordering::SeqCst);
    items().into_keys().collect()
}

#[durable::effect(at_most_once)]
async fn charge(cx: &EffectContext, #[resource] world: &World, item: &str, amount: u64) -> durable::Result<u64> {
    world.note(cx, format!("{item} {amount}"));
    Ok(amount)
}

#[durable::workflow]
async fn by_hash() -> durable::Result<u64> {
    let mut sum = 0;
    for (item, amount) in items() {
        sum += charge(&item, amount).await?;
    }
    Ok(sum)
}

#[durable::workflow]
async fn by_name() -> durable::Result<u64> {
    let mut sum = 0;
    for (item, amount) in BTreeMap::from(ITEMS) {
        sum += charge(item, amount).await?;
    }
    Ok(sum)
}

/// All at once: the outcomes of eight calls of one name must not change hands either.
#[durable::workflow]
async fn all_at_once() -> durable::Result<u64> {
    let all = durable::join_all(items().iter().map(|(item, amount)| charge(item, *amount))).await;
    let mut sum = 0;
    for (amount, (_, asked)) in all.into_iter().zip(items()) {
        assert_eq!(amount.as_ref(), Ok(&asked), "somebody else's outcome");
        sum += amount?;
    }
    Ok(sum)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_is_a_divergence_at_the_first_item_that_differs() {
    let _turn = TURN.lock().await;
    for backend in BOTH {
        let before = order(1);
        let bench = Bench::on(backend).await;
        bench.runtime.start("hash", by_hash()).await.unwrap().output().await.unwrap();
        assert_eq!(bench.world.bodies("charge"), 8);
        bench.replays("hash").await;
        let (tape, log) = (bench.tape("hash"), bench.log("hash").await);
        let third = log.iter().filter(|entry| entry.name == "effect.result").nth(2).unwrap().seq.0 as usize + 1;
        let mut places = std::collections::BTreeSet::new();
        for seed in 2..400 {
            let after = order(seed);
            let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
            if same >= 3 || !places.insert(same) {
                continue;
            }
            let next = Bench::after(&tape, third, &bench.clock).await;
            let error = next.parked("hash").await;
            assert_eq!(error.code(), Code::Diverged);
            let text = error.to_string();
            let asked = items()[&after[same]];
            let recorded = items()[&before[same]];
            let at = 1 + 2 * same;
            for part in [
                format!("run hash is parked: the code and the log disagree: the log holds at seq {at} "),
                format!("\"item\":\"{}\",\"amount\":{recorded}", before[same]),
                format!("\"item\":\"{}\",\"amount\":{asked}", after[same]),
                "asks for effect.called charge".to_owned(),
                "nd_2.rs:".to_owned(),
                "put the old code back".to_owned(),
            ] {
                assert!(text.contains(&part), "{part} is not in {text}");
            }
            assert!(next.world.ledger().is_empty(), "no item is charged by code that has diverged");
            assert_eq!(next.tape("hash").frames, tape.frames[..third]);
            // The old order, put back, goes on: every item once over both processes.
            order(1);
            next.runtime.retry("hash").await.unwrap();
            next.end("hash").await.unwrap();
            assert_eq!(next.world.bodies("charge"), 5);
            next.replays("hash").await;
        }
        assert_eq!(places.into_iter().collect::<Vec<_>>(), [0, 1, 2], "each place was tried");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_items_in_the_old_order_are_a_divergence() {
    let _turn = TURN.lock().await;
    order(1);
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("hash", by_hash()).await.unwrap().output().await.unwrap();
    RENAMED.store(true, Ordering::SeqCst);
    for cut in 2..bench.tape("hash").frames.len() {
        let next = Bench::after(&bench.tape("hash"), cut, &bench.clock).await;
        assert_eq!(next.parked("hash").await.code(), Code::Diverged);
        assert!(next.world.ledger().is_empty());
    }
    RENAMED.store(false, Ordering::SeqCst);
    bench.replays("hash").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_made_together_do_not_change_hands() {
    let _turn = TURN.lock().await;
    order(1);
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("together", all_at_once()).await.unwrap().output().await.unwrap();
    bench.replays("together").await;
    let tape = bench.tape("together");
    order(2);
    for cut in 2..tape.frames.len() {
        let next = Bench::after(&tape, cut, &bench.clock).await;
        assert_eq!(next.parked("together").await.code(), Code::Diverged);
        assert!(next.world.ledger().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_a_btree_map_is_the_same_in_every_process() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("tree", by_name()).await.unwrap();
        assert_eq!(run.output().await.unwrap(), 98);
        assert_eq!(bench.world.bodies("charge"), 8);
        bench.replays("tree").await;
        // Cuts at which a charge is in doubt are held; the others go on.
        let (tape, log) = (bench.tape("tree"), bench.log("tree").await);
        for (cut, before) in log.iter().enumerate().skip(1).map(|(cut, _)| (cut, &log[cut - 1])) {
            if before.name == "effect.called" {
                let next = Bench::after(&tape, cut, &bench.clock).await;
                next.until_status("tree", "held", |status| matches!(status, durable::Status::Held { .. })).await;
                assert!(next.world.ledger().is_empty());
                next.stands("tree").await;
            }
        }
    }
}
