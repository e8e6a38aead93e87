//! O-ST-2: acknowledged means durable, as the runtime says it: a run that was started, a result that was shown, a doubt that was
//! resolved. (What a store makes of a loss of power is tested beside the stores.)

use std::path::Path;

use durable::{EffectContext, Runtime, Status, TestClock};

use crate::{
    bench::{BEGINNING, Bench, open_sled},
    child::{Talking, say},
    world::World,
};

const ROUNDS: usize = 12;

#[durable::effect(at_most_once)]
async fn act(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn acting(n: u32) -> u32 {
    act(n).await + act(n).await
}

/// Starts runs for ever, and says what it was told.
pub(crate) async fn child(dir: &Path) {
    let store = open_sled(dir.join("store")).await.unwrap();
    let runtime = Runtime::builder().resource(World::in_file(dir.join("ledger"))).open_store(store).await.unwrap();
    let known = runtime.runs(durable::Filter::all()).await.unwrap().len();
    for n in known as u32.. {
        let runs: Vec<_> = (0..4)
            .map(|k| {
                let (runtime, id) = (runtime.clone(), format!("run {n}-{k}"));
                tokio::spawn(async move {
                    let run = runtime.start(&id, acting(n)).await.unwrap();
                    say(&format!("started {id}"));
                    let sum = run.returned().await.unwrap();
                    say(&format!("returned {id} {sum}"));
                    say(&format!("logged {id} {}", run.log().await.unwrap().len()));
                })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_said_before_a_kill_is_there_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Talking::start("st_2", dir.path(), "");
        // At another place each time.
        for _ in 0..3 + 7 * round {
            said.extend(child.said());
        }
        said.extend(child.kill());
    }
    assert!(said.iter().filter(|line| line.starts_with("returned")).count() > ROUNDS, "{said:?}");
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    for line in &said {
        let (word, rest) = line.split_once(' ').unwrap();
        let id = rest.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let value = rest[id.len()..].trim();
        match word {
            "started" => drop(bench.runtime.run(&id).await.unwrap()),
            "returned" => {
                assert_eq!(bench.status(&id).await, Status::Completed, "{line}");
                assert_eq!(bench.end(&id).await.to_string(), value, "{line}");
            }
            _ => assert_eq!(bench.log(&id).await.len().to_string(), value, "{line}"),
        }
    }
    // And nothing was done twice for it: what a kill interrupted is held.
    let mut lines = bench.world.ledger();
    let all = lines.len();
    lines.sort_by(|a, b| (&a.run, &a.path).cmp(&(&b.run, &b.path)));
    lines.dedup_by(|a, b| (&a.run, &a.path) == (&b.run, &b.path));
    assert_eq!(lines.len(), all);
}
