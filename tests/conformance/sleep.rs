//! Group 2: sleeps.

use std::time::Duration;

use durable::{EffectContext, Failure, Status};

use crate::{
    common::ledger::World,
    row::{Boxed, Hand, Row, go, row},
};

const HOUR: Duration = Duration::from_secs(3_600);

#[durable::workflow]
async fn naps() -> durable::Result<u64> {
    durable::sleep(Duration::from_secs(5)).await;
    Ok(5)
}

#[durable::workflow]
async fn named() -> durable::Result<()> {
    durable::sleep(Duration::from_secs(5)).named("until-tea").await;
    Ok(())
}

#[durable::workflow]
async fn naps_twice() -> durable::Result<String> {
    durable::sleep(Duration::from_secs(5)).await;
    durable::sleep(Duration::from_secs(7)).await;
    Ok("rested".into())
}

#[durable::workflow]
async fn rests() -> durable::Result<()> {
    durable::sleep(HOUR).await;
    Ok(())
}

/// Defines an effect that waits a minute for its second attempt, said in this unit.
macro_rules! in_unit {
    ($name:ident, $first:literal) => {
        #[durable::effect(idempotent, retry(attempts = 2, first = $first, max = "1d"))]
        async fn $name(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
            world.enter(cx, $first).await;
            if cx.attempt() == 1 { Err(Failure::new("not yet")) } else { Ok(()) }
        }
    };
}
in_unit!(in_millis, "3600000ms");
in_unit!(in_seconds, "3600s");
in_unit!(in_minutes, "60m");
in_unit!(in_hours, "1h");

/// An hour, in every unit that there is for it.
#[durable::workflow]
async fn units() -> durable::Result<()> {
    durable::sleep(Duration::from_millis(3_600_000)).await;
    durable::sleep(HOUR).await;
    durable::sleep_until(durable::now().await + HOUR).await;
    in_millis().await?;
    in_seconds().await?;
    in_minutes().await?;
    in_hours().await
}

/// While the run sleeps nothing of it is under way, and another one goes on where only one body may.
fn holds_nobody(hand: Hand) -> Boxed<Result<(), String>> {
    Box::pin(async move {
        let run = hand.runtime.run(&hand.id).await.unwrap();
        let until = match run.status().await.unwrap() {
            Status::Sleeping { until } => until,
            other => return Err(format!("it does not sleep: {other:?}")),
        };
        let busy = hand.runtime.bodies();
        let other = hand.runtime.start(format!("{}-beside", hand.id), crate::effect::gives()).await.unwrap();
        let given = other.output().await.map_err(|e| format!("{e:?}"))?;
        match (busy.len(), &*given, run.status().await.unwrap()) {
            (0, "tea", Status::Sleeping { until: still }) if still == until => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("2-1", "a sleep", go!(naps()))
            .log(
                "
                timer.set sleep[0] in=5s
                timer.fired sleep[0]
                ",
            )
            .completed(r#"{"Ok":5}"#),
        row("2-2", "a sleep with a name", go!(named()))
            .log(
                "
                timer.set until-tea[0] in=5s
                timer.fired until-tea[0]
                ",
            )
            .completed(r#"{"Ok":null}"#),
        row("2-3", "two in sequence, each resumed separately", go!(naps_twice()))
            .resumed_at("timer.set sleep[0]")
            .resumed_at("timer.set sleep[1]")
            .log(
                "
                timer.set sleep[0] in=5s
                timer.fired sleep[0]
                timer.set sleep[1] in=7s
                timer.fired sleep[1]
                ",
            )
            .completed(r#"{"Ok":"rested"}"#),
        row("2-4", "all units of a duration agree", go!(units()))
            .log(
                "
                timer.set sleep[0] in=3600s
                timer.fired sleep[0]
                timer.set sleep[1] in=3600s
                timer.fired sleep[1]
                timer.set sleep_until[0] in=3600s
                timer.fired sleep_until[0]
                effect.called in_millis[0] attempt=1
                effect.failed in_millis[0] attempt=1 in=3600s
                effect.called in_millis[0] attempt=2
                effect.result in_millis[0] attempt=2
                effect.called in_seconds[0] attempt=1
                effect.failed in_seconds[0] attempt=1 in=3600s
                effect.called in_seconds[0] attempt=2
                effect.result in_seconds[0] attempt=2
                effect.called in_minutes[0] attempt=1
                effect.failed in_minutes[0] attempt=1 in=3600s
                effect.called in_minutes[0] attempt=2
                effect.result in_minutes[0] attempt=2
                effect.called in_hours[0] attempt=1
                effect.failed in_hours[0] attempt=1 in=3600s
                effect.called in_hours[0] attempt=2
                effect.result in_hours[0] attempt=2
                ",
            )
            .completed(r#"{"Ok":null}"#),
        row("2-5", "an hour: the run is suspended and holds nobody up", go!(rests()))
            .build(|builder| builder.bodies_at_once(1).runs_at_once(1))
            .hand("timer.set sleep[0]", holds_nobody)
            .resumed_at("timer.set sleep[0]")
            .log(
                "
                timer.set sleep[0] in=1h
                timer.fired sleep[0]
                ",
            )
            .completed(r#"{"Ok":null}"#),
    ]
}
