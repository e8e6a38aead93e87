//! Group 3: nested scopes, as parts, branches and workflows inside another. What is in one shifts no place outside it.

use std::time::Duration;

use durable::Failure;

use crate::{
    effects::{Amount, decline, double, fails, give},
    row::{Played, Row, go, row},
    traces,
};

const MINUTE: Duration = Duration::from_secs(60);

#[durable::part]
async fn asks(text: &str) -> durable::Result<String> {
    give(text).await
}

#[durable::workflow]
async fn one() -> durable::Result<String> {
    let before = give("a").await?;
    let inside = asks("b").await?;
    Ok(before + &inside + &give("c").await?)
}

#[durable::workflow]
async fn named() -> durable::Result<String> {
    asks("b").named("second-look").await
}

#[durable::workflow]
async fn several() -> durable::Result<String> {
    async {
        let first = give("a").await?;
        let second = give("b").await?;
        Ok(first + &second + &give("c").await?)
    }
    .await
}

#[durable::part]
async fn fails_inside() -> durable::Result<String> {
    let given = give("a").await?;
    decline(&given).await
}

#[durable::workflow]
async fn inner_failure() -> durable::Result<String> {
    fails_inside().await
}

#[durable::workflow]
async fn inner_failure_caught() -> durable::Result<String> {
    match fails_inside().await {
        Ok(text) => Ok(text),
        Err(failure) => give(&format!("instead of {}", failure.message())).await,
    }
}

/// A workflow inside another: a scope of its own in the same run.
#[durable::workflow]
async fn two_levels() -> durable::Result<String> {
    let inner = one().await?;
    give(&format!("{inner}!")).await
}

#[durable::part]
async fn tries_inside(times: u32) -> durable::Result<String> {
    fails(times).await
}

#[durable::workflow]
async fn inner_retry(times: u32) -> durable::Result<String> {
    tries_inside(times).await
}

#[durable::workflow]
async fn finished_scope() -> durable::Result<String> {
    let inside = asks("b").await?;
    durable::sleep(MINUTE).await;
    Ok(inside)
}

#[durable::part]
async fn gives_then_sleeps() -> durable::Result<String> {
    let given = give("a").await?;
    durable::sleep(MINUTE).await;
    Ok(given)
}

#[durable::workflow]
async fn sleeps_inside() -> durable::Result<String> {
    gives_then_sleeps().await
}

#[durable::workflow]
async fn inside_and_outside() -> durable::Result<String> {
    let inside = gives_then_sleeps().await?;
    let outside = give("b").await?;
    durable::sleep(MINUTE).await;
    Ok(inside + &outside)
}

/// Twice the longest value that this case lets into the log.
#[durable::part]
async fn too_long() -> durable::Result<String> {
    let half = give(&"x".repeat(LONGEST / 2)).await?;
    Ok(half.repeat(4))
}

#[durable::workflow]
async fn long_inside() -> durable::Result<usize> {
    let text = too_long().await?;
    durable::sleep(MINUTE).await;
    give("after").await?;
    Ok(text.len())
}

/// For 3-11.
const LONGEST: usize = 1_000;

#[durable::part]
async fn doubled(cents: u64) -> durable::Result<Amount> {
    double(Amount { cents }).await
}

#[durable::workflow]
async fn own_form() -> durable::Result<u64> {
    let twice = doubled(625).await?;
    durable::sleep(MINUTE).await;
    Ok(doubled(twice.cents).await?.cents)
}

#[durable::part]
async fn plain(text: &str) -> durable::Result<u32> {
    text.parse().map_err(|_| Failure::new(format!("no number: {text}")))
}

#[durable::workflow]
async fn plain_failure() -> durable::Result<u32> {
    give("a").await?;
    let number = plain("seven").await?;
    give("never").await?;
    Ok(number)
}

#[durable::workflow]
async fn nothing() -> durable::Result<Option<String>> {
    async { give("a").await.map(drop) }.await?;
    Ok(async { None }.await)
}

#[durable::part]
async fn says(what: &str) {
    durable::untracked(|| tracing::info!("the scope says {what}"));
}

#[durable::workflow]
async fn only_logging() -> durable::Result<String> {
    says("hello").await;
    durable::sleep(MINUTE).await;
    give("after").await
}

/// The run's code ran in both processes; what its scope said was heard in the first one only.
fn said_once(played: &Played) -> Result<(), String> {
    let lines = traces::lines_of(&played.id, 0);
    match (played.lives, lines.iter().filter(|line| line.ends_with("the scope says hello")).count()) {
        (2, 1) => Ok(()),
        _ => Err(format!("{} lives: {lines:#?}", played.lives)),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    traces::keep("conformance");
    vec![
        row("3-1", "a scope with one effect", go!(one()))
            .log(
                r#"
                effect.called give[0] args={"text":"a"}
                effect.result give[0]
                effect.called asks[0]/give[0] args={"text":"b"}
                effect.result asks[0]/give[0]
                effect.called give[1] args={"text":"c"}
                effect.result give[1]
                "#,
            )
            .completed(r#"{"Ok":"abc"}"#),
        row("3-2", "a scope with a name", go!(named()))
            .log(
                r#"
                effect.called second-look[0]/give[0] args={"text":"b"}
                effect.result second-look[0]/give[0]
                "#,
            )
            .completed(r#"{"Ok":"b"}"#),
        row("3-3", "a scope with several effects", go!(several()))
            .log(
                r#"
                effect.called async[0]/give[0] args={"text":"a"}
                effect.result async[0]/give[0]
                effect.called async[0]/give[1] args={"text":"b"}
                effect.result async[0]/give[1]
                effect.called async[0]/give[2] args={"text":"c"}
                effect.result async[0]/give[2]
                "#,
            )
            .completed(r#"{"Ok":"abc"}"#),
        row("3-4", "a failure inside fails the run", go!(inner_failure()))
            .log(
                r#"
                effect.called fails_inside[0]/give[0]
                effect.result fails_inside[0]/give[0] value={"Ok":"a"}
                effect.called fails_inside[0]/decline[0]
                effect.result fails_inside[0]/decline[0] value={"Err":{"message":"a","kind":"declined"}}
                "#,
            )
            .failed(r#"{"Err":{"message":"a","kind":"declined"}}"#),
        row("3-5", "a failure inside is caught outside", go!(inner_failure_caught()))
            .log(
                r#"
                effect.called fails_inside[0]/give[0]
                effect.result fails_inside[0]/give[0]
                effect.called fails_inside[0]/decline[0]
                effect.result fails_inside[0]/decline[0]
                effect.called give[0] args={"text":"instead of a"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"instead of a"}"#),
        row("3-6", "two levels", go!(two_levels()))
            .log(
                r#"
                effect.called one[0]/give[0]
                effect.result one[0]/give[0]
                effect.called one[0]/asks[0]/give[0]
                effect.result one[0]/asks[0]/give[0]
                effect.called one[0]/give[1]
                effect.result one[0]/give[1]
                effect.called give[0] args={"text":"abc!"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"abc!"}"#),
        row("3-7", "an effect inside is tried again and succeeds", go!(inner_retry(1)))
            .log(
                "
                effect.called tries_inside[0]/fails[0] attempt=1
                effect.failed tries_inside[0]/fails[0] attempt=1 in=1s
                effect.called tries_inside[0]/fails[0] attempt=2
                effect.result tries_inside[0]/fails[0] attempt=2
                ",
            )
            .completed(r#"{"Ok":"attempt 2"}"#),
        row("3-8", "an effect inside uses up its attempts", go!(inner_retry(9)))
            .resumed_at("effect.failed tries_inside[0]/fails[0] attempt=2")
            .log(
                "
                effect.called tries_inside[0]/fails[0] attempt=1
                effect.failed tries_inside[0]/fails[0] attempt=1 in=1s
                effect.called tries_inside[0]/fails[0] attempt=2
                effect.failed tries_inside[0]/fails[0] attempt=2 in=2s
                effect.called tries_inside[0]/fails[0] attempt=3
                effect.failed tries_inside[0]/fails[0] attempt=3 in=4s
                effect.called tries_inside[0]/fails[0] attempt=4
                effect.result tries_inside[0]/fails[0] attempt=4 retry_at=none
                ",
            )
            .failed(r#"{"Err":{"message":"failure 4"}}"#),
        row("3-9", "a finished scope gives on replay what it gave, without a body", go!(finished_scope()))
            .resumed_at("timer.set sleep[0]")
            .log(
                "
                effect.called asks[0]/give[0] attempt=1
                effect.result asks[0]/give[0]
                timer.set sleep[0]
                timer.fired sleep[0]
                ",
            )
            .completed(r#"{"Ok":"b"}"#),
        row("3-10", "an effect and a sleep inside", go!(sleeps_inside()))
            .resumed_at("timer.set gives_then_sleeps[0]/sleep[0]")
            .log(
                "
                effect.called gives_then_sleeps[0]/give[0] attempt=1
                effect.result gives_then_sleeps[0]/give[0]
                timer.set gives_then_sleeps[0]/sleep[0]
                timer.fired gives_then_sleeps[0]/sleep[0]
                ",
            )
            .completed(r#"{"Ok":"a"}"#),
        row(
            "3-11",
            "a result above the record limit: it is in no record, and made again on replay from those inside",
            go!(long_inside()),
        )
        .build(|builder| builder.value_bytes_max(LONGEST))
        .resumed_at("timer.set sleep[0]")
        .log(
            "
            effect.called too_long[0]/give[0] attempt=1
            effect.result too_long[0]/give[0]
            timer.set sleep[0]
            timer.fired sleep[0]
            effect.called give[0]
            effect.result give[0]
            ",
        )
        .completed(r#"{"Ok":2000}"#),
        row(
            "3-12",
            "killed in an effect inside: only the effect is repeated, as an attempt of its own, and no step is asked twice",
            go!(several()),
        )
        .dies_in("async[0]/give[1]", 1)
        .log(
            "
            effect.called async[0]/give[0] attempt=1
            effect.result async[0]/give[0] attempt=1
            effect.called async[0]/give[1] attempt=1 step=1
            effect.called async[0]/give[1] attempt=2 step=1
            effect.result async[0]/give[1] attempt=2
            effect.called async[0]/give[2] attempt=1 step=2
            effect.result async[0]/give[2] attempt=1
            ",
        )
        .completed(r#"{"Ok":"abc"}"#),
        row("3-13", "the process ends during a sleep inside, and again behind it", go!(inside_and_outside()))
            .resumed_at("timer.set gives_then_sleeps[0]/sleep[0]")
            .resumed_at("effect.result give[0]")
            .log(
                "
                effect.called gives_then_sleeps[0]/give[0] attempt=1
                effect.result gives_then_sleeps[0]/give[0]
                timer.set gives_then_sleeps[0]/sleep[0] in=1m
                timer.fired gives_then_sleeps[0]/sleep[0]
                effect.called give[0] attempt=1
                effect.result give[0]
                timer.set sleep[0] in=1m
                timer.fired sleep[0]
                ",
            )
            .completed(r#"{"Ok":"ab"}"#),
        row("3-14", "a scope gives a type with a written form of its own, made from the record inside", go!(own_form()))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                effect.called doubled[0]/double[0] args={"amount":{"cents":"6.25 EUR"}}
                effect.result doubled[0]/double[0] value={"Ok":{"cents":"12.50 EUR"}}
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called doubled[1]/double[0] args={"amount":{"cents":"12.50 EUR"}}
                effect.result doubled[1]/double[0] value={"Ok":{"cents":"25.00 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":2500}"#),
        row("3-15", "an error raised by the scope's plain code", go!(plain_failure()))
            .log(
                "
                effect.called give[0]
                effect.result give[0]
                ",
            )
            .failed(r#"{"Err":{"message":"no number: seven"}}"#),
        row("3-16", "scopes that give nothing", go!(nothing()))
            .log(
                "
                effect.called async[0]/give[0]
                effect.result async[0]/give[0]
                ",
            )
            .completed(r#"{"Ok":null}"#),
        row("3-17", "a scope with only logging: it is in no record, and what it says is not said again", go!(only_logging()))
            .resumed_at("timer.set sleep[0]")
            .log(
                "
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called give[0]
                effect.result give[0]
                ",
            )
            .completed(r#"{"Ok":"after"}"#)
            .also(said_once),
        row("3-18", "an effect and a sleep inside, then an effect and a sleep outside", go!(inside_and_outside()))
            .log(
                r#"
                effect.called gives_then_sleeps[0]/give[0] args={"text":"a"}
                effect.result gives_then_sleeps[0]/give[0]
                timer.set gives_then_sleeps[0]/sleep[0]
                timer.fired gives_then_sleeps[0]/sleep[0]
                effect.called give[0] args={"text":"b"}
                effect.result give[0]
                timer.set sleep[0]
                timer.fired sleep[0]
                "#,
            )
            .completed(r#"{"Ok":"ab"}"#),
    ]
}
