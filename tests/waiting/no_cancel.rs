//! Cancels that cannot be carried out at once: the request stands.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use durable::{
    Code, Generation, RunId, Seq, Status, StoreError,
    store::{Done, Record, Store, Write, memory::MemoryStore},
};

use crate::{
    bench::{BOTH, Backend, Bench, act, in_time, refused, secs, stubborn, until},
    pass_on::pass_on,
};

#[durable::workflow]
async fn sleeps() -> durable::Result<()> {
    act("before").await?;
    durable::sleep(secs(86_400)).await;
    Ok(())
}

/// Keeps its parent from ending.
#[durable::workflow]
async fn lingers() -> durable::Result<()> {
    durable::shield(async { stubborn("work").await }).await?;
    Ok(())
}

/// Goes on in a fresh log as soon as its child has ended.
#[durable::workflow]
async fn moves_on(life: u32) -> durable::Result<u32> {
    if life == 0 {
        let _child = durable::spawn(lingers()).await;
        durable::signal::<()>("move on").await;
        return durable::restart_as(moves_on(1)).await;
    }
    durable::sleep(secs(86_400)).await;
    Ok(life)
}

/// A store of which one log cannot be read, when it is so.
struct Damaged {
    inner: MemoryStore,
    is_so: Arc<AtomicBool>,
}

impl Store for Damaged {
    pass_on!(inner: about, rows, published, dump, run, runs, close);

    fn submit(&self, write: Write, done: Done) {
        self.inner.submit(write, done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        match self.is_so.load(Ordering::SeqCst) {
            true => {
                let (place, run) = ("memory".into(), Some(run.clone()));
                Err(StoreError::Damaged { place, run, seq: Some(from), what: "a scratch".into() })
            }
            false => self.inner.read(run, generation, from, most),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_is_damaged_is_cancelled_once_it_is_not() {
    let is_so = Arc::new(AtomicBool::new(false));
    let bench = Bench::over(Damaged { inner: MemoryStore::new(), is_so: is_so.clone() }).await;
    bench.runtime.start("run", sleeps()).await.unwrap();
    bench.until_away("run").await;
    is_so.store(true, Ordering::SeqCst);
    let cancel = bench.runtime.cancel("run", "stop").into_future();
    let stands = refused(in_time("an answer", cancel).await, Code::NotCancelledYet).to_string();
    assert!(stands.contains("the request stands") && stands.contains("a scratch"), "{stands}");
    assert_eq!(bench.until("run", "parked").await.as_str(), "parked");
    // It is not tried for ever: each message makes its task look, and finds nothing new to try, but for another request.
    bench.store.take();
    for n in 0..50 {
        bench.runtime.signal("run", "n", &n).await.unwrap();
    }
    let cancel = bench.runtime.cancel("run", "stop, please").into_future();
    refused(in_time("an answer", cancel).await, Code::NotCancelledYet);
    let claims = bench.store.take().into_iter().filter(|(what, _)| *what == "claim").count();
    assert_eq!(claims, 1, "the second request is tried once; every try is a claim");
    is_so.store(false, Ordering::SeqCst);
    bench.runtime.retry("run").await.unwrap();
    let cancel = bench.runtime.cancel("run", "stop").into_future();
    assert_eq!(in_time("the cancel", cancel).await.unwrap(), Status::Cancelled { reason: "stop".into() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_the_process_is_down_is_taken_by_the_next_one() {
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("run", sleeps()).await.unwrap();
    bench.until("run", "sleeping").await;
    let bench = bench
        .observed(async |observer| {
            let stands = refused(observer.cancel("run", "while it is down").by("ann").await, Code::NotCancelledYet);
            assert!(stands.to_string().contains("observes"), "{stands}");
            // It goes on in no process, and sleeps all the same.
            assert!(matches!(observer.run("run").await.unwrap().status().await.unwrap(), Status::Sleeping { .. }));
        })
        .await;
    let cancel = bench.runtime.cancel("run", "once more").into_future();
    assert_eq!(in_time("the cancel", cancel).await.unwrap(), Status::Cancelled { reason: "while it is down".into() });
    assert_eq!(bench.outside.done(), ["before"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_cancel_when_the_runtime_closes_is_told_that_the_request_stands() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", lingers()).await.unwrap();
        bench.outside.until_done("begin work").await;
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "stop").await });
        bench.until("run", "cancelling").await;
        let bench = bench.restarted().await;
        let stands = refused(in_time("an answer", cancel).await.unwrap(), Code::NotCancelledYet);
        assert!(stands.to_string().contains("shut down"), "{stands}");
        bench.outside.open();
        let cancel = bench.runtime.cancel("run", "stop").into_future();
        assert!(in_time("the cancel", cancel).await.unwrap().is_terminal());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_comes_between_two_logs_reaches_the_next_one() {
    for (backend, restarts) in [(Backend::Memory, false), (Backend::Memory, true), (Backend::Sled, true)] {
        let bench = Bench::built(backend, |builder| builder.cancel_grace(secs(3_600))).await;
        bench.runtime.start("run", moves_on(0)).await.unwrap();
        bench.outside.until_done("begin work").await;
        bench.runtime.signal("run", "move on", &()).await.unwrap();
        bench.until("run", "ending").await;
        let version = || bench.store.run(&RunId::new("run").unwrap()).unwrap().unwrap().version;
        let before = version();
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("run", "stop").await });
        until("the request to be there", async || version() > before).await;
        let bench = if restarts { bench.restarted().await } else { bench };
        bench.outside.open();
        let end = in_time("an answer", cancel).await.unwrap();
        if restarts {
            refused(end, Code::NotCancelledYet);
        } else {
            assert_eq!(end.unwrap(), Status::Cancelled { reason: "stop".into() });
        }
        let again = bench.runtime.cancel("run", "stop").into_future();
        assert_eq!(in_time("the cancel", again).await.unwrap(), Status::Cancelled { reason: "stop".into() });
        assert_eq!(bench.run("run").await.generations().await.unwrap(), 2);
    }
}
