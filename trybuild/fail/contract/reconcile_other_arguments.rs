use durable::{EffectContext, Reconciled};

#[durable::effect(at_most_once, reconcile(find, settle = "2m"))]
async fn charge(account: &str, cents: u64) -> durable::Result<u64> {
    Ok(account.len() as u64 + cents)
}

async fn find(_: &EffectContext, cents: u64) -> durable::Result<Reconciled<u64>> {
    Ok(Reconciled::Happened(cents))
}

fn main() {}
