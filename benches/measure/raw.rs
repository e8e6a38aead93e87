//! The disk by itself: bytes are appended to a file, and `fdatasync` is waited for. Nothing that is durable can be faster in
//! the same directory at the same time.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::sync::oneshot;

use super::{micros, sorted};

fn appended(dir: &Path) -> Result<File> {
    Ok(OpenOptions::new().create(true).append(true).open(dir.join("raw"))?)
}

/// Each append alone: how long they take, sorted.
pub(crate) fn syncs(dir: &Path, bytes: usize, times: usize) -> Result<Vec<Duration>> {
    let (mut file, bytes) = (appended(dir)?, vec![7; bytes]);
    let mut took = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        took.push(began.elapsed());
    }
    Ok(sorted(took))
}

/// Median microseconds of one append.
pub(crate) fn sync_micros(dir: &Path, bytes: usize, times: usize) -> Result<f64> {
    let took = syncs(dir, bytes, times)?;
    Ok(micros(took[took.len() / 2]))
}

/// Appends a second, one writer; a sync follows each `per_sync` of them.
pub(crate) fn alone(dir: &Path, bytes: usize, per_sync: usize, least: Duration) -> Result<f64> {
    let (mut file, bytes) = (appended(dir)?, vec![7; bytes * per_sync]);
    let (began, mut times) = (Instant::now(), 0);
    while began.elapsed() < least {
        file.write_all(&bytes)?;
        file.sync_data()?;
        times += per_sync;
    }
    Ok(times as f64 / began.elapsed().as_secs_f64())
}

/// Appends a second that so many waiters get, each with one under way; one thread writes all that is queued, and syncs once.
pub(crate) async fn grouped(dir: &Path, bytes: usize, waiters: usize, least: Duration) -> Result<f64> {
    let mut file = appended(dir)?;
    let (queue, queued) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>();
    let writer = thread::spawn(move || -> Result<()> {
        let (mut buffer, mut dones) = (Vec::new(), Vec::new());
        while let Ok(first) = queued.recv() {
            for (bytes, done) in [first].into_iter().chain(queued.try_iter()) {
                buffer.extend_from_slice(&bytes);
                dones.push(done);
            }
            file.write_all(&buffer)?;
            file.sync_data()?;
            buffer.clear();
            dones.drain(..).for_each(|done| _ = done.send(()));
        }
        Ok(())
    });
    let began = Instant::now();
    let waiting: Vec<_> = (0..waiters)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut times = 0_u64;
                while began.elapsed() < least {
                    let (done, wait) = oneshot::channel();
                    queue.send((vec![7; bytes], done)).context("the writer has ended")?;
                    wait.await?;
                    times += 1;
                }
                Ok::<_, anyhow::Error>(times)
            })
        })
        .collect();
    drop(queue);
    let mut times = 0;
    for waiter in waiting {
        times += waiter.await??;
    }
    let rate = times as f64 / began.elapsed().as_secs_f64();
    tokio::task::spawn_blocking(|| writer.join()).await?.map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    Ok(rate)
}
