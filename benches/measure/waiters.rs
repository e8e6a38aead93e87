//! Runs that wait, by the thousand.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Result;
use durable::{
    Runtime,
    store::sled::{SledOptions, SledStore},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

use super::{counting::Counting, resident};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How many runs are started at a time.
const AT_ONCE: usize = 1_000;

/// When the body of each effect began, and its argument.
static BEGUN: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());
static MORE: Notify = Notify::const_new();

/// Waits until so many bodies have begun, and takes them.
pub(crate) async fn bodies(count: usize) -> Result<Vec<(u64, Instant)>> {
    loop {
        let more = MORE.notified();
        if let Ok(mut begun) = BEGUN.lock()
            && begun.len() >= count
        {
            return Ok(std::mem::take(&mut *begun));
        }
        more.await;
    }
}

#[durable::effect(read_only)]
async fn look(n: u64) {
    note(n);
}

#[durable::effect(idempotent)]
async fn act(n: u64) {
    note(n);
}

fn note(n: u64) {
    if let Ok(mut begun) = BEGUN.lock() {
        begun.push((n, Instant::now()));
    }
    MORE.notify_one();
}

/// Waits for a signal that says which effect to call.
#[durable::workflow]
pub(crate) async fn awaits(n: u64) {
    match durable::signal::<bool>("go").await {
        true => act(n).await,
        false => look(n).await,
    }
}

/// Waits for a day.
#[durable::workflow]
pub(crate) async fn sleeps(n: u64) {
    durable::sleep(DAY).await;
    look(n).await;
}

/// What a process that holds a store measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    pub(crate) bytes_at_most: u64,
    pub(crate) seconds: f64,
    /// Until all were started, of which each is durable then.
    pub(crate) started: f64,
}

fn memory(since: Instant, started: Duration) -> Result<Memory> {
    let (bytes, bytes_at_most) = resident()?;
    Ok(Memory { bytes, bytes_at_most, seconds: since.elapsed().as_secs_f64(), started: started.as_secs_f64() })
}

pub(crate) async fn start_all(runtime: &Runtime, what: &str, runs: usize) -> Result<()> {
    let (mut starts, permits) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for n in 0..runs as u64 {
        let permit = permits.clone().acquire_owned().await?;
        let (runtime, what) = (runtime.clone(), what.to_owned());
        starts.spawn(async move {
            let _permit = permit;
            match what.as_str() {
                "signal" => runtime.start(format!("run-{n}"), awaits(n)).await.map(drop),
                _ => runtime.start(format!("run-{n}"), sleeps(n)).await.map(drop),
            }
        });
        while let Some(started) = starts.try_join_next() {
            started??;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    Ok(())
}

/// A process that starts runs which wait.
#[tokio::main]
pub(crate) async fn start(what: &str, dir: &Path, runs: usize) -> Result<Memory> {
    let store = Counting::new(SledStore::open(dir, SledOptions::new())?);
    // What a list would keep is no part of it.
    store.keep_no_list();
    let runtime = Runtime::builder().open_store(store.clone()).await?;
    let began = Instant::now();
    start_all(&runtime, what, runs).await?;
    let started = began.elapsed();
    store.have_gone_to_wait(runs).await;
    let memory = memory(began, started)?;
    runtime.shutdown(Duration::ZERO).await?;
    Ok(memory)
}

/// A process that opens the store of runs which wait.
#[tokio::main]
pub(crate) async fn reopen(dir: &Path) -> Result<Memory> {
    let began = Instant::now();
    let runtime = Runtime::builder().open(dir).await?;
    let memory = memory(began, Duration::ZERO)?;
    runtime.shutdown(Duration::ZERO).await?;
    Ok(memory)
}
