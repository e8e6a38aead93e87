//! Workflows in every state that a run can be in.

use std::{path::Path, time::Duration};

use durable::{EffectContext, Question};
use serde_json::{Value as Json, json};

pub(crate) const LONG: Duration = Duration::from_secs(1_000_000);

#[durable::effect(read_only)]
pub(crate) async fn look(what: &str) -> String {
    format!("found {what}")
}

#[durable::effect(key = "{order}:refund")]
pub(crate) async fn refund(cx: &EffectContext, order: &str, cents: u64) -> durable::Result<u64> {
    let _ = (cx.idempotency_key(), order);
    Ok(cents)
}

/// Nobody knows whether it did.
#[durable::effect(at_most_once)]
pub(crate) async fn wire(cx: &EffectContext, cents: u64) -> durable::Result<u64> {
    let _ = cents;
    Err(cx.in_doubt("no answer"))?
}

/// Goes on until a file is there.
#[durable::effect(idempotent)]
pub(crate) async fn gate(cx: &EffectContext, file: &str) -> String {
    let _ = cx.attempt();
    while !Path::new(file).exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    "passed".to_owned()
}

#[durable::workflow]
pub(crate) async fn refunds(order: String, cents: u64) -> durable::Result<u64> {
    look(&order).await;
    refund(&order, cents).await
}

#[durable::workflow]
pub(crate) async fn fails(why: String) -> durable::Result<()> {
    Err(durable::Failure::new(why))
}

#[durable::workflow]
pub(crate) async fn wires(cents: u64) -> durable::Result<u64> {
    wire(cents).await
}

#[durable::workflow]
pub(crate) async fn listens() -> Json {
    durable::signal::<Json>("steer").await
}

#[durable::workflow]
pub(crate) async fn counts_to() -> u64 {
    durable::signal::<u64>("to").await
}

/// The provider is busy, and the next attempt far away.
#[durable::effect(idempotent, retry(attempts = 5, first = "1h", max = "1h"))]
pub(crate) async fn busy(what: &str) -> durable::Result<()> {
    Err(durable::Failure::new(format!("{what} is busy")))
}

#[durable::workflow]
pub(crate) async fn tries() -> durable::Result<()> {
    busy("the bank").await
}

/// Cannot be undone.
#[durable::effect(idempotent)]
pub(crate) async fn unbook(what: &str) -> durable::Result<()> {
    Err(durable::Failure::new(format!("{what} is closed")))
}

#[durable::workflow]
pub(crate) async fn books() -> durable::Result<Json> {
    durable::undo(unbook("the desk")).await;
    Ok(durable::signal::<Json>("confirm").await)
}

/// Has a child and a question.
#[durable::workflow]
pub(crate) async fn plans() -> durable::Result<bool> {
    let child = durable::spawn(books()).id("booking").await;
    let granted = durable::ask::<u64>(Question::new("spend it?")).await.is_granted();
    child.await?;
    Ok(granted)
}

#[durable::workflow]
pub(crate) async fn approves(order: String, cents: u64) -> String {
    let about = json!({ "order": order, "cents": cents });
    let question = Question::new(format!("refund {cents} cents?")).about(&about).by(["ann", "tester"]);
    match durable::ask::<u64>(question).await {
        durable::Answer::Granted(cents) => format!("granted {cents}"),
        durable::Answer::Refused(why) => format!("refused: {why}"),
        durable::Answer::Expired => "expired".to_owned(),
    }
}

#[durable::workflow]
pub(crate) async fn sleeps() {
    durable::sleep(LONG).await;
}

#[durable::workflow]
pub(crate) async fn waits_for_file(file: String) -> String {
    let passed = gate(&file).await;
    look(&passed).await
}

/// Has a child whose id says whose it is.
#[durable::workflow]
pub(crate) async fn adopts() -> durable::Result<Json> {
    let child = durable::spawn(listens()).await;
    durable::publish("child", &child.id().as_str()).await;
    Ok(child.await)
}

/// Panics as long as a file is not there.
#[durable::workflow]
pub(crate) async fn panics(file: String) -> bool {
    look("nothing").await;
    let mended = durable::untracked(|| Path::new(&file).exists());
    assert!(mended, "out of cheese");
    mended
}

#[durable::workflow]
pub(crate) async fn parents(child: String) -> durable::Result<Json> {
    let child = durable::spawn(listens()).id(&child).await;
    Ok(child.await)
}

#[durable::workflow]
pub(crate) async fn restarts(left: u32) -> durable::Result<u32> {
    look("again").await;
    match left {
        0 => Ok(0),
        _ => durable::restart_as(restarts(left - 1)).await,
    }
}

#[durable::workflow]
pub(crate) async fn asks_soon(within: Duration) -> String {
    match durable::ask::<u64>(Question::new("now?").within(within)).await {
        durable::Answer::Expired => "expired".to_owned(),
        _ => "answered".to_owned(),
    }
}

/// As [`gate`], and nobody runs it twice.
#[durable::effect(at_most_once)]
pub(crate) async fn wire_behind(file: &str) -> durable::Result<String> {
    while !Path::new(file).exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok("passed".to_owned())
}

#[durable::workflow]
pub(crate) async fn wires_behind(file: String) -> durable::Result<String> {
    wire_behind(&file).await
}
