//! durable on its sled store: `bench-durable STORE read_only|keyed WORKLOAD`.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../../harness.rs"]
mod harness;

use std::{
    env, future,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use durable::{EffectContext, Runtime};
use harness::{Ask, Outcome, asked, next_step_asked, payload, say_median, say_rate, say_waiting};

static WAITING: AtomicUsize = AtomicUsize::new(0);

#[durable::effect(read_only)]
async fn look(n: u64) -> String {
    let _ = n;
    payload()
}

#[durable::effect(key = "{run}:{n}")]
async fn act(cx: &EffectContext, run: u64, n: u64) -> String {
    let _ = (cx.idempotency_key(), run, n);
    payload()
}

#[durable::effect(idempotent)]
async fn next_step() -> durable::Result<()> {
    Ok(next_step_asked().await.map_err(std::io::Error::other)?)
}

#[durable::workflow]
async fn chain(run: u64, keyed: bool, steps: u64, then_next: bool) -> durable::Result<u64> {
    let mut bytes = 0;
    for n in 0..steps {
        bytes += if keyed { act(run, n).await } else { look(n).await }.len() as u64;
    }
    if then_next {
        next_step().await?;
    }
    Ok(bytes)
}

#[durable::workflow]
async fn wait() -> u64 {
    durable::untracked(|| WAITING.fetch_add(1, Relaxed));
    durable::signal("go").await
}

#[tokio::main]
async fn main() -> Outcome {
    let mut args = env::args().skip(1);
    let store = args.next().ok_or("where is the store?")?;
    let keyed = match args.next().as_deref() {
        Some("read_only") => false,
        Some("keyed") => true,
        other => return Err(format!("unknown kind of step {other:?}").into()),
    };
    let runtime = Runtime::builder().open(&store).await?;
    let start = async |id: String, steps| runtime.start(id, chain(0, keyed, steps, false)).await;
    let named = |workload: &str| format!("{workload}{}", if keyed { "k" } else { "r" });
    match asked(2)? {
        Ask::W1 { steps } => {
            let began = Instant::now();
            start("w1".to_owned(), steps).await?.output().await?;
            say_rate(&named("W1"), steps, began);
        }
        Ask::W2 { runs, steps } => {
            let began = Instant::now();
            let mut started = Vec::new();
            for n in 0..runs {
                started.push(runtime.start(format!("w2-{n}"), chain(n as u64, keyed, steps, false)).await?);
            }
            for run in started {
                run.output().await?;
            }
            say_rate(&named("W2"), runs as u64 * steps, began);
        }
        Ask::Load { steps } => {
            runtime.start("w3", chain(0, keyed, steps, true)).await?.output().await?;
        }
        Ask::GoOn => future::pending().await,
        Ask::W4 { runs } => {
            let mut times = Vec::new();
            for n in 0..runs {
                let began = Instant::now();
                start(format!("w4-{n}"), 1).await?.output().await?;
                times.push(began.elapsed());
            }
            say_median("W4", times);
        }
        Ask::W5 { runs } => {
            say_waiting(runs, &WAITING, |n| {
                let runtime = runtime.clone();
                async move {
                    runtime.start(format!("w5-{n}"), wait()).await?;
                    Ok(())
                }
            })
            .await?;
        }
    }
    runtime.shutdown(Duration::ZERO).await?;
    Ok(())
}
