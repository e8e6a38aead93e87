//! Group 1: effects.

use std::{collections::BTreeMap, time::Duration};

use durable::{EffectContext, Failure, Fault, Reconciled};
use serde::{Deserialize, Serialize};

use crate::{
    common::ledger::World,
    effects::{Amount, decline, double, fails, give},
    row::{Played, Row, go, row},
    traces,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    id: u32,
    lines: Vec<(String, u32)>,
    notes: BTreeMap<String, Option<String>>,
}

#[durable::effect(idempotent)]
async fn load_order(cx: &EffectContext, #[resource] world: &World, id: u32) -> Order {
    world.enter(cx, &id.to_string()).await;
    Order {
        id,
        lines: vec![("tea".into(), 2)],
        notes: [("gift".into(), None), ("for".into(), Some("Ann".into()))].into(),
    }
}

#[durable::effect(idempotent)]
async fn touch(cx: &EffectContext, #[resource] world: &World) {
    world.enter(cx, "").await;
}

#[durable::effect(idempotent)]
async fn look(cx: &EffectContext, #[resource] world: &World) -> Option<String> {
    world.enter(cx, "").await;
    None
}

#[durable::effect(idempotent)]
async fn speak(cx: &EffectContext, #[resource] world: &World, text: &str) -> durable::Result<String> {
    world.enter(cx, text).await;
    tracing::info!("speaking: {text}");
    Ok(text.to_owned())
}

/// Two seconds, then six.
#[durable::effect(idempotent, retry(attempts = 3, first = "2s", factor = 3.0))]
async fn slowly(cx: &EffectContext, #[resource] world: &World) -> durable::Result<u32> {
    world.enter(cx, "").await;
    match cx.attempt() {
        3 => Ok(3),
        n => Err(Failure::new(format!("failure {n}"))),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Trouble {
    Busy,
    Broken(String),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Broken(fault.to_string())
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Busy => f.write_str("busy"),
            Trouble::Broken(how) => write!(f, "broken: {how}"),
        }
    }
}

fn is_busy(trouble: &Trouble) -> bool {
    *trouble == Trouble::Busy
}

/// Only a busy line is tried again.
#[durable::effect(idempotent, retry(attempts = 3, if = is_busy))]
async fn dial(cx: &EffectContext, #[resource] world: &World, trouble: Trouble) -> Result<u32, Trouble> {
    world.enter(cx, &trouble.to_string()).await;
    if cx.attempt() < 2 { Err(trouble) } else { Ok(cx.attempt()) }
}

#[durable::effect(at_most_once, in_doubt = error)]
async fn wire(cx: &EffectContext, #[resource] world: &World, cents: u64) -> durable::Result<u64> {
    world.enter(cx, &cents.to_string()).await;
    Ok(cents)
}

/// At most once at a time: whether there is another time is decided by `not_sent`.
#[durable::effect(at_most_once, reconcile(not_sent, settle = "2m"))]
async fn send(cx: &EffectContext, #[resource] world: &World, text: &str) -> durable::Result<String> {
    world.enter(cx, text).await;
    Ok(format!("{text} at attempt {}", cx.attempt()))
}

async fn not_sent(cx: &EffectContext, world: &World, text: &str) -> durable::Result<Reconciled<String>> {
    let _ = (cx, world, text);
    Ok(Reconciled::CannotHappen)
}

#[durable::workflow]
pub(crate) async fn gives() -> durable::Result<String> {
    give("tea").await
}

#[durable::workflow]
async fn named() -> durable::Result<String> {
    give("tea").named("order").await
}

#[durable::workflow]
async fn chained() -> durable::Result<String> {
    let first = give("tea").await?;
    give(&format!("{first} for two")).await
}

#[durable::workflow]
async fn nested() -> Order {
    load_order(7).await
}

#[durable::workflow]
async fn nothing() -> Option<String> {
    touch().await;
    look().await
}

#[durable::workflow]
async fn own_form() -> durable::Result<u64> {
    Ok(double(Amount { cents: 625 }).await?.cents)
}

#[durable::workflow]
async fn speaks() -> durable::Result<String> {
    speak("hello").named("greeting").await
}

#[durable::workflow]
async fn then_sleeps() -> durable::Result<String> {
    let given = give("tea").await?;
    durable::sleep(Duration::from_secs(60)).await;
    Ok(given)
}

#[durable::workflow]
async fn twice() -> durable::Result<String> {
    let first = give("one").await?;
    Ok(first + &give("two").await?)
}

#[durable::workflow]
async fn fails_late() -> durable::Result<String> {
    let outcome = decline("no tea").await;
    durable::sleep(Duration::from_secs(60)).await;
    outcome
}

#[durable::workflow]
async fn tries(times: u32) -> durable::Result<String> {
    fails(times).await
}

#[durable::workflow]
async fn declines() -> durable::Result<String> {
    decline("no tea").await
}

#[durable::workflow]
async fn waits_longer() -> durable::Result<u32> {
    slowly().await
}

#[durable::workflow]
async fn dials(trouble: Trouble) -> Result<u32, Trouble> {
    dial(trouble).await
}

#[durable::workflow]
async fn wires() -> durable::Result<u64> {
    wire(1_250).await
}

#[durable::workflow]
async fn sends() -> durable::Result<String> {
    send("hello").await
}

#[durable::workflow]
async fn catches() -> durable::Result<String> {
    match decline("no tea").await {
        Ok(tea) => Ok(tea),
        Err(failure) => give(&format!("instead of {}", failure.message())).await,
    }
}

/// What a body says is said once, in a span that names run and step.
fn said_in_its_span(played: &Played) -> Result<(), String> {
    let lines = traces::lines_of(&played.id, 0);
    let want = format!("[run id={} > effect name=speak path=greeting[0] attempt=1] speaking: hello", played.id);
    match lines.iter().filter(|line| line.ends_with("speaking: hello")).collect::<Vec<_>>()[..] {
        [line] if *line == want => Ok(()),
        _ => Err(format!("wanted once {want}\nfound {lines:#?}")),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    traces::keep("conformance");
    vec![
        row("1-1", "an effect succeeds the first time", go!(gives()))
            .log(
                r#"
                effect.called give[0] attempt=1 effect="give" args={"text":"tea"}
                effect.result give[0] attempt=1 value={"Ok":"tea"}
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#),
        row("1-2", "the name given to a step is in the log", go!(named()))
            .log(
                r#"
                effect.called order[0] effect="give" args={"text":"tea"}
                effect.result order[0] value={"Ok":"tea"}
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#),
        row("1-3", "the second effect uses what the first one gave", go!(chained()))
            .log(
                r#"
                effect.called give[0] args={"text":"tea"}
                effect.result give[0] value={"Ok":"tea"}
                effect.called give[1] args={"text":"tea for two"}
                effect.result give[1] value={"Ok":"tea for two"}
                "#,
            )
            .completed(r#"{"Ok":"tea for two"}"#),
        row("1-4", "a result of nested objects", go!(nested()))
            .log(
                r#"
                effect.called load_order[0] args={"id":7}
                effect.result load_order[0] value={"id":7,"lines":[["tea",2]],"notes":{"for":"Ann","gift":null}}
                "#,
            )
            .completed(r#"{"id":7,"lines":[["tea",2]],"notes":{"for":"Ann","gift":null}}"#),
        row("1-5", "results that are nothing", go!(nothing()))
            .log(
                r"
                effect.called touch[0]
                effect.result touch[0] value=null
                effect.called look[0]
                effect.result look[0] value=null
                ",
            )
            .completed("null"),
        row("1-6", "a type with a written form of its own: the log holds the form, the code sees the type", go!(own_form()))
            .log(
                r#"
                effect.called double[0] args={"amount":{"cents":"6.25 EUR"}}
                effect.result double[0] value={"Ok":{"cents":"12.50 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":1250}"#),
        row("1-7", "what a body logs carries run and step", go!(speaks()))
            .log(
                r#"
                effect.called greeting[0] effect="speak"
                effect.result greeting[0] value={"Ok":"hello"}
                "#,
            )
            .completed(r#"{"Ok":"hello"}"#)
            .also(said_in_its_span),
        row("1-8", "an effect, then a sleep: the effect is not repeated on resume", go!(then_sleeps()))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                effect.called give[0] attempt=1
                effect.result give[0] value={"Ok":"tea"}
                timer.set sleep[0] in=60s
                timer.fired sleep[0]
                "#,
            )
            .completed(r#"{"Ok":"tea"}"#),
        row("1-9", "an effect that succeeded is passed over on replay", go!(twice()))
            .dies_in("give[1]", 1)
            .log(
                r#"
                effect.called give[0] attempt=1
                effect.result give[0] attempt=1 value={"Ok":"one"}
                effect.called give[1] attempt=1
                effect.called give[1] attempt=2
                effect.result give[1] attempt=2 value={"Ok":"two"}
                "#,
            )
            .completed(r#"{"Ok":"onetwo"}"#),
        row("1-10", "a recorded failure is given again on replay, and no body runs", go!(fails_late()))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                effect.called decline[0] attempt=1
                effect.result decline[0] value={"Err":{"message":"no tea","kind":"declined"}}
                timer.set sleep[0] in=1m
                timer.fired sleep[0]
                "#,
            )
            .failed(r#"{"Err":{"message":"no tea","kind":"declined"}}"#),
        row("1-11", "fails, then succeeds at its second attempt", go!(tries(1)))
            .log(
                r#"
                effect.called fails[0] attempt=1
                effect.failed fails[0] attempt=1 value={"Err":{"message":"failure 1"}} in=1s
                effect.called fails[0] attempt=2
                effect.result fails[0] attempt=2 value={"Ok":"attempt 2"}
                "#,
            )
            .completed(r#"{"Ok":"attempt 2"}"#),
        row(
            "1-12",
            "four attempts, then the run fails; each attempt has a record with number and next delay, the last with none",
            go!(tries(4)),
        )
        .log(
            r#"
            effect.called fails[0] attempt=1
            effect.failed fails[0] attempt=1 value={"Err":{"message":"failure 1"}} in=1s
            effect.called fails[0] attempt=2
            effect.failed fails[0] attempt=2 value={"Err":{"message":"failure 2"}} in=2s
            effect.called fails[0] attempt=3
            effect.failed fails[0] attempt=3 value={"Err":{"message":"failure 3"}} in=4s
            effect.called fails[0] attempt=4
            effect.result fails[0] attempt=4 value={"Err":{"message":"failure 4"}} retry_at=none
            "#,
        )
        .failed(r#"{"Err":{"message":"failure 4"}}"#),
        row("1-13", "the default where no policy is given: the first error is final", go!(declines()))
            .log(
                r#"
                effect.called decline[0] attempt=1
                effect.result decline[0] attempt=1 value={"Err":{"message":"no tea","kind":"declined"}} retry_at=none
                "#,
            )
            .failed(r#"{"Err":{"message":"no tea","kind":"declined"}}"#),
        row("1-14", "a policy of one's own: 2 s, then 6 s, without jitter, the delays in the log", go!(waits_longer()))
            .log(
                r#"
                effect.called slowly[0] attempt=1
                effect.failed slowly[0] attempt=1 in=2s
                effect.called slowly[0] attempt=2
                effect.failed slowly[0] attempt=2 in=6s
                effect.called slowly[0] attempt=3
                effect.result slowly[0] attempt=3 value={"Ok":3}
                "#,
            )
            .completed(r#"{"Ok":3}"#),
        row("1-15", "the error that the policy names is tried again", go!(dials(Trouble::Busy)))
            .log(
                r#"
                effect.called dial[0] attempt=1
                effect.failed dial[0] attempt=1 value={"Err":"Busy"} in=1s
                effect.called dial[0] attempt=2
                effect.result dial[0] attempt=2 value={"Ok":2}
                "#,
            )
            .completed(r#"{"Ok":2}"#),
        row("1-16", "another error is not", go!(dials(Trouble::Broken("line".into()))))
            .log(
                r#"
                effect.called dial[0] attempt=1
                effect.result dial[0] attempt=1 value={"Err":{"Broken":"line"}} retry_at=none
                "#,
            )
            .failed(r#"{"Err":{"Broken":"line"}}"#),
        row("1-17", "at most once, killed in the body, no retry: one body, recorded as in doubt, the run fails", go!(wires()))
            .dies_in("wire[0]", 1)
            .log(
                r#"
                effect.called wire[0] attempt=1 contract="at_most_once"
                effect.in_doubt wire[0] attempt=1
                effect.result wire[0] attempt=1 unsure=true value=none
                "#,
            )
            .failed(
                r#"{"Err":{
                    "message":"whether attempt 1 of `wire` happened is unknown: the process that ran it is gone",
                    "fault":{"InDoubt":{"effect":"wire","attempt":1,"reason":"the process that ran it is gone"}}
                }}"#,
            ),
        row("1-18", "the same where a policy allows another attempt: the first is recorded as in doubt, the second runs", go!(sends()))
            .dies_in("send[0]", 1)
            .log(
                r#"
                effect.called send[0] attempt=1 contract="at_most_once"
                effect.in_doubt send[0] attempt=1
                effect.resolved send[0] attempt=1 how="run again" by="reconcile"
                effect.called send[0] attempt=2
                effect.result send[0] attempt=2 value={"Ok":"hello at attempt 2"}
                "#,
            )
            .completed(r#"{"Ok":"hello at attempt 2"}"#),
        row("1-19", "a failure that nobody catches fails the run", go!(declines()))
            .log(
                r#"
                effect.called decline[0] args={"why":"no tea"}
                effect.result decline[0] value={"Err":{"message":"no tea","kind":"declined"}}
                "#,
            )
            .failed(r#"{"Err":{"message":"no tea","kind":"declined"}}"#),
        row("1-20", "a failure that is caught does not", go!(catches()))
            .log(
                r#"
                effect.called decline[0]
                effect.result decline[0] value={"Err":{"message":"no tea","kind":"declined"}}
                effect.called give[0] args={"text":"instead of no tea"}
                effect.result give[0] value={"Ok":"instead of no tea"}
                "#,
            )
            .completed(r#"{"Ok":"instead of no tea"}"#),
    ]
}
