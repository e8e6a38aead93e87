//! The effects that the rows share. Each writes its line into the ledger and does nothing else to the world.

use std::{collections::BTreeSet, sync::LazyLock};

use durable::{EffectContext, Failure};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::common::ledger::World;

/// Gives what it is given.
#[durable::effect(idempotent)]
pub(crate) async fn give(cx: &EffectContext, #[resource] world: &World, text: &str) -> durable::Result<String> {
    world.enter(cx, text).await;
    Ok(text.to_owned())
}

/// Cannot fail.
#[durable::effect(idempotent)]
pub(crate) async fn next(cx: &EffectContext, #[resource] world: &World, n: u64) -> u64 {
    world.enter(cx, &n.to_string()).await;
    n + 1
}

#[durable::effect(idempotent)]
pub(crate) async fn decline(cx: &EffectContext, #[resource] world: &World, why: &str) -> durable::Result<String> {
    world.enter(cx, why).await;
    Err(Failure::new(why).with_kind("declined"))
}

/// Gives what it is given if that is positive.
#[durable::effect(idempotent)]
pub(crate) async fn weigh(cx: &EffectContext, #[resource] world: &World, n: i64) -> durable::Result<i64> {
    world.enter(cx, &n.to_string()).await;
    if n > 0 { Ok(n) } else { Err(Failure::new(format!("no weight: {n}"))) }
}

/// Four attempts, with the waits that are the default; fails `times` times.
#[durable::effect(idempotent, retry(attempts = 4))]
pub(crate) async fn fails(cx: &EffectContext, #[resource] world: &World, times: u32) -> durable::Result<String> {
    world.enter(cx, &times.to_string()).await;
    match cx.attempt() {
        n if n <= times => Err(Failure::new(format!("failure {n}"))),
        n => Ok(format!("attempt {n}")),
    }
}

/// Gives what it is given once the gate of that name is open.
#[durable::effect(read_only)]
pub(crate) async fn late(cx: &EffectContext, #[resource] world: &World, gate: &str) -> durable::Result<String> {
    world.enter(cx, gate).await;
    let gate = (cx.run_id().to_string(), gate.to_owned());
    // The sender is never dropped.
    let _ = OPEN.subscribe().wait_for(|open| open.contains(&gate)).await;
    Ok(gate.1)
}

/// The gates that are open, by run.
static OPEN: LazyLock<watch::Sender<BTreeSet<(String, String)>>> = LazyLock::new(watch::Sender::default);

pub(crate) fn open(run: &str, gate: &str) {
    OPEN.send_modify(|open| {
        open.insert((run.to_owned(), gate.to_owned()));
    });
}

/// An amount that is written as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Amount {
    #[serde(with = "cents")]
    pub(crate) cents: u64,
}

mod cents {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(cents: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{}.{:02} EUR", cents / 100, cents % 100))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.strip_suffix(" EUR").and_then(|euros| euros.replace('.', "").parse().ok());
        digits.ok_or_else(|| D::Error::custom(format!("no amount: {text}")))
    }
}

/// Doubles an amount: both the argument and the result stand in the log in the form of their own.
#[durable::effect(idempotent)]
pub(crate) async fn double(cx: &EffectContext, #[resource] world: &World, amount: Amount) -> durable::Result<Amount> {
    world.enter(cx, &amount.cents.to_string()).await;
    Ok(Amount { cents: 2 * amount.cents })
}
