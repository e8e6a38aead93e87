//! O-CN-3: cancel racing completion.

use std::{collections::BTreeMap, sync::LazyLock};

use durable::{EffectContext, Status, StatusKind};
use tokio::sync::watch;

use crate::{
    bench::{BOTH, Bench, refused},
    world::World,
};

const REPEATS: u32 = 2_000;
/// Runs at a time.
const AT_ONCE: u32 = 50;

/// Tells whoever waits for it that a body of that run has begun.
static BEGUN: LazyLock<watch::Sender<BTreeMap<String, u32>>> = LazyLock::new(watch::Sender::default);

#[durable::effect(idempotent)]
async fn step(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    BEGUN.send_modify(|begun| *begun.entry(cx.run_id().to_string()).or_default() += 1);
    // As long as a cancel may take that was asked for when it began, or not quite.
    for _ in 0..dice(n) % 40 {
        tokio::task::yield_now().await;
    }
    n
}

#[durable::workflow]
async fn short(steps: u32) -> durable::Result<u32> {
    let mut sum = 0;
    for n in 0..steps {
        sum += step(n).await;
    }
    if steps == 3 { Err(durable::Failure::new("three are too many")) } else { Ok(sum) }
}

/// A number that nobody can foresee, and that is the same in every test.
fn dice(n: u32) -> u32 {
    let mut x = n.wrapping_mul(0x9e37_79b9) ^ 0x85eb_ca6b;
    x ^= x >> 15;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 13)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceller_is_told_which_of_the_two_happened_and_so_is_everybody_for_ever() {
    for backend in BOTH {
        BEGUN.send_modify(BTreeMap::clear);
        let bench = Bench::on(backend).await;
        let mut told = BTreeMap::new();
        for batch in 0..REPEATS / AT_ONCE {
            let mut cancels = tokio::task::JoinSet::new();
            for n in batch * AT_ONCE..(batch + 1) * AT_ONCE {
                let runtime = bench.runtime.clone();
                cancels.spawn(async move {
                    let (id, steps) = (format!("run {n}"), dice(n) % 4);
                    let run = runtime.start(&id, short(steps)).await.unwrap();
                    // A moment at random: at once, in one of its bodies or a little later, or when it has ended.
                    match dice(n + REPEATS) % (steps + 2) {
                        0 => {}
                        last if last > steps => drop(run.returned().await.unwrap()),
                        body => {
                            let begun = |all: &BTreeMap<String, u32>| all.get(&id).is_some_and(|begun| *begun >= body);
                            BEGUN.subscribe().wait_for(begun).await.unwrap();
                        }
                    }
                    for _ in 0..dice(n + 2 * REPEATS) % 40 {
                        tokio::task::yield_now().await;
                    }
                    (n, run.cancel("enough").await.unwrap())
                });
            }
            told.extend(cancels.join_all().await);
        }
        let kinds = |kind| told.values().filter(|status: &&Status| status.kind() == kind).count();
        let counts = [StatusKind::Cancelled, StatusKind::Completed, StatusKind::Failed].map(kinds);
        println!("{backend:?}: {counts:?} cancelled, completed, failed");
        assert_eq!(counts.iter().sum::<usize>(), REPEATS as usize);
        assert!(counts.iter().all(|count| *count > 20), "{counts:?} is no race");
        let bench = agreed(bench, &told).await;
        let bench = agreed(bench.restarted().await, &told).await;
        assert!(bench.runtime.audit().await.unwrap().is_empty());
        // One of each kind.
        for kind in [StatusKind::Cancelled, StatusKind::Completed, StatusKind::Failed] {
            let (n, _) = told.iter().find(|(_, status)| status.kind() == kind).unwrap();
            bench.replays(&format!("run {n}")).await;
        }
    }
}

/// Every run has one terminal entry, and what is asked of it agrees with what its canceller was told.
async fn agreed(bench: Bench, told: &BTreeMap<u32, Status>) -> Bench {
    for (n, status) in told {
        let id = format!("run {n}");
        let run = bench.runtime.run(&id).await.unwrap();
        assert_eq!(run.status().await.unwrap(), *status, "{id}");
        let ends = ["run.completed", "run.failed", "run.cancelled"];
        let names = bench.names(&id).await;
        let terminal: Vec<_> = names.iter().filter(|name| ends.contains(name)).collect();
        assert_eq!(terminal, [&names[names.len() - 1]], "{id}: one, and it is the last: {names:?}");
        assert_eq!(*terminal[0], format!("run.{}", status.as_str()), "{id}");
        match status {
            Status::Cancelled { .. } => {
                assert!(refused(run.returned_as::<durable::Result<u32>>().await).is_run_cancelled(), "{id}");
            }
            Status::Completed => assert!(run.returned_as::<durable::Result<u32>>().await.unwrap().is_ok(), "{id}"),
            Status::Failed { .. } => {
                assert!(run.returned_as::<durable::Result<u32>>().await.unwrap().is_err(), "{id}");
            }
            other => panic!("{id} was cancelled, and its canceller was told {other:?}"),
        }
    }
    bench
}
