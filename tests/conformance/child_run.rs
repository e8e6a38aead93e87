//! Group 5: child runs.

use std::{collections::BTreeSet, time::Duration};

use durable::{Failure, Fault};
use serde::{Deserialize, Serialize};

use crate::{
    effects::{Amount, decline, double, give},
    lines,
    row::{Played, Row, go, na, row},
};

const MINUTE: Duration = Duration::from_secs(60);

#[durable::workflow]
async fn echo(text: String) -> durable::Result<String> {
    give(&text).await
}

#[durable::workflow]
async fn echoes(text: String) -> durable::Result<String> {
    durable::spawn(echo(text)).await.await
}

#[durable::workflow]
async fn named() -> durable::Result<String> {
    durable::spawn(echo("tea".into())).named("errand").id("the-errand").await.await
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u32,
    lines: Vec<(String, u32)>,
    note: Option<String>,
}

#[durable::workflow]
async fn doubled_order(order: Order) -> durable::Result<Order> {
    let lines = order.lines.into_iter().map(|(what, n)| (what, 2 * n)).collect();
    Ok(Order { lines, ..order })
}

#[durable::workflow]
async fn nested() -> durable::Result<Order> {
    durable::spawn(doubled_order(Order { id: 7, lines: vec![("tea".into(), 2)], note: None })).await.await
}

#[durable::workflow]
async fn large() -> durable::Result<usize> {
    Ok(durable::spawn(echo("x".repeat(900))).await.await?.len())
}

#[durable::workflow]
async fn silent() -> durable::Result<Option<String>> {
    Ok(None)
}

#[durable::workflow]
async fn nothing() -> durable::Result<Option<String>> {
    durable::spawn(silent()).await.await
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Trouble {
    Declined { code: u32 },
    Engine(String),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Engine(fault.to_string())
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[durable::workflow]
async fn troubled(code: u32) -> Result<String, Trouble> {
    match decline("no tea").await {
        Ok(tea) => Ok(tea),
        Err(_) => Err(Trouble::Declined { code }),
    }
}

#[durable::workflow]
async fn fails() -> Result<String, Trouble> {
    durable::spawn(troubled(5)).await.await
}

#[durable::workflow]
async fn catches() -> durable::Result<String> {
    match durable::spawn(troubled(5)).await.await {
        Err(Trouble::Declined { code }) => give(&format!("declined with {code}")).await,
        other => Err(Failure::new(format!("{other:?}"))),
    }
}

#[durable::workflow]
async fn fails_late() -> Result<String, Trouble> {
    let outcome = durable::spawn(troubled(5)).await.await;
    durable::sleep(MINUTE).await;
    outcome
}

#[durable::workflow]
async fn then_sleeps() -> durable::Result<String> {
    let echoed = durable::spawn(echo("tea".into())).await.await?;
    durable::sleep(MINUTE).await;
    Ok(echoed)
}

#[durable::workflow]
async fn effect_then_child() -> durable::Result<String> {
    let given = give("tea").await?;
    durable::spawn(echo(format!("{given} for two"))).await.await
}

#[durable::workflow]
async fn child_then_effect() -> durable::Result<String> {
    let echoed = durable::spawn(echo("tea".into())).await.await?;
    give(&format!("{echoed} for two")).await
}

#[durable::part]
async fn errand(text: &str) -> durable::Result<String> {
    durable::spawn(echo(text.to_owned())).await.await
}

#[durable::workflow]
async fn in_a_scope() -> durable::Result<String> {
    errand("tea").await
}

#[durable::workflow]
async fn two() -> durable::Result<String> {
    let first = durable::spawn(echo("tea".into())).await.await?;
    let second = durable::spawn(echo("milk".into())).await.await?;
    Ok(first + &second)
}

#[durable::workflow]
async fn doubles(amount: Amount) -> durable::Result<Amount> {
    double(amount).await
}

#[durable::workflow]
async fn own_form(cents: u64) -> durable::Result<u64> {
    Ok(durable::spawn(doubles(Amount { cents })).await.await?.cents)
}

/// There is one other run, whose log ends as the child's should.
fn one_child(played: &Played) -> Result<(), String> {
    children(played, 1)
}

fn two_children(played: &Played) -> Result<(), String> {
    children(played, 2)
}

fn children(played: &Played, how_many: usize) -> Result<(), String> {
    let spawned = played.log.iter().filter(|entry| entry.name == "child.spawned");
    let ids: BTreeSet<_> = spawned.filter_map(|entry| entry.get("run")?.as_str()).collect();
    let others: BTreeSet<_> = played.others.keys().map(String::as_str).collect();
    match ids == others && ids.len() == how_many {
        true => Ok(()),
        false => Err(format!("spawned {ids:?}, and there are {others:?}")),
    }
}

/// The child's own log holds its arguments in their form.
fn given_in_its_form(played: &Played) -> Result<(), String> {
    let logs: Vec<_> = played.others.values().map(|log| &log[0]).collect();
    match logs[..] {
        [started] if lines::is(started, r#"run.started - args={"amount":{"cents":"6.25 EUR"}}"#) => Ok(()),
        _ => Err(format!("{logs:?}")),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("5-1", "a child gives back what it was given", go!(echoes("tea".into())))
            .log(
                r#"
                child.spawned spawn:echo[0] workflow="echo"
                child.result spawn:echo[0] end="completed" value={"Ok":"tea"}
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#)
            .also(one_child),
        row("5-2", "a child with a name, and an id of its own", go!(named()))
            .log(
                r#"
                child.spawned errand[0] run="the-errand" workflow="echo"
                child.result errand[0] run="the-errand" value={"Ok":"tea"}
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#)
            .also(one_child),
        row("5-3", "nested objects go in and come out", go!(nested()))
            .log(
                r#"
                child.spawned spawn:doubled_order[0] workflow="doubled_order"
                child.result spawn:doubled_order[0] end="completed" value={"Ok":{"id":7,"lines":[["tea",4]],"note":null}}
                "#,
            )
            .completed(r#"{"Ok":{"id":7,"lines":[["tea",4]],"note":null}}"#)
            .also(one_child),
        row("5-4", "a child that gives nothing", go!(nothing()))
            .log(
                r#"
                child.spawned spawn:silent[0] workflow="silent"
                child.result spawn:silent[0] end="completed" value={"Ok":null}
                "#,
            )
            .completed(r#"{"Ok":null}"#),
        row("5-5", "a child fails: a typed error in the parent", go!(fails()))
            .log(
                r#"
                child.spawned spawn:troubled[0] workflow="troubled"
                child.result spawn:troubled[0] end="failed" value={"Err":{"Declined":{"code":5}}}
                "#,
            )
            .failed(r#"{"Err":{"Declined":{"code":5}}}"#),
        row("5-6", "and that is caught", go!(catches()))
            .log(
                r#"
                child.spawned spawn:troubled[0] workflow="troubled"
                child.result spawn:troubled[0] end="failed" value={"Err":{"Declined":{"code":5}}}
                effect.called give[0] args={"text":"declined with 5"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"declined with 5"}"#),
        row("5-7", "as much as a value may hold goes in and comes out", go!(large()))
            .build(|builder| builder.value_bytes_max(1_000))
            .log(
                r#"
                child.spawned spawn:echo[0] workflow="echo"
                child.result spawn:echo[0] end="completed"
                "#,
            )
            .completed(r#"{"Ok":900}"#),
        na("5-8", "a tenant's id is handed on", "a run has no tenant: what a child must know is among its arguments"),
        row("5-9", "then a sleep: the child is not started again", go!(then_sleeps()))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                child.spawned spawn:echo[0] workflow="echo"
                child.result spawn:echo[0] end="completed" value={"Ok":"tea"}
                timer.set sleep[0]
                timer.fired sleep[0]
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#)
            .also(one_child),
        row("5-10", "a child's failure is given again from the log", go!(fails_late()))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                child.spawned spawn:troubled[0] workflow="troubled"
                child.result spawn:troubled[0] end="failed" value={"Err":{"Declined":{"code":5}}}
                timer.set sleep[0]
                timer.fired sleep[0]
                "#,
            )
            .failed(r#"{"Err":{"Declined":{"code":5}}}"#)
            .also(one_child),
        row("5-11", "an effect, then a child that is given its result", go!(effect_then_child()))
            .log(
                r#"
                effect.called give[0]
                effect.result give[0]
                child.spawned spawn:echo[0] workflow="echo"
                child.result spawn:echo[0] end="completed" value={"Ok":"tea for two"}
                "#,
            )
            .completed(r#"{"Ok":"tea for two"}"#),
        row("5-12", "a child, then an effect on its result", go!(child_then_effect()))
            .log(
                r#"
                child.spawned spawn:echo[0] workflow="echo"
                child.result spawn:echo[0] end="completed" value={"Ok":"tea"}
                effect.called give[0] args={"text":"tea for two"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"tea for two"}"#),
        row("5-13", "a child of a nested scope", go!(in_a_scope()))
            .log(
                r#"
                child.spawned errand[0]/spawn:echo[0] workflow="echo"
                child.result errand[0]/spawn:echo[0] end="completed" value={"Ok":"tea"}
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#),
        row("5-14", "two in sequence", go!(two()))
            .log(
                r#"
                child.spawned spawn:echo[0] workflow="echo"
                child.result spawn:echo[0] end="completed" value={"Ok":"tea"}
                child.spawned spawn:echo[1] workflow="echo"
                child.result spawn:echo[1] end="completed" value={"Ok":"milk"}
                "#,
            )
            .completed(r#"{"Ok":"teamilk"}"#)
            .also(two_children),
        row("5-15", "what a child is given has a written form of its own", go!(own_form(625)))
            .log(
                r#"
                child.spawned spawn:doubles[0] workflow="doubles"
                child.result spawn:doubles[0] end="completed" value={"Ok":{"cents":"12.50 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":1250}"#)
            .also(given_in_its_form),
        row("5-16", "what a child gives has one", go!(own_form(625)))
            .resumed_at("child.spawned spawn:doubles[0]")
            .log(
                r#"
                child.spawned spawn:doubles[0] workflow="doubles"
                child.result spawn:doubles[0] end="completed" value={"Ok":{"cents":"12.50 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":1250}"#)
            .also(one_child),
    ]
}
