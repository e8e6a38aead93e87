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
        is_true(&bench, line).await.unwrap_or_else(|why| panic!("{line}: {why}"));
    }
    // And nothing was done twice for it: what a kill interrupted is held.
    let mut lines = bench.world.ledger();
    let all = lines.len();
    lines.sort_by(|a, b| (&a.run, &a.path).cmp(&(&b.run, &b.path)));
    lines.dedup_by(|a, b| (&a.run, &a.path) == (&b.run, &b.path));
    assert_eq!(lines.len(), all);
}

/// Whether what a child was told is so.
async fn is_true(bench: &Bench, line: &str) -> Result<(), String> {
    let (word, rest) = line.split_once(' ').unwrap();
    let id = rest.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let told = rest[id.len()..].trim();
    let run = bench.runtime.run(&id).await.map_err(|e| e.to_string())?;
    let found = match word {
        "started" => return Ok(()),
        "returned" if run.status().await.unwrap() != Status::Completed => return Err("it has not ended".to_owned()),
        "returned" => bench.end(&id).await.to_string(),
        _ => bench.log(&id).await.len().to_string(),
    };
    if found == told { Ok(()) } else { Err(format!("found {found}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_what_was_said_and_is_not_so() {
    let bench = Bench::on(crate::bench::Backend::Sled).await;
    bench.runtime.start("run 1-1", acting(1)).await.unwrap();
    bench.end("run 1-1").await;
    for (line, so) in [
        ("started run 1-1", true),
        ("started run 1-2", false),
        ("returned run 1-1 2", true),
        ("returned run 1-1 3", false),
        ("logged run 1-1 6", true),
        ("logged run 1-1 7", false),
    ] {
        assert_eq!(is_true(&bench, line).await.is_ok(), so, "{line}");
    }
}
