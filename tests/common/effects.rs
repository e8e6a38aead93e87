//! Effects of every contract. What each does to the world is a line in the ledger.
//!
//! Those that may be repeated may be so often enough for a process that is killed again and again in the same place.

use std::time::Duration;

use durable::{EffectContext, Fault, Reconciled};

use super::ledger::World;

#[durable::effect(read_only, retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn look_up(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    Ok(format!("found {what}"))
}

#[durable::effect(idempotent, retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn save(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    Ok(format!("saved {what}"))
}

/// Fails twice.
#[durable::effect(idempotent, retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn flaky(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    match cx.attempt() {
        1 | 2 => Err(durable::Failure::new("not yet")),
        _ => Ok(format!("at last {what}")),
    }
}

#[durable::effect(idempotent)]
pub(crate) async fn refuse(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    Err(durable::Failure::new(format!("refused {what}")))
}

/// Goes on until nobody waits for it.
#[durable::effect(idempotent, retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn linger(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    cx.cancelled().await;
    Ok(format!("lingered {what}"))
}

#[durable::effect(key = "{order}:charge:{cents}", retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn charge(
    cx: &EffectContext,
    #[resource] world: &World,
    order: &str,
    cents: u64,
) -> durable::Result<String> {
    world.enter(cx, &format!("{order} {cents}")).await;
    Ok(world.receipt(cx.idempotency_key()))
}

/// Keyed by the engine's own key.
#[durable::effect(key, retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn invoice(cx: &EffectContext, #[resource] world: &World, order: &str) -> durable::Result<String> {
    world.enter(cx, order).await;
    Ok(world.receipt(cx.idempotency_key()))
}

#[durable::effect(at_most_once)]
pub(crate) async fn wire(cx: &EffectContext, #[resource] world: &World, to: &str) -> durable::Result<String> {
    world.enter(cx, to).await;
    Ok(format!("wired {to}"))
}

#[durable::effect(at_most_once, reconcile(mailed, settle = "20ms"))]
pub(crate) async fn mail(cx: &EffectContext, #[resource] world: &World, to: &str) -> durable::Result<String> {
    world.enter(cx, to).await;
    Ok(format!("mailed {to}"))
}

async fn mailed(cx: &EffectContext, world: &World, to: &str) -> durable::Result<Reconciled<String>> {
    // The process that might have sent it is dead, so what is not in the ledger by now never will be.
    match world.bodies(cx.run_id().as_str(), cx.path()).is_empty() {
        true => Ok(Reconciled::CannotHappen),
        false => Ok(Reconciled::Happened(format!("mailed {to}"))),
    }
}

#[durable::effect(at_most_once, in_doubt = error)]
pub(crate) async fn ship(cx: &EffectContext, #[resource] world: &World, to: &str) -> durable::Result<String> {
    world.enter(cx, to).await;
    Ok(format!("shipped {to}"))
}

/// Takes back what a run did: for `undo`.
#[durable::effect(key = "{what}:back", retry(attempts = 50, first = "1ms", max = "5ms"))]
pub(crate) async fn take_back(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    Ok(world.receipt(cx.idempotency_key()))
}

/// The same where a second time is harm.
#[durable::effect(at_most_once)]
pub(crate) async fn wire_back(cx: &EffectContext, #[resource] world: &World, what: &str) -> durable::Result<String> {
    world.enter(cx, what).await;
    Ok(format!("wired {what}"))
}

/// A lie, for the controls: to repeat it is harm.
#[durable::effect(idempotent)]
pub(crate) async fn wire_as_if_idempotent(
    cx: &EffectContext,
    #[resource] world: &World,
    to: &str,
) -> durable::Result<String> {
    world.enter(cx, to).await;
    Ok(format!("wired {to}"))
}

/// What the world demands of an effect, whatever its attribute says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nobody can tell how often it ran.
    Nothing,
    /// May be repeated, each attempt decided before it begins; at most so many bodies.
    Decided { bodies_max: usize },
    /// As `Decided`, all with one key that no other step has.
    Key { bodies_max: usize },
    /// One body.
    Once,
}

pub(crate) fn demand(effect: &str) -> Demand {
    // Without `retry`.
    const PLAIN: usize = 1 + durable::REPEATS_AFTER_CRASH_MAX as usize;
    match effect {
        "look_up" => Demand::Nothing,
        "refuse" => Demand::Decided { bodies_max: PLAIN },
        "save" | "flaky" | "linger" => Demand::Decided { bodies_max: 50 },
        "charge" | "invoice" | "take_back" => Demand::Key { bodies_max: 50 },
        "wire" | "wire_back" | "mail" | "ship" | "wire_as_if_idempotent" => Demand::Once,
        other => panic!("nobody has said what the world demands of {other}"),
    }
}

/// What `in_doubt = error` hands to the code.
pub(crate) fn is_in_doubt(failure: &durable::Failure) -> bool {
    matches!(failure.fault(), Some(Fault::InDoubt { .. }))
}

/// Longer than anything that is waited for.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
