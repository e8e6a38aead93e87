//! W1 and W2: steps a second, beside the disk's own speed and the store's.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use durable::{
    Durability, Generation, RunId, Runtime, Seq,
    store::{
        Batch, Head, Store, Write, Written,
        sled::{SledOptions, SledStore},
    },
};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    Plan,
    agents::{acts, looks},
    measure::{median, micros, processor, raw, table::Row},
};

/// Runs that go on beside each other, and waiters that share a sync.
pub(crate) const RUNS: usize = 64;
/// How long the disk alone is measured at a time.
const RAW: Duration = Duration::from_millis(250);
/// A workload whose rounds take longer than that on a slow disk has fewer of them.
const ROUNDS_TIME: Duration = Duration::from_secs(12);

/// What one round of a workload gave.
struct Round {
    per_second: f64,
    syncs_per_step: f64,
    records_per_step: f64,
    bytes_per_step: f64,
    processor_us: f64,
    durability: Durability,
}

/// A place for a store, gone when dropped.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Place> {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        Ok(Place(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `runs` runs of `steps` steps each, from before their start until the output of each is there.
async fn round(plan: &Plan, keyed: bool, runs: usize, steps: u64) -> Result<Round> {
    let place = Place::new(&plan.dir, "speed")?;
    let store = Arc::new(SledStore::open(place.path(), SledOptions::new())?);
    let runtime = Runtime::builder().log_entries_warn(u64::MAX).open_store(store.clone()).await?;
    let (busy, before, began) = (processor()?, store.counts(), Instant::now());
    let mut ends = JoinSet::new();
    for n in 0..runs {
        let runtime = runtime.clone();
        ends.spawn(async move {
            let call = if keyed { acts(steps) } else { looks(steps) };
            runtime.start(format!("run-{n}"), call).await?.returned().await
        });
    }
    while let Some(end) = ends.join_next().await {
        ensure!(end?? == steps * 100, "each step returns 100 bytes");
    }
    let seconds = began.elapsed().as_secs_f64();
    let (busy, after) = (processor()?.saturating_sub(busy), store.counts());
    let durability = runtime.durability();
    runtime.shutdown(Duration::ZERO).await?;
    let all = (runs as u64 * steps) as f64;
    Ok(Round {
        per_second: all / seconds,
        syncs_per_step: (after.commits - before.commits) as f64 / all,
        records_per_step: (after.records - before.records) as f64 / all,
        bytes_per_step: (after.entry_bytes - before.entry_bytes) as f64 / all,
        processor_us: micros(busy) / all,
        durability,
    })
}

/// The store without the engine: so many writers, each of which waits for each of its batches.
async fn store_alone(plan: &Plan, writers: usize, bytes: usize, least: Duration) -> Result<f64> {
    let place = Place::new(&plan.dir, "alone")?;
    let store = Arc::new(SledStore::open(place.path(), SledOptions::new())?);
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for n in 0..writers {
        let store = store.clone();
        tasks.spawn(async move {
            let run = RunId::new(format!("run-{n}"))?;
            let frames = Bytes::from(vec![7; bytes]);
            let head = Head { generation: Generation(0), live: true, bytes: Bytes::new() };
            write(&store, Write::Create { run: run.clone(), count: 1, frames: frames.clone(), head }).await?;
            let claimed = write(&store, Write::Claim { run: run.clone(), aside: None }).await?;
            let Written::Claimed(epoch) = claimed else { anyhow::bail!("the run is not claimed") };
            let mut at = 1;
            while began.elapsed() < least {
                let (run, frames, generation) = (run.clone(), frames.clone(), Generation(0));
                let (acts, head) = (Vec::new(), None);
                let batch = Batch { run, epoch, generation, at: Seq(at), count: 1, frames, acts, head };
                write(&store, Write::Append(batch)).await?;
                at += 1;
            }
            Ok::<_, anyhow::Error>(at)
        });
    }
    let mut times = 0;
    while let Some(writer) = tasks.join_next().await {
        times += writer??;
    }
    let rate = times as f64 / began.elapsed().as_secs_f64();
    store.close()?;
    Ok(rate)
}

async fn write(store: &SledStore, write: Write) -> Result<Written> {
    let (done, wait) = oneshot::channel();
    store.submit(write, Box::new(move |result| drop(done.send(result))));
    Ok(wait.await.context("the store forgot a write")??)
}

/// A workload, the disk before and after each of its rounds, and the store alone beside it where each step is a barrier.
#[tokio::main]
pub(crate) async fn measure(plan: &Plan, keyed: bool, runs: usize, steps: u64, rounds: usize) -> Result<Vec<Row>> {
    let name = name(keyed, runs, steps);
    let first = round(plan, keyed, runs, steps.min(200)).await?;
    let bytes = first.bytes_per_step.round() as usize;
    // Without barriers the disk is waited for as often as the store has waited.
    let per_sync = match keyed {
        true => 1,
        false => (1.0 / round(plan, keyed, runs, steps).await?.syncs_per_step).round().max(1.0) as usize,
    };
    let disk = async || match (keyed, runs) {
        (true, 2..) => raw::grouped(&plan.dir, bytes, runs, RAW).await,
        _ => raw::alone(&plan.dir, bytes, per_sync, RAW),
    };
    let (mut raws, mut results, mut alones) = (vec![disk().await?], Vec::new(), Vec::new());
    let began = Instant::now();
    for nth in 1..=rounds {
        if nth > 1 && began.elapsed() > ROUNDS_TIME {
            break;
        }
        results.push(round(plan, keyed, runs, steps).await?);
        raws.push(disk().await?);
        if keyed {
            alones.push(store_alone(plan, runs, bytes, RAW).await?);
            raws.push(disk().await?);
        }
        eprintln!("{name}: round {nth} of {rounds}: {:.0} steps/s", results[nth - 1].per_second);
    }
    // Of each round the two figures of the disk around it.
    let stride = if keyed { 2 } else { 1 };
    let around = |at: usize| (raws[at] + raws[at + 1]) / 2.0;
    let ratio = |figures: &[f64], offset: usize| {
        median(figures.iter().enumerate().map(|(nth, figure)| figure / around(nth * stride + offset)))
    };
    let speeds: Vec<f64> = results.iter().map(|round| round.per_second).collect();
    let raw = median(raws.iter().copied());
    let value = median(speeds.iter().copied());
    let of = |figure: fn(&Round) -> f64| median(results.iter().map(figure));
    let (records, bytes_written) = (of(|round| round.records_per_step), of(|round| round.bytes_per_step));
    let busy = of(|round| round.processor_us);
    let mut note = format!("{busy:.1} us of processor, {records:.3} records, {bytes_written:.0} bytes a step");
    let range = (speeds.iter().copied().fold(f64::MAX, f64::min), speeds.iter().copied().fold(0.0, f64::max));
    note += &format!("; {:.0} to {:.0} in {} rounds", range.0, range.1, speeds.len());
    if !keyed {
        note += &format!("; raw: a sync after each {per_sync}");
    } else {
        let parts = speeds.iter().zip(&alones).map(|(speed, alone)| speed / alone);
        note += &format!("; {:.2} of the store alone", median(parts));
    }
    let durability = first.durability;
    let row = Row::new(name, value, "steps/s").durability(durability).raw(raw, ratio(&speeds, 0));
    let mut rows = vec![row.syncs(of(|round| round.syncs_per_step)).note(note)];
    if keyed {
        let name = format!("  store alone, {runs} waiting");
        let row = Row::new(name, median(alones.iter().copied()), "batches/s").durability(durability);
        rows.push(row.raw(raw, ratio(&alones, 1)));
    }
    Ok(rows)
}

fn name(keyed: bool, runs: usize, steps: u64) -> String {
    let sort = if keyed { "k" } else { "r" };
    match runs {
        1 => format!("W1{sort} {steps} steps"),
        _ => format!("W2{sort} {runs} x {steps} steps"),
    }
}
