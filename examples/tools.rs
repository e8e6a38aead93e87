//! A model asks for ten tool calls at once. At most three are under way at a time, and one fails.
//!
//! Look at the two orders: the calls end as they end, which is the order of the log, and the results come in the order of the
//! requests, live and on every replay. A tool that fails is a value like the others, for the model to see.
use std::time::Duration;

use anyhow::ensure;
use durable::{Failure, Runtime};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

const AT_A_TIME: usize = 3;
const CITIES: [&str; 10] =
    ["Reykjavik", "Rome", "Constantinople", "Atlantis", "Oslo", "Ljubljana", "Bern", "Copenhagen", "Riga", "Paris"];

/// What a model writes when it wants a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
enum ToolCall {
    Weather { city: String },
}

/// A weather service that turns away whoever comes while three are being served.
struct Weather {
    counter: Semaphore,
}

impl Weather {
    async fn degrees(&self, city: &str) -> durable::Result<usize> {
        let _served = self.counter.try_acquire().map_err(|_| Failure::new("too many requests").with_kind("busy"))?;
        tokio::time::sleep(Duration::from_millis(10 * city.len() as u64)).await;
        if city == "Atlantis" { Err(Failure::new("no such city")) } else { Ok(city.len()) }
    }
}

#[durable::effect(read_only, timeout = "30s", kind = "tool")]
async fn run_tool(#[resource] weather: &Weather, call: &ToolCall) -> durable::Result<String> {
    match call {
        ToolCall::Weather { city } => Ok(format!("{city}: {} degrees", weather.degrees(city).await?)),
    }
}

#[durable::workflow]
async fn run_tools(calls: Vec<ToolCall>) -> Vec<durable::Result<String>> {
    durable::join_all(calls.iter().map(run_tool)).at_most(AT_A_TIME).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let weather = Weather { counter: Semaphore::new(AT_A_TIME) };
    let runtime = Runtime::builder().resource(weather).open(dir.path()).await?;
    let calls = CITIES.map(|city| ToolCall::Weather { city: city.to_owned() });
    let run = runtime.start("weather", run_tools(calls.into())).await?;
    let results = run.returned().await?;

    println!("in the order of the log");
    for end in run.log().await?.iter().filter(|entry| entry.name == "effect.result") {
        println!("  {end}");
    }
    println!("in the order of the requests");
    ensure!(results.len() == CITIES.len(), "{} results", results.len());
    for (city, result) in CITIES.iter().zip(results) {
        match result {
            Ok(text) => {
                println!("  {text}");
                ensure!(text == format!("{city}: {} degrees", city.len()), "that is not the weather of {city}");
            }
            Err(failure) => {
                println!("  {failure}");
                ensure!(*city == "Atlantis" && failure.message() == "no such city", "{city} should be found");
            }
        }
    }
    runtime.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
