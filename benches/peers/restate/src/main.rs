//! Restate's Rust SDK: `bench-restate serve ADDRESS` is the service, `bench-restate INGRESS WORKLOAD` the client.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../../harness.rs"]
mod harness;

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use harness::{Ask, Outcome, asked, at_once, next_step_asked, payload, say, say_median, say_rate};
use restate_sdk::{ingress::ReqwestClient, prelude::*};

static WAITING: AtomicUsize = AtomicUsize::new(0);

struct Bench;

#[service]
impl Bench {
    #[handler]
    async fn chain(&self, ctx: Context<'_>, steps: u64) -> HandlerResult<u64> {
        let mut bytes = 0;
        for _ in 0..steps {
            bytes += ctx.run(|| async { Ok(payload()) }).name("step").await?.len() as u64;
        }
        Ok(bytes)
    }

    #[handler]
    async fn chain_and_next(&self, ctx: Context<'_>, steps: u64) -> HandlerResult<u64> {
        let mut bytes = 0;
        for _ in 0..steps {
            bytes += ctx.run(|| async { Ok(payload()) }).name("step").await?.len() as u64;
        }
        ctx.run(|| async { Ok(next_step_asked().await.map_err(|error| TerminalError::new(error.to_string()))?) })
            .name("next")
            .await?;
        Ok(bytes)
    }

    #[handler]
    async fn wait(&self, ctx: Context<'_>) -> HandlerResult<String> {
        let (_, go) = ctx.awakeable::<String>();
        WAITING.fetch_add(1, Relaxed);
        Ok(go.await?)
    }

    /// How many runs have come to wait.
    #[handler]
    async fn waiting(&self, _ctx: Context<'_>) -> HandlerResult<u64> {
        Ok(WAITING.load(Relaxed) as u64)
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let args: Vec<String> = env::args().collect();
    if let [_, serve, address] = args.as_slice()
        && serve == "serve"
    {
        HttpServer::new(Endpoint::builder().bind(Bench).build()).listen_and_serve(address.parse()?).await;
        return Ok(());
    }
    let ingress = args.get(1).ok_or("where is the server?")?;
    let bench = Arc::new(BenchIngressClient::from_client(ReqwestClient::connect(ingress.parse()?)?));
    let chain = |steps| {
        let bench = bench.clone();
        async move { bench.chain(steps).call().await?.into_body().map(drop).map_err(Into::into) }
    };
    match asked(1)? {
        Ask::W1 { steps } => {
            let began = Instant::now();
            chain(steps).await?;
            say_rate("W1", steps, began);
        }
        Ask::W2 { runs, steps } => {
            let began = Instant::now();
            at_once(runs, |_| chain(steps)).await?;
            say_rate("W2", runs as u64 * steps, began);
        }
        Ask::Load { steps } => drop(bench.chain_and_next(steps).send().await?),
        Ask::GoOn => return Err("the service goes on, not its client".into()),
        Ask::W4 { runs } => {
            let mut times = Vec::new();
            for _ in 0..runs {
                let began = Instant::now();
                chain(1).await?;
                times.push(began.elapsed());
            }
            say_median("W4", times);
        }
        Ask::W5 { runs } => {
            let began = Instant::now();
            at_once(runs, |_| {
                let bench = bench.clone();
                async move { bench.wait().send().await.map(drop).map_err(Into::into) }
            })
            .await?;
            while bench.waiting().call().await?.into_body()? < runs as u64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            say("W5", began.elapsed().as_secs_f64(), "s", &format!("{runs} runs"));
        }
    }
    Ok(())
}
