//! duroxide on its SQLite provider: `bench-duroxide FILE default|tuned WORKLOAD`.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../../harness.rs"]
mod harness;

use std::{
    env,
    fs::OpenOptions,
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
    providers::sqlite::SqliteProvider,
    runtime::{Runtime, RuntimeOptions, registry::ActivityRegistry},
};
use harness::{Ask, Outcome, asked, next_step_asked, payload, say_median, say_rate, say_waiting};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

static WAITING: AtomicUsize = AtomicUsize::new(0);

async fn chain(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    for _ in 0..steps.parse().map_err(|_| "how many steps?")? {
        ctx.schedule_activity("Step", "").await?;
    }
    Ok(String::new())
}

async fn chain_and_next(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    chain(ctx.clone(), steps).await?;
    ctx.schedule_activity("Next", "").await
}

async fn wait(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    WAITING.fetch_add(1, Relaxed);
    Ok(ctx.schedule_wait("go").await)
}

async fn complete(client: &Client, run: &str) -> Outcome {
    match client.wait_for_orchestration(run, DAY).await.map_err(|error| format!("{error:?}"))? {
        OrchestrationStatus::Completed { .. } => Ok(()),
        other => Err(format!("{run}: {other:?}").into()),
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let mut args = env::args().skip(1);
    let file = args.next().ok_or("where is the store?")?;
    let mut options = RuntimeOptions::default();
    if args.next().as_deref() == Some("tuned") {
        options.dispatcher_min_poll_interval = Duration::from_millis(1);
        options.orchestration_concurrency = 64;
        options.worker_concurrency = 64;
    }
    OpenOptions::new().create(true).append(true).open(&file)?;
    let store = Arc::new(SqliteProvider::new(&format!("sqlite:{file}"), None).await?);
    let activities = ActivityRegistry::builder()
        .register("Step", |_: ActivityContext, _: String| async { Ok(payload()) })
        .register("Next", |_: ActivityContext, _: String| async {
            next_step_asked().await.map(|()| String::new()).map_err(|error| error.to_string())
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Chain", chain)
        .register("ChainAndNext", chain_and_next)
        .register("Wait", wait)
        .build();
    let _runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Arc::new(Client::new(store));
    let start = |run: String, orchestration: &'static str, steps: u64| {
        let client = client.clone();
        async move {
            client
                .start_orchestration(&run, orchestration, steps.to_string())
                .await
                .map_err(|error| format!("{error:?}"))
        }
    };
    match asked(2)? {
        Ask::W1 { steps } => {
            let began = Instant::now();
            start("w1".to_owned(), "Chain", steps).await?;
            complete(&client, "w1").await?;
            say_rate("W1", steps, began);
        }
        Ask::W2 { runs, steps } => {
            let began = Instant::now();
            for n in 0..runs {
                start(format!("w2-{n}"), "Chain", steps).await?;
            }
            for n in 0..runs {
                complete(&client, &format!("w2-{n}")).await?;
            }
            say_rate("W2", runs as u64 * steps, began);
        }
        Ask::Load { steps } => {
            start("w3".to_owned(), "ChainAndNext", steps).await?;
            complete(&client, "w3").await?;
        }
        Ask::GoOn => future::pending().await,
        Ask::W4 { runs } => {
            let mut times = Vec::new();
            for n in 0..runs {
                let began = Instant::now();
                start(format!("w4-{n}"), "Chain", 1).await?;
                complete(&client, &format!("w4-{n}")).await?;
                times.push(began.elapsed());
            }
            say_median("W4", times);
        }
        Ask::W5 { runs } => {
            say_waiting(runs, &WAITING, |n| {
                let started = start(format!("w5-{n}"), "Wait", 0);
                async move { Ok(started.await?) }
            })
            .await?;
        }
    }
    std::process::exit(0)
}
