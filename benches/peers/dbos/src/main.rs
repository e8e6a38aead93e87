//! DBOS' Rust port on PostgreSQL: `bench-dbos URL WORKLOAD`.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../../harness.rs"]
mod harness;

use std::{
    env, future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use dbos::{Config, DBOS, Error, recv, step};
use harness::{Ask, Outcome, asked, next_step_asked, payload, say_median, say_rate, say_waiting};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

static WAITING: AtomicUsize = AtomicUsize::new(0);

async fn chain(steps: u64) -> dbos::Result<u64> {
    let mut bytes = 0;
    for _ in 0..steps {
        bytes += step("step", || async { Ok::<_, Error>(payload()) }).await?.len() as u64;
    }
    Ok(bytes)
}

async fn chain_and_next(steps: u64) -> dbos::Result<u64> {
    let bytes = chain(steps).await?;
    step("next", || async { next_step_asked().await.map_err(|error| Error::Config(error.to_string())) }).await?;
    Ok(bytes)
}

async fn wait(_: ()) -> dbos::Result<Option<String>> {
    WAITING.fetch_add(1, Relaxed);
    recv(Some("go"), DAY).await
}

#[tokio::main]
async fn main() -> Outcome {
    let url = env::args().nth(1).ok_or("where is the database?")?;
    let dbos = DBOS::new(Config { app_version: Some("1".to_owned()), ..Config::new("bench", url) });
    let chain = dbos.register_workflow("chain", chain)?;
    let chain_and_next = dbos.register_workflow("chain_and_next", chain_and_next)?;
    let wait = Arc::new(dbos.register_workflow("wait", wait)?);
    dbos.launch().await?;
    match asked(1)? {
        Ask::W1 { steps } => {
            let began = Instant::now();
            chain.start(steps).await?.result().await?;
            say_rate("W1", steps, began);
        }
        Ask::W2 { runs, steps } => {
            let began = Instant::now();
            let mut started = Vec::new();
            for _ in 0..runs {
                started.push(chain.start(steps).await?);
            }
            for run in started {
                run.result().await?;
            }
            say_rate("W2", runs as u64 * steps, began);
        }
        Ask::Load { steps } => drop(chain_and_next.start(steps).await?.result().await?),
        Ask::GoOn => future::pending().await,
        Ask::W4 { runs } => {
            let mut times = Vec::new();
            for _ in 0..runs {
                let began = Instant::now();
                chain.start(1).await?.result().await?;
                times.push(began.elapsed());
            }
            say_median("W4", times);
        }
        Ask::W5 { runs } => {
            say_waiting(runs, &WAITING, |_| {
                let wait = wait.clone();
                async move { wait.start(()).await.map(drop).map_err(Into::into) }
            })
            .await?;
        }
    }
    // What waits would be waited for.
    std::process::exit(0)
}
