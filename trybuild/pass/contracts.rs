//! Every contract and every option.
#![forbid(unsafe_code)]
#![deny(warnings)]

use durable::{EffectContext, Fault, Reconciled};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
enum PaymentError {
    Declined,
    Busy,
    Unknown(String),
}

impl PaymentError {
    fn is_transient(&self) -> bool {
        matches!(self, PaymentError::Busy)
    }
}

impl From<Fault> for PaymentError {
    fn from(fault: Fault) -> Self {
        PaymentError::Unknown(fault.to_string())
    }
}

#[derive(Default)]
struct Bank {
    rate: u64,
}

#[durable::effect(read_only)]
async fn ping() {}

#[durable::effect(idempotent, name = "set balance")]
async fn set_balance(#[resource] bank: &Bank, cents: u64) -> u64 {
    cents * bank.rate
}

#[durable::effect(key)]
async fn pay(cx: &EffectContext, cents: u64) -> Result<String, PaymentError> {
    Ok(format!("{}:{cents}", cx.idempotency_key()))
}

#[durable::effect(
    key = "{{{account}}}:{cents}",
    retry(attempts = 3, first = "500ms", max = "1m", factor = 1.5, if = PaymentError::is_transient),
)]
async fn pay_as(account: &str, cx: &EffectContext, cents: u64) -> Result<String, PaymentError> {
    Ok(format!("{account}:{}:{cents}", cx.idempotency_key()))
}

#[durable::effect(at_most_once)]
async fn hold(cents: u64) -> u64 {
    cents
}

#[durable::effect(at_most_once, in_doubt = error)]
async fn doubt(cents: u64) -> Result<u64, PaymentError> {
    Ok(cents)
}

#[durable::effect(at_most_once, reconcile(bank::find, settle = "2m"))]
async fn charge(#[resource] bank: &Bank, account: &str, cents: u64) -> Result<u64, PaymentError> {
    let _ = account;
    Ok(cents * bank.rate)
}

mod bank {
    use super::*;

    pub(crate) async fn find(_: &EffectContext, bank: &Bank, account: &str, cents: u64) -> durable::Result<Reconciled<u64>> {
        Ok(match account {
            "" => Reconciled::CannotHappen,
            "?" => Reconciled::Unknown,
            _ => Reconciled::Happened(cents * bank.rate),
        })
    }
}

#[durable::effect(at_most_once, reconcile(found, settle = "1h"))]
async fn charge_with_context(cents: u64, cx: &EffectContext) -> durable::Result<u64> {
    let _ = cx;
    Ok(cents)
}

async fn found(cx: &EffectContext, cents: u64) -> durable::Result<Reconciled<u64>> {
    let _ = cx;
    Ok(Reconciled::Happened(cents))
}

#[durable::effect(read_only, timeout = "1d")]
fn count(words: &[String]) -> usize {
    words.len()
}

#[durable::effect(key = "{id}", kind = "mail")]
async fn mail(cx: &EffectContext, id: u64, #[model_text] text: &str) -> String {
    format!("{}{id}{text}", cx.idempotency_key())
}

#[durable::workflow(name = "all of them")]
async fn all() -> Result<u64, PaymentError> {
    ping().await;
    let mut sum = set_balance(3).await;
    let id = pay(4).await?;
    pay_as(&id, 5).await?;
    sum += hold(6).await + doubt(7).await? + charge("a", 8).await?;
    sum += charge_with_context(9).await.unwrap_or_default();
    sum += count(&[id]).await as u64;
    mail(sum, "hello").await;
    if sum == 0 { Err(PaymentError::Declined) } else { Ok(sum) }
}

fn main() {
    let _ = all();
}
