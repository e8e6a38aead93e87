//! An agent of 1,000 turns with a model, split into functions, and restarted in the middle.
//!
//! Look at `turn`: a `#[durable::part]` may take `&mut history`, for nothing of a part is recorded but the steps that it
//! awaits. The history is saved nowhere: after the restart the code runs again, each turn in the log gives what it gave, and the
//! history is what it was. Only the question of the moment is asked again: 1,001 calls for 1,000 turns.
use std::time::Duration;

use anyhow::ensure;
use durable::Runtime;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const TURNS: u32 = 1_000;
const HALF: u32 = TURNS / 2;
/// What a step is given is recorded, so the model is given the last messages and not all of them.
const WINDOW: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    User(String),
    Assistant(String),
}

/// A model that counts its calls, and answers no more than so many.
#[derive(Clone)]
struct Model {
    calls: watch::Sender<u32>,
    answers: u32,
}

#[durable::effect(read_only, retry(attempts = 3), timeout = "1m", kind = "chat")]
async fn chat(#[resource] model: &Model, messages: &[Message]) -> durable::Result<String> {
    model.calls.send_modify(|calls| *calls += 1);
    let call = *model.calls.borrow();
    if call > model.answers {
        std::future::pending::<()>().await;
    }
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
    let (dir, calls) = (tempfile::tempdir()?, watch::Sender::new(0));
    let model = |answers| Model { calls: calls.clone(), answers };

    let runtime = Runtime::builder().resource(model(HALF)).open(dir.path()).await?;
    runtime.start("long talk", conversation(TURNS)).await?;
    calls.subscribe().wait_for(|calls| *calls > HALF).await?;
    runtime.shutdown(Duration::ZERO).await?;
    println!("stopped in turn {} of {TURNS}", *calls.borrow());

    let runtime = Runtime::builder().resource(model(u32::MAX)).open(dir.path()).await?;
    let history = runtime.start("long talk", conversation(TURNS)).await?.output().await?;
    println!("resumed, and done: {} messages, {} calls in both lives", history.len(), *calls.borrow());
    ensure!((history.len(), *calls.borrow()) == (2 * TURNS as usize, TURNS + 1), "too few, or too many");
    for (n, message) in (1..).zip(history.iter().skip(1).step_by(2)) {
        let call = if n <= HALF { n } else { n + 1 };
        let answer = format!("call {call} answers {:?}", Some(Message::User(format!("question {n}"))));
        ensure!(*message == Message::Assistant(answer), "turn {n} was answered {message:?}");
    }
    runtime.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
