//! The workflows that are measured.

use std::{
    fs,
    sync::Mutex,
    time::{Duration, Instant},
};

use durable::EffectContext;
use tokio::sync::Notify;

/// As long as a step's result is when it is recorded.
const RESULT_BYTES: usize = 100;

/// When plain code of a workflow came by.
static PASSED: Mutex<Vec<Passed>> = Mutex::new(Vec::new());
static MORE: Notify = Notify::const_new();

/// A moment in the life of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) at: Instant,
    /// How long the thread has had a processor by then.
    pub(crate) processor: Duration,
}

impl Passed {
    fn now() -> Passed {
        let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Passed { at: Instant::now(), processor: Duration::from_nanos(nanos.unwrap_or_default()) }
    }
}

/// Waits until it was come by so often, and takes the moments.
pub(crate) async fn passed(count: usize) -> Vec<Passed> {
    loop {
        let more = MORE.notified();
        if let Ok(mut passed) = PASSED.lock()
            && passed.len() >= count
        {
            return std::mem::take(&mut *passed);
        }
        more.await;
    }
}

fn pass() {
    durable::untracked(|| {
        if let Ok(mut passed) = PASSED.lock() {
            passed.push(Passed::now());
        }
        MORE.notify_one();
    });
}

#[durable::effect(read_only)]
async fn look(n: u64) -> String {
    result(n)
}

#[durable::effect(key = "{n}")]
async fn act(_cx: &EffectContext, n: u64) -> String {
    result(n)
}

fn result(n: u64) -> String {
    format!("{n:0RESULT_BYTES$}")
}

/// Looks, one after the other.
#[durable::workflow]
pub(crate) async fn looks(steps: u64) -> u64 {
    let mut bytes = 0;
    for n in 0..steps {
        bytes += look(n).await.len() as u64;
    }
    bytes
}

/// Acts, one after the other: each waits until it is on disk that it is to be done.
#[durable::workflow]
pub(crate) async fn acts(steps: u64) -> u64 {
    let mut bytes = 0;
    for n in 0..steps {
        bytes += act(n).await.len() as u64;
    }
    bytes
}

/// An effect whose end is not waited for by the process that it kills.
#[durable::effect(idempotent, timeout = "1h")]
async fn never_ends() {
    println!("begun");
    std::future::pending::<()>().await;
}

/// Is killed after so many steps.
#[durable::workflow]
pub(crate) async fn dies(steps: u64) -> u64 {
    let mut bytes = 0;
    for n in 0..steps {
        bytes += look(n).await.len() as u64;
    }
    pass();
    never_ends().await;
    bytes
}

/// Is replayed with each signal, and says how long its steps took then.
#[durable::workflow]
pub(crate) async fn remembers(steps: u64, at_once: bool) -> u64 {
    pass();
    if at_once {
        durable::join_all((0..steps).map(look)).await;
    } else {
        for n in 0..steps {
            look(n).await;
        }
    }
    pass();
    loop {
        durable::signal::<()>("go").await;
        pass();
    }
}

/// Longer than anything that is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
