//! durare on SQLite: `bench-durare FILE WORKLOAD`.

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

use durare::{DurableContext, DurableEngine, Result, SqliteProvider, WorkflowOptions};
use harness::{Ask, Outcome, asked, next_step_asked, payload, say_median, say_rate, say_waiting};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

static WAITING: AtomicUsize = AtomicUsize::new(0);

#[durare::step]
async fn step(ctx: &DurableContext) -> Result<String> {
    let _ = ctx;
    Ok(payload())
}

#[durare::step]
async fn next_step(ctx: &DurableContext) -> Result<bool> {
    let _ = ctx;
    Ok(next_step_asked().await.is_ok())
}

#[durare::workflow]
async fn chain(ctx: DurableContext, steps: u64) -> Result<u64> {
    let mut bytes = 0;
    for _ in 0..steps {
        bytes += step(&ctx).await?.len() as u64;
    }
    Ok(bytes)
}

#[durare::workflow]
async fn chain_and_next(ctx: DurableContext, steps: u64) -> Result<bool> {
    for _ in 0..steps {
        step(&ctx).await?;
    }
    next_step(&ctx).await
}

#[durare::workflow]
async fn wait(ctx: DurableContext, _nothing: bool) -> Result<Option<String>> {
    WAITING.fetch_add(1, Relaxed);
    ctx.recv("go", DAY).await
}

#[tokio::main]
async fn main() -> Outcome {
    let file = env::args().nth(1).ok_or("where is the store?")?;
    let store = SqliteProvider::connect(&format!("sqlite://{file}?mode=rwc")).await?;
    let engine = Arc::new(DurableEngine::new(Arc::new(store)).await?);
    engine.launch().await?;
    let start = async |id: String, steps| engine.start_with(Chain, steps, WorkflowOptions::with_id(&id)).await;
    match asked(1)? {
        Ask::W1 { steps } => {
            let began = Instant::now();
            start("w1".to_owned(), steps).await?.await?;
            say_rate("W1", steps, began);
        }
        Ask::W2 { runs, steps } => {
            let began = Instant::now();
            let mut started = Vec::new();
            for n in 0..runs {
                started.push(start(format!("w2-{n}"), steps).await?);
            }
            for run in started {
                run.await?;
            }
            say_rate("W2", runs as u64 * steps, began);
        }
        Ask::Load { steps } => {
            engine.start_with(ChainAndNext, steps, WorkflowOptions::with_id("w3")).await?.await?;
        }
        Ask::GoOn => {
            engine.recover().await?;
            future::pending().await
        }
        Ask::W4 { runs } => {
            let mut times = Vec::new();
            for n in 0..runs {
                let began = Instant::now();
                start(format!("w4-{n}"), 1).await?.await?;
                times.push(began.elapsed());
            }
            say_median("W4", times);
        }
        Ask::W5 { runs } => {
            say_waiting(runs, &WAITING, |n| {
                let engine = engine.clone();
                async move {
                    engine.start_with(Wait, true, WorkflowOptions::with_id(&format!("w5-{n}"))).await?;
                    Ok(())
                }
            })
            .await?;
        }
    }
    std::process::exit(0)
}
