//! Runs that are woken while the store cannot read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use durable::{
    Code, Generation, RunId, Seq, Status, StoreError,
    store::{Done, Record, Store, Write, memory::MemoryStore},
};
use serde_json::json;

use crate::{
    bench::{Bench, secs, until},
    pass_on::pass_on,
};

#[durable::workflow]
async fn waits() -> durable::Result<u64> {
    Ok(durable::signal("go").await)
}

/// A store that cannot read a log as often as it is told.
struct Unreadable {
    inner: Arc<MemoryStore>,
    left: Arc<AtomicUsize>,
}

impl Store for Unreadable {
    pass_on!(inner: about, rows, published, dump, run, runs, close);

    fn submit(&self, write: Write, done: Done) {
        self.inner.submit(write, done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        let fails = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match fails {
            Ok(_) => Err(StoreError::Io { doing: "read a log".into(), error: "too many open files".into() }),
            Err(_) => self.inner.read(run, generation, from, most),
        }
    }
}

/// A run that has left memory, is sent something, and finds that the store cannot read so often.
async fn woken(fails: usize) -> (Bench, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    let bench = Bench::over(Unreadable { inner: Arc::default(), left: left.clone() }).await;
    bench.runtime.start("run", waits()).await.unwrap();
    bench.until_away("run").await;
    left.store(fails, Ordering::SeqCst);
    bench.runtime.signal("run", "go", &7).await.unwrap();
    (bench, left)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_read_for_a_moment_parks_no_run() {
    let (bench, left) = woken(5).await;
    until("it to be read", async || {
        bench.clock.advance(secs(1));
        left.load(Ordering::SeqCst) == 0
    })
    .await;
    until("it to end", async || {
        bench.clock.advance(secs(1));
        let status = bench.status("run").await;
        assert!(!matches!(status, Status::Parked(_)), "{status:?}");
        status == Status::Completed
    })
    .await;
    assert_eq!(bench.end("run").await, json!({ "Ok": 7 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_read_for_long_is_parked_and_no_backup_is_asked_for() {
    let (bench, left) = woken(usize::MAX).await;
    until("it to be parked", async || {
        bench.clock.advance(secs(1));
        let cell = bench.runtime.runs(durable::Filter::unfinished()).await;
        cell.is_ok_and(|runs| matches!(runs[0].status, Status::Parked(_)))
    })
    .await;
    left.store(0, Ordering::SeqCst);
    let Status::Parked(parked) = bench.status("run").await else { panic!("it is parked") };
    assert_eq!(parked.code, Code::StorageFailed);
    assert!(parked.why.contains("too many open files"), "{parked:?}");
    assert!(parked.next.contains("retry") && !parked.next.contains("backup"), "{parked:?}");
    bench.runtime.retry("run").await.unwrap();
    assert_eq!(bench.end("run").await, json!({ "Ok": 7 }));
    bench.sound().await;
}

/// It is the store that fails: no replay has killed a process.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_no_process_can_read_is_parked_for_that_by_each_of_them() {
    let mut memory = Arc::new(MemoryStore::new());
    let bench = Bench::over(memory.clone()).await;
    bench.runtime.start("run", waits()).await.unwrap();
    bench.until_away("run").await;
    bench.runtime.shutdown(Duration::ZERO).await.unwrap();
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    for process in 0..8 {
        memory = Arc::new(memory.reopened());
        let bench = Bench::over(Unreadable { inner: memory.clone(), left: left.clone() }).await;
        bench.runtime.signal("run", "other", &process).await.unwrap();
        until("it to be parked", async || {
            bench.clock.advance(secs(1));
            matches!(bench.runtime.runs(durable::Filter::unfinished()).await.unwrap()[0].status, Status::Parked(_))
        })
        .await;
        let Status::Parked(parked) = bench.status("run").await else { panic!("it is parked") };
        assert_eq!(parked.code, Code::StorageFailed, "{process}: {parked:?}");
        bench.runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}
