//! The example of the documentation: an agent of two effects, one of them with a business key and a resource.
#![forbid(unsafe_code)]
#![deny(warnings)]

use durable::EffectContext;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    cents: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    id: String,
    cents: u64,
}

struct Gateway;

impl Gateway {
    async fn refund(&self, order_id: &str, cents: u64, key: &str) -> durable::Result<Receipt> {
        Ok(Receipt { id: format!("{order_id}/{key}"), cents })
    }
}

/// Looks up the policy.
#[durable::effect(read_only)]
async fn search_policy(query: &str) -> durable::Result<String> {
    Ok(query.to_uppercase())
}

#[durable::effect(key = "{order_id}:refund:{cents}", retry(attempts = 5), timeout = "30s", kind = "payment")]
async fn process_refund(
    cx: &EffectContext,
    #[resource] gateway: &Gateway,
    order_id: &str,
    cents: u64,
) -> durable::Result<Receipt> {
    gateway.refund(order_id, cents, cx.idempotency_key()).await
}

#[durable::workflow]
async fn refund_agent(order: Order) -> durable::Result<String> {
    let policy = search_policy("refund window").await?;
    let cents = order.cents.min(policy.len() as u64);
    let receipt = process_refund(&order.id, cents).await?;
    Ok(format!("refunded {} cents ({})", receipt.cents, receipt.id))
}

fn main() {
    let _ = refund_agent(Order { id: "o-1".into(), cents: 5 });
}
