//! A slow model against a deadline of ten minutes, and a process that is gone for an hour in the middle.
//!
//! Look at the second life: the deadline is a moment, recorded when the timeout began, and not a countdown of some process. It
//! passed while nobody ran, so the run gives up on the model at once and falls back. Which of the two won is in the log: no
//! replay will ever see it otherwise.
use std::time::Duration;

use anyhow::ensure;
use durable::{Elapsed, Runtime, TestClock};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Model {
    Thorough,
    Quick,
}

/// Where models are asked; tells of each question. The thorough one never answers.
struct Models {
    asked: mpsc::UnboundedSender<Model>,
}

#[durable::effect(read_only, timeout = "1h", kind = "chat")]
async fn ask(#[resource] models: &Models, model: Model, question: &str) -> durable::Result<String> {
    println!("  ask({model:?}): its body runs");
    models.asked.send(model)?;
    match model {
        Model::Thorough => std::future::pending().await,
        Model::Quick => Ok(format!("in short: {question} Yes.")),
    }
}

#[durable::workflow]
async fn answer(question: String) -> durable::Result<String> {
    match durable::timeout(PATIENCE, ask(Model::Thorough, &question)).await {
        Ok(thorough) => thorough,
        Err(Elapsed { .. }) => ask(Model::Quick, &question).await,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let clock = TestClock::at(Duration::from_secs(1_767_603_600));
    let (asked, mut questions) = mpsc::unbounded_channel();
    let open = async || {
        let models = Models { asked: asked.clone() };
        Runtime::builder().resource(models).clock(clock.clone()).open(dir.path()).await
    };
    let question = || "Is the window still open?".to_owned();

    println!("first life: the model is asked, and the process goes down");
    let runtime = open().await?;
    runtime.start("q-1", answer(question())).await?;
    ensure!(questions.recv().await == Some(Model::Thorough), "the thorough model is asked first");
    runtime.shutdown(Duration::ZERO).await?;

    clock.advance(Duration::from_secs(60 * 60));

    println!("second life, an hour later: the deadline is over");
    let runtime = open().await?;
    let run = runtime.start("q-1", answer(question())).await?;
    println!("  {}", run.output().await?);
    let log = run.log().await?;
    log.iter().for_each(|entry| println!("{entry}"));

    ensure!(log.iter().any(|entry| entry.name == "timer.fired"), "the deadline should have passed");
    ensure!(log.iter().filter(|entry| entry.name == "effect.result").count() == 1, "one model should have answered");
    runtime.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
