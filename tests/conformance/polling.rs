//! Group 6: loops of an effect that looks and a sleep.

use std::time::Duration;

use durable::{EffectContext, Failure};
use serde::{Deserialize, Serialize};

use crate::{
    common::ledger::World,
    effects::{Amount, give, next, weigh},
    row::{Row, go, row},
};

const PAUSE: Duration = Duration::from_secs(30);

/// Looks until it sees enough, each time from where it was the last time; so many looks at most.
#[durable::part]
async fn count(first: u64, enough: u64, looks: u32) -> durable::Result<u64> {
    let mut seen = next(first).await;
    for _ in 1..looks {
        if seen >= enough {
            break;
        }
        durable::sleep(PAUSE).await;
        seen = next(seen).await;
    }
    if seen >= enough { Ok(seen) } else { Err(Failure::new(format!("{seen} after {looks} looks"))) }
}

#[durable::workflow]
async fn counts(first: u64, enough: u64) -> durable::Result<u64> {
    count(first, enough, 3).await
}

#[durable::workflow]
async fn counts_named() -> durable::Result<u64> {
    count(0, 1, 3).named("oven").await
}

#[durable::workflow]
async fn counts_caught() -> durable::Result<String> {
    match count(0, 9, 2).await {
        Ok(_) => Ok("hot".into()),
        Err(failure) => give(failure.message()).await,
    }
}

#[durable::workflow]
async fn counts_then_gives() -> durable::Result<String> {
    let seen = count(0, 2, 3).await?;
    durable::sleep(PAUSE).await;
    give(&format!("seen {seen}")).await
}

#[durable::workflow]
async fn counts_twice() -> durable::Result<u64> {
    let first = count(0, 2, 3).await?;
    count(first, 4, 3).await
}

/// Lightens a load until there is none, which is an error of the effect.
#[durable::workflow]
async fn lightens(mut load: i64) -> durable::Result<i64> {
    loop {
        load = weigh(load).await? - 1;
        durable::sleep(PAUSE).await;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    by: String,
    steps: Vec<u32>,
    sum: Amount,
}

#[durable::effect(idempotent)]
async fn save_more(cx: &EffectContext, #[resource] world: &World, saved: Saved) -> durable::Result<Saved> {
    world.enter(cx, &saved.sum.cents.to_string()).await;
    let steps = [&saved.steps[..], &[saved.steps.len() as u32 + 1]].concat();
    Ok(Saved { steps, sum: Amount { cents: saved.sum.cents + 150 }, ..saved })
}

#[durable::workflow]
async fn saves() -> durable::Result<Saved> {
    let mut saved = Saved { by: "Ann".into(), steps: Vec::new(), sum: Amount { cents: 0 } };
    while saved.sum.cents < 300 {
        saved = save_more(saved).await?;
        durable::sleep(PAUSE).await;
    }
    Ok(saved)
}

#[durable::effect(idempotent)]
async fn shorten(cx: &EffectContext, #[resource] world: &World, queue: u32) -> Option<u32> {
    world.enter(cx, &queue.to_string()).await;
    queue.checked_sub(1)
}

#[durable::workflow]
async fn empties(queue: u32) -> Option<u32> {
    let mut left = Some(queue);
    while let Some(queue) = left {
        left = shorten(queue).await;
        if left.is_some() {
            durable::sleep(PAUSE).await;
        }
    }
    left
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("6-1", "a counter to its threshold, one record a look", go!(counts(0, 3)))
            .log(
                r#"
                effect.called count[0]/next[0] args={"n":0}
                effect.result count[0]/next[0] value=1
                timer.set count[0]/sleep[0]
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1] args={"n":1}
                effect.result count[0]/next[1] value=2
                timer.set count[0]/sleep[1]
                timer.fired count[0]/sleep[1]
                effect.called count[0]/next[2] args={"n":2}
                effect.result count[0]/next[2] value=3
                "#,
            )
            .completed(r#"{"Ok":3}"#),
        row("6-2", "true at once: no sleep", go!(counts(0, 1)))
            .log(
                "
                effect.called count[0]/next[0]
                effect.result count[0]/next[0] value=1
                ",
            )
            .completed(r#"{"Ok":1}"#),
        row("6-3", "a loop with a name", go!(counts_named()))
            .log(
                "
                effect.called oven[0]/next[0]
                effect.result oven[0]/next[0] value=1
                ",
            )
            .completed(r#"{"Ok":1}"#),
        row("6-4", "the first state is given, and each feeds the next look", go!(counts(40, 42)))
            .log(
                r#"
                effect.called count[0]/next[0] args={"n":40}
                effect.result count[0]/next[0] value=41
                timer.set count[0]/sleep[0]
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1] args={"n":41}
                effect.result count[0]/next[1] value=42
                "#,
            )
            .completed(r#"{"Ok":42}"#),
        row("6-5", "the fixed delay is in the log", go!(counts(0, 3)))
            .resumed_at("timer.set count[0]/sleep[0]")
            .resumed_at("timer.set count[0]/sleep[1]")
            .log(
                "
                effect.called count[0]/next[0] attempt=1
                effect.result count[0]/next[0]
                timer.set count[0]/sleep[0] in=30s
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1] attempt=1
                effect.result count[0]/next[1]
                timer.set count[0]/sleep[1] in=30s
                timer.fired count[0]/sleep[1]
                effect.called count[0]/next[2] attempt=1
                effect.result count[0]/next[2]
                ",
            )
            .completed(r#"{"Ok":3}"#),
        row("6-6", "all looks are used up: the run fails", go!(counts(0, 9)))
            .log(
                "
                effect.called count[0]/next[0]
                effect.result count[0]/next[0]
                timer.set count[0]/sleep[0]
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1]
                effect.result count[0]/next[1]
                timer.set count[0]/sleep[1]
                timer.fired count[0]/sleep[1]
                effect.called count[0]/next[2]
                effect.result count[0]/next[2] value=3
                ",
            )
            .failed(r#"{"Err":{"message":"3 after 3 looks"}}"#),
        row("6-7", "a look fails: the run fails", go!(lightens(2)))
            .log(
                r#"
                effect.called weigh[0] args={"n":2}
                effect.result weigh[0] value={"Ok":2}
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called weigh[1] args={"n":1}
                effect.result weigh[1] value={"Ok":1}
                timer.set sleep[1]
                timer.fired sleep[1]
                effect.called weigh[2] args={"n":0}
                effect.result weigh[2] value={"Err":{"message":"no weight: 0"}}
                "#,
            )
            .failed(r#"{"Err":{"message":"no weight: 0"}}"#),
        row("6-8", "a loop's failure is caught", go!(counts_caught()))
            .log(
                r#"
                effect.called count[0]/next[0]
                effect.result count[0]/next[0]
                timer.set count[0]/sleep[0]
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1]
                effect.result count[0]/next[1] value=2
                effect.called give[0] args={"text":"2 after 2 looks"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"2 after 2 looks"}"#),
        row("6-9", "an object as the state", go!(saves()))
            .log(
                r#"
                effect.called save_more[0] args={"saved":{"by":"Ann","steps":[],"sum":{"cents":"0.00 EUR"}}}
                effect.result save_more[0] value={"Ok":{"by":"Ann","steps":[1],"sum":{"cents":"1.50 EUR"}}}
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called save_more[1] args={"saved":{"by":"Ann","steps":[1],"sum":{"cents":"1.50 EUR"}}}
                effect.result save_more[1] value={"Ok":{"by":"Ann","steps":[1,2],"sum":{"cents":"3.00 EUR"}}}
                timer.set sleep[1]
                timer.fired sleep[1]
                "#,
            )
            .completed(r#"{"Ok":{"by":"Ann","steps":[1,2],"sum":{"cents":"3.00 EUR"}}}"#),
        row("6-10", "the last state is nothing", go!(empties(1)))
            .log(
                "
                effect.called shorten[0]
                effect.result shorten[0] value=0
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called shorten[1]
                effect.result shorten[1] value=null
                ",
            )
            .completed("null"),
        row("6-11", "a state with a written form of its own, over suspensions", go!(saves()))
            .resumed_at("timer.set sleep[0]")
            .resumed_at("timer.set sleep[1]")
            .log(
                r#"
                effect.called save_more[0] attempt=1
                effect.result save_more[0] value={"Ok":{"by":"Ann","steps":[1],"sum":{"cents":"1.50 EUR"}}}
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called save_more[1] args={"saved":{"by":"Ann","steps":[1],"sum":{"cents":"1.50 EUR"}}}
                effect.result save_more[1] value={"Ok":{"by":"Ann","steps":[1,2],"sum":{"cents":"3.00 EUR"}}}
                timer.set sleep[1]
                timer.fired sleep[1]
                "#,
            )
            .completed(r#"{"Ok":{"by":"Ann","steps":[1,2],"sum":{"cents":"3.00 EUR"}}}"#),
        row("6-12", "the result feeds an effect; the finished loop does not run again", go!(counts_then_gives()))
            .resumed_at("timer.set count[0]/sleep[0]")
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                effect.called count[0]/next[0] attempt=1
                effect.result count[0]/next[0]
                timer.set count[0]/sleep[0]
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1] attempt=1
                effect.result count[0]/next[1]
                timer.set sleep[0]
                timer.fired sleep[0]
                effect.called give[0] args={"text":"seen 2"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"seen 2"}"#),
        row("6-13", "two loops in sequence have places of their own", go!(counts_twice()))
            .resumed_at("timer.set count[1]/sleep[0]")
            .log(
                r#"
                effect.called count[0]/next[0] args={"n":0}
                effect.result count[0]/next[0]
                timer.set count[0]/sleep[0]
                timer.fired count[0]/sleep[0]
                effect.called count[0]/next[1] args={"n":1}
                effect.result count[0]/next[1]
                effect.called count[1]/next[0] args={"n":2}
                effect.result count[1]/next[0]
                timer.set count[1]/sleep[0]
                timer.fired count[1]/sleep[0]
                effect.called count[1]/next[1] args={"n":3}
                effect.result count[1]/next[1]
                "#,
            )
            .completed(r#"{"Ok":4}"#),
    ]
}
