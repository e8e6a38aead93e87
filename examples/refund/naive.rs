//! The agent as it is written without `durable`: the same policy, the same model, the same provider.

use anyhow::Result;

use crate::{
    agent::{Order, owed, rule},
    gateway::Gateway,
    model::Model,
};

/// Begins at the beginning, whatever was done before, and makes up a key as it goes.
pub(crate) fn run(provider: &str) -> Result<()> {
    let order = Order::ord_3300();
    let ruling = rule(&Model::from_env()?, &order.complaint)?;
    let key = format!("refund-{}", std::process::id());
    let receipt = Gateway::new(provider).refund(&order.id, owed(&order, &ruling), &key)?;
    println!("{}", receipt.id);
    Ok(())
}
