//! Group 7: a token is handed out by an effect, and its answer waited for.

use std::time::Duration;

use durable::{EffectContext, Failure, Recordable};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    callback::{answered_after, beat, no_beat, with_beats},
    common::ledger::World,
    effects::give,
    row::{Played, Row, go, row},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Tells somebody outside the token under which they can answer: its line in the ledger is what they have heard.
#[durable::effect(idempotent)]
async fn hand_out(cx: &EffectContext, #[resource] world: &World, token: &str) -> durable::Result<()> {
    world.enter(cx, token).await;
    Ok(())
}

#[durable::effect(idempotent, retry(attempts = 3))]
async fn hand_out_in_vain(cx: &EffectContext, #[resource] world: &World, token: &str) -> durable::Result<()> {
    world.enter(cx, token).await;
    Err(Failure::new("nobody there"))
}

/// Hands out a token and gives what is answered.
#[durable::part]
async fn answer<T: Recordable>(within: Duration) -> durable::Result<T> {
    let token = format!("token-{}", durable::uuid().await);
    hand_out(&token).await?;
    durable::timeout(within, durable::signal::<durable::Result<T>>(token).named("answer")).await?
}

#[durable::workflow]
async fn one() -> durable::Result<String> {
    answer(MINUTE).await
}

#[durable::workflow]
async fn named() -> durable::Result<String> {
    answer(MINUTE).named("approval").await
}

#[durable::workflow]
async fn caught() -> durable::Result<String> {
    match answer::<String>(MINUTE).await {
        Ok(text) => Ok(text),
        Err(failure) => give(&format!("instead: {}", failure.message())).await,
    }
}

/// Waits while it hands out: the answer may be there first.
#[durable::workflow]
async fn in_vain() -> durable::Result<String> {
    let token = format!("token-{}", durable::uuid().await);
    let answer = async { Ok(durable::signal::<String>(token.clone()).named("answer").await) };
    let ((), answer) = durable::try_join((hand_out_in_vain(&token), answer)).await?;
    Ok(answer)
}

#[durable::workflow]
async fn in_a_scope() -> durable::Result<String> {
    async { answer(MINUTE).await }.await
}

#[durable::workflow]
async fn two() -> durable::Result<String> {
    let first: String = answer(MINUTE).await?;
    Ok(first + &answer::<String>(MINUTE).await?)
}

#[durable::workflow]
async fn later() -> durable::Result<String> {
    durable::sleep(MINUTE).await;
    let given = give("tea").await?;
    Ok(given + &answer::<String>(MINUTE).await?)
}

#[derive(Debug, Serialize, Deserialize)]
struct Shipment {
    boxes: u32,
    by: Vec<String>,
}

#[durable::workflow]
async fn typed() -> durable::Result<u32> {
    let shipment: Shipment = answer(MINUTE).await?;
    Ok(shipment.boxes * shipment.by.len() as u32)
}

#[durable::workflow]
async fn beats() -> durable::Result<String> {
    let token = format!("token-{}", durable::uuid().await);
    hand_out(&token).await?;
    Ok(with_beats(&token, MINUTE).await?)
}

#[durable::workflow]
async fn without_payload() -> durable::Result<()> {
    answer(MINUTE).await
}

/// The log of a token that is handed out in a scope, and waited for.
fn waited(scope: &str) -> String {
    let log = "
        effect.called @/hand_out[0]
        effect.result @/hand_out[0]
        signal.awaited @/timeout[0]/0/answer[0] signal^=token-
        timer.set @/timeout[0]/1/sleep[0] in=1m
        ";
    log.replace('@', scope)
}

/// And that is answered so.
fn answered(scope: &str, message: &str) -> String {
    let log = "
        signal.received @/timeout[0]/0/answer[0] messages=[MESSAGE]
        step.closed @/timeout[0]/1/sleep[0]
        ";
    waited(scope) + &log.replace('@', scope).replace("MESSAGE", message)
}

/// And that is not answered in time.
fn elapsed(scope: &str) -> String {
    let log = "
        timer.fired @/timeout[0]/1/sleep[0]
        step.closed @/timeout[0]/0/answer[0]
        ";
    waited(scope) + &log.replace('@', scope)
}

const HANDED_OUT: &str = "
    effect.called hand_out[0]
    effect.result hand_out[0]
    ";

/// An effect behind it.
fn then_gives(text: &str) -> String {
    let log = r#"
        effect.called give[0] args={"text":"TEXT"}
        effect.result give[0]
        "#;
    log.replace("TEXT", text)
}

/// Each was told a token that nobody else was.
fn two_tokens(played: &Played) -> Result<(), String> {
    let told: Vec<_> = played.bodies.iter().map(|line| &line.input).collect();
    match told[..] {
        [first, second] if first != second => Ok(()),
        _ => Err(format!("told: {told:?}")),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("7-1", "a token is handed out, and its answer waited for", go!(one()))
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"yes"})))
            .log(answered("answer[0]", r#"{"Ok":"yes"}"#))
            .completed(r#"{"Ok":"yes"}"#),
        row("7-2", "the wait has a name", go!(named()))
            .hand("timer.set approval[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"yes"})))
            .log(answered("approval[0]", r#"{"Ok":"yes"}"#))
            .completed(r#"{"Ok":"yes"}"#),
        row("7-3", "without a name: named by its place", go!(one()))
            .resumed_at("timer.set answer[0]/timeout[0]/1/sleep[0]")
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"yes"})))
            .log(answered("answer[0]", r#"{"Ok":"yes"}"#))
            .completed(r#"{"Ok":"yes"}"#),
        row("7-4", "the sender reports a failure, and nobody catches it", go!(one()))
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| {
                hand.answer("", json!({"Err":{"message":"no","kind":"declined"}}))
            })
            .log(answered("answer[0]", r#"{"Err":{"message":"no","kind":"declined"}}"#))
            .failed(r#"{"Err":{"message":"no","kind":"declined"}}"#),
        row("7-5", "nobody answers in time", go!(one()))
            .resumed_at("timer.set answer[0]/timeout[0]/1/sleep[0]")
            .log(elapsed("answer[0]"))
            .failed(r#"{"Err":{"message":"not ready within 60s","kind":"elapsed"}}"#),
        row("7-6", "a failure is caught", go!(caught()))
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Err":{"message":"no"}})))
            .log(answered("answer[0]", r#"{"Err":{"message":"no"}}"#))
            .log(then_gives("instead: no"))
            .completed(r#"{"Ok":"instead: no"}"#),
        row(
            "7-7",
            "handing out always fails: its attempts end, the whole fails, and no wait is left open",
            go!(in_vain()),
        )
        .log(
            r#"
            effect.called try_join[0]/0/hand_out_in_vain[0] attempt=1
            signal.awaited try_join[0]/1/async[0]/answer[0]
            effect.failed try_join[0]/0/hand_out_in_vain[0] attempt=1 in=1s
            effect.called try_join[0]/0/hand_out_in_vain[0] attempt=2
            effect.failed try_join[0]/0/hand_out_in_vain[0] attempt=2 in=2s
            effect.called try_join[0]/0/hand_out_in_vain[0] attempt=3
            effect.result try_join[0]/0/hand_out_in_vain[0] attempt=3 value={"Err":{"message":"nobody there"}}
            step.closed try_join[0]/1/async[0]/answer[0]
            "#,
        )
        .failed(r#"{"Err":{"message":"nobody there"}}"#),
        row("7-8", "inside a scope", go!(in_a_scope()))
            .hand("timer.set async[0]/answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"yes"})))
            .log(answered("async[0]/answer[0]", r#"{"Ok":"yes"}"#))
            .completed(r#"{"Ok":"yes"}"#),
        row("7-9", "two in sequence have tokens of their own", go!(two()))
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"a"})))
            .hand("timer.set answer[1]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"b"})))
            .log(answered("answer[0]", r#"{"Ok":"a"}"#))
            .log(answered("answer[1]", r#"{"Ok":"b"}"#))
            .completed(r#"{"Ok":"ab"}"#)
            .also(two_tokens),
        row("7-10", "after a sleep and an effect", go!(later()))
            .resumed_at("timer.set sleep[0]")
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":"yes"})))
            .log("timer.set sleep[0] in=1m")
            .log("timer.fired sleep[0]")
            .log(then_gives("tea"))
            .log(answered("answer[0]", r#"{"Ok":"yes"}"#))
            .completed(r#"{"Ok":"teayes"}"#),
        row("7-11", "the answer is read as a type", go!(typed()))
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| {
                hand.answer("", json!({"Ok":{"boxes":3,"by":["ship","rail"]}}))
            })
            .log(answered("answer[0]", r#"{"Ok":{"boxes":3,"by":["ship","rail"]}}"#))
            .completed(r#"{"Ok":6}"#),
        row("7-12", "a beat is missing", go!(beats()))
            .log(HANDED_OUT)
            .log(no_beat(0))
            .failed(r#"{"Err":{"message":"not ready within 60s","kind":"elapsed"}}"#),
        row("7-13", "a beat, and then an answer later than one beat lasts", go!(beats()))
            .hand("timer.set with_beats[0]/timeout[0]/1/sleep[0]", |hand| hand.beat("", 40))
            .resumed_at("timer.set with_beats[0]/timeout[1]/1/sleep[0]")
            .hand("timer.set with_beats[0]/timeout[1]/1/sleep[0]", |hand| hand.beat("", 40))
            .hand("timer.set with_beats[0]/timeout[2]/1/sleep[0]", |hand| hand.answer("", json!("yes")))
            .log(HANDED_OUT)
            .log(beat(0))
            .log(beat(1))
            .log(answered_after(2))
            .completed(r#"{"Ok":"yes"}"#),
        row("7-14", "nobody answers in time, and that is caught", go!(caught()))
            .resumed_at("timer.set answer[0]/timeout[0]/1/sleep[0]")
            .log(elapsed("answer[0]"))
            .log(then_gives("instead: not ready within 60s"))
            .completed(r#"{"Ok":"instead: not ready within 60s"}"#),
        row("7-15", "an answer without payload", go!(without_payload()))
            .hand("timer.set answer[0]/timeout[0]/1/sleep[0]", |hand| hand.answer("", json!({"Ok":null})))
            .log(answered("answer[0]", r#"{"Ok":null}"#))
            .completed(r#"{"Ok":null}"#),
    ]
}
