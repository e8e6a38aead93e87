//! O-ST-3: two runtimes, one store.

use std::{fs, path::Path, time::Duration};

use durable::{Code, EffectContext, Runtime, TestClock, store::StoreError};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Backend, Bench, open_sled, refused},
    child::{Talking, say},
    world::World,
};

#[durable::effect(idempotent)]
async fn touch(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn touching(n: u32) -> u32 {
    touch(n).await
}

/// Opens the store and keeps it.
pub(crate) async fn child(dir: &Path) {
    let store = open_sled(dir.join("store")).await.unwrap();
    let runtime = Runtime::builder().resource(World::in_file(dir.join("ledger"))).open_store(store).await.unwrap();
    runtime.start("run", touching(1)).await.unwrap().returned().await.unwrap();
    say("holding");
    std::future::pending::<()>().await;
}

fn in_use(error: &durable::Error) -> Option<u32> {
    assert_eq!(error.code(), Code::StoreInUse, "{error}");
    match error.store() {
        Some(StoreError::InUse { pid, .. }) => *pid,
        other => panic!("{other:?}"),
    }
}

/// Names and contents of all files of a store.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push((path.display().to_string(), fs::read(&path).unwrap_or_default())),
        }
    }
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_use_is_refused_by_pid_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = Talking::start("st_3", dir.path(), "");
    assert_eq!(holder.said().as_deref(), Some("holding"));
    let before = files(&dir.path().join("store"));
    for _ in 0..5 {
        let builder = Runtime::builder().resource(World::new());
        let error = refused(builder.open(dir.path().join("store")).await);
        assert_eq!(in_use(&error), Some(holder.pid()));
        assert!(error.to_string().contains(&holder.pid().to_string()), "{error}");
    }
    assert!(before == files(&dir.path().join("store")), "the files have changed");
    // A holder that was killed leaves nothing in the way.
    holder.kill();
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    assert_eq!(bench.end("run").await, json!(1));
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_process_is_refused_too_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("store");
    let world = World::new();
    let first = Runtime::builder().resource(world.clone()).open(&place).await.unwrap();
    let error = refused(Runtime::builder().resource(world.clone()).open(&place).await);
    assert_eq!(in_use(&error), Some(std::process::id()));
    assert_eq!(first.start("run", touching(1)).await.unwrap().returned().await.unwrap(), 1);
    first.shutdown(Duration::ZERO).await.unwrap();
    let second = Runtime::builder().resource(world).open(&place).await.unwrap();
    assert_eq!(second.start("run", touching(1)).await.unwrap().returned().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_opens_again_at_once_after_each_of_a_hundred_shutdowns() {
    let mut bench = Bench::on(Backend::Sled).await;
    for n in 0..100 {
        let id = format!("run {n}");
        bench.runtime.start(&id, touching(n)).await.unwrap();
        // Sometimes it has ended by then, sometimes not.
        if n % 2 == 0 {
            bench.end(&id).await;
        }
        bench = bench.restarted().await;
    }
    for n in 0..100 {
        assert_eq!(bench.end(&format!("run {n}")).await, json!(n));
    }
    bench.replays("run 99").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_whose_runs_another_one_has_claimed_writes_nothing_more() {
    // Two runtimes on one store in memory: the second one's opening is a claim of all.
    let first = Bench::on(Backend::Memory).await;
    first.world.close("touch_slowly");
    first.runtime.start("run", touching_slowly()).await.unwrap();
    first.world.until_noted("touch_slowly", 1).await;
    let run = first.runtime.run("run").await.unwrap();
    let builder = Runtime::builder().resource(first.world.next()).clock(first.clock.clone());
    let second = builder.open_store(first.store.clone()).await.unwrap();
    let ended = second.run("run").await.unwrap().returned_as::<u32>().await.unwrap();
    assert_eq!(ended, 1);
    let before = second.run("run").await.unwrap().log().await.unwrap().len();
    first.world.open("touch_slowly");
    // It has lost the run, and says so instead of an outcome of its own.
    match run.returned_as::<u32>().await {
        Ok(value) => assert_eq!(value, 1),
        Err(error) => assert_eq!(error.code(), Code::Closed, "{error}"),
    }
    crate::bench::until("no body", async || first.runtime.bodies().is_empty()).await;
    assert_eq!(second.run("run").await.unwrap().log().await.unwrap().len(), before);
    crate::replay::check(&crate::replay::Tape::of(&*first.store, "run"), &first.clock).await.unwrap();
}

#[durable::effect(idempotent)]
async fn touch_slowly(cx: &EffectContext, #[resource] world: &World) -> u32 {
    world.note(cx, "");
    world.pass("touch_slowly").await;
    1
}

#[durable::workflow]
async fn touching_slowly() -> u32 {
    touch_slowly().await
}
