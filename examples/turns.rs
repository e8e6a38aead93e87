//! An agent of 1,000 turns with a model, split into functions, and restarted in the middle.
//!
//! Look at `turn`: a `#[durable::part]` may take `&mut history`, for nothing of a part is recorded but the steps that it
//! awaits. The history is saved nowhere. After the restart the code runs again from its beginning, each turn that is in the
//! log gives what it gave, and so the history is again what it was; then the model is asked on.
use std::time::Duration;

use anyhow::ensure;
use durable::Runtime;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const TURNS: u32 = 1_000;
/// What a step is given is recorded, so the model is given the last messages and not all of them.
const WINDOW: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    User(String),
    Assistant(String),
}

/// A model that counts its calls.
#[derive(Clone, Default)]
struct Model {
    calls: watch::Sender<u32>,
}

#[durable::effect(read_only, retry(attempts = 3), timeout = "1m", kind = "chat")]
async fn chat(#[resource] model: &Model, messages: &[Message]) -> durable::Result<String> {
    model.calls.send_modify(|calls| *calls += 1);
    let call = *model.calls.borrow();
    Ok(format!("call {call} answers {:?}", messages.last()))
}

#[durable::part]
async fn turn(history: &mut Vec<Message>, n: u32) -> durable::Result<()> {
    history.push(Message::User(format!("question {n}")));
    let answer = chat(&history[history.len().saturating_sub(WINDOW)..]).await?;
    history.push(Message::Assistant(answer));
    Ok(())
}

#[durable::workflow]
async fn conversation(turns: u32) -> durable::Result<Vec<Message>> {
    let mut history = Vec::new();
    for n in 1..=turns {
        turn(&mut history, n).await?;
    }
    Ok(history)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (dir, model) = (tempfile::tempdir()?, Model::default());
    let open = async || Runtime::builder().resource(model.clone()).open(dir.path()).await;
    let calls = || *model.calls.borrow();

    let runtime = open().await?;
    runtime.start("long talk", conversation(TURNS)).await?;
    model.calls.subscribe().wait_for(|calls| *calls >= TURNS / 2).await?;
    runtime.shutdown(Duration::from_secs(10)).await?;
    println!("stopped after {} of {TURNS} turns", calls());
    ensure!((TURNS / 2..TURNS).contains(&calls()), "it should have been stopped in the middle");

    let runtime = open().await?;
    let history = runtime.start("long talk", conversation(TURNS)).await?.output().await?;
    println!("resumed, and done: {} messages, {} calls of the model in both lives", history.len(), calls());
    ensure!((history.len(), calls()) == (2 * TURNS as usize, TURNS), "each turn should ask the model once");
    for (n, message) in (1..).zip(history.iter().skip(1).step_by(2)) {
        let answer = format!("call {n} answers {:?}", Some(Message::User(format!("question {n}"))));
        ensure!(*message == Message::Assistant(answer), "turn {n} was answered {message:?}");
    }
    runtime.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
