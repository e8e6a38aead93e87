//! The agent: two effects, a workflow, and a program that is the same whether a run begins or goes on.

use std::{path::Path, time::Duration};

use anyhow::{Context, ensure};
use durable::{Builder, EffectContext, Runtime, TestClock};
use serde::{Deserialize, Serialize};

use crate::{
    gateway::{Gateway, PaymentError, Receipt},
    model::Model,
    stage::process::end_with_parent,
};

/// Starts the agent with a clock that stands still.
pub(crate) const FROZEN: &str = "--frozen";
/// 2026-01-05T09:00:00Z, in seconds after 1970.
const FROZEN_AT: Duration = Duration::from_secs(1_767_603_600);

/// The run's id, made of the order's: whoever starts the order's refund again gets the run that is there.
pub(crate) const RUN: &str = "refund/ORD-3300";

const POLICY: &str = "\
1. Unused goods may be returned within 30 days of delivery: 100 percent of the price.
2. Goods that arrived broken are refunded within 60 days of delivery: 100 percent of the price.
3. Goods that broke in use are refunded within 60 days of delivery: 40 percent of the price.
4. All else: 0 percent.";

/// What a customer wants money back for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) cents: u64,
    pub(crate) complaint: String,
}

impl Order {
    /// The one of the story.
    pub(crate) fn ord_3300() -> Order {
        let complaint = "delivered 12 days ago, arrived with a cracked screen".to_owned();
        Order { id: "ORD-3300".to_owned(), cents: 18_000, complaint }
    }
}

/// What the model found in the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ruling {
    pub(crate) clause: u32,
    pub(crate) percent: u64,
}

/// Looks up the policy and lets the model decide which clause applies.
///
/// A model asked twice may answer twice, but nobody outside can tell that it was: `read_only`. Its answer is recorded, so a
/// resumed run decides on what the model said, not on what it would say now.
#[durable::effect(read_only, retry(attempts = 3), timeout = "2m")]
fn search_policy(#[resource] model: &Model, complaint: &str) -> durable::Result<Ruling> {
    println!("search_policy: its body runs");
    Ok(rule(model, complaint)?)
}

/// Pays, whatever number of times it is asked, once: the provider knows the key.
///
/// The key is made of what the refund is, not of when it was asked.
#[durable::effect(key = "{order_id}:refund:{cents}", retry(attempts = 5, if = PaymentError::is_transient))]
fn process_refund(
    cx: &EffectContext,
    #[resource] gateway: &Gateway,
    order_id: &str,
    cents: u64,
) -> Result<Receipt, PaymentError> {
    println!("process_refund: its body runs, attempt {}, key {}", cx.attempt(), cx.idempotency_key());
    gateway.refund(order_id, cents, cx.idempotency_key())
}

/// An ordinary `async fn`. Killed at any instant and started again, it goes on where it stopped.
#[durable::workflow]
async fn refund_agent(order: Order) -> durable::Result<String> {
    let ruling = search_policy(&order.complaint).await?;
    let cents = owed(&order, &ruling);
    if cents == 0 {
        return Ok(format!("nothing is owed by clause {}", ruling.clause));
    }
    let receipt = process_refund(&order.id, cents).await?;
    Ok(format!("refunded {} by clause {} ({})", dollars(receipt.cents), ruling.clause, receipt.id))
}

/// The model says which clause; code says how much. What a model can do wrong here is bounded by what the customer paid.
pub(crate) fn owed(order: &Order, ruling: &Ruling) -> u64 {
    order.cents * ruling.percent.min(100) / 100
}

/// Asks the model.
pub(crate) fn rule(model: &Model, complaint: &str) -> anyhow::Result<Ruling> {
    let task = format!(
        "You decide refunds by this policy:\n{POLICY}\n\
         Answer with nothing but JSON, the clause that applies and its percentage: {{\"clause\": 4, \"percent\": 0}}"
    );
    let answer = model.answer(&task, complaint)?;
    let json = answer.find('{').zip(answer.rfind('}')).and_then(|(from, to)| answer.get(from..=to));
    let json = json.with_context(|| format!("the model was asked for JSON and answered {answer:?}"))?;
    serde_json::from_str(json).with_context(|| format!("the model's ruling is none: {json}"))
}

pub(crate) fn dollars(cents: u64) -> String {
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// A runtime with what the effects need.
pub(crate) fn runtime(gateway: Gateway, model: Model) -> Builder {
    Runtime::builder().resource(gateway).resource(model)
}

/// The agent's program. Nothing in it knows whether it was killed before: opening the store goes on with what is unfinished,
/// and starting a run that is there gives that run.
#[tokio::main]
pub(crate) async fn run(store: &Path, provider: &str, frozen: bool) -> anyhow::Result<()> {
    end_with_parent(|| ());
    let mut builder = runtime(Gateway::new(provider), Model::from_env()?);
    if frozen {
        builder = builder.clock(TestClock::at(FROZEN_AT));
    }
    let runtime = builder.open(store).await?;
    let run = runtime.start(RUN, refund_agent(Order::ord_3300())).await?;
    println!("{}", run.output().await?);
    let report = runtime.shutdown(Duration::from_secs(10)).await?;
    ensure!(report.abandoned.is_empty(), "bodies were still running: {:?}", report.abandoned);
    Ok(())
}
