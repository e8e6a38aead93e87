use durable::{EffectContext, Reconciled};

#[durable::effect(at_most_once, reconcile(find))]
async fn charge(cents: u64) -> durable::Result<u64> {
    Ok(cents)
}

pub async fn find(_: &EffectContext, cents: u64) -> durable::Result<Reconciled<u64>> {
    Ok(Reconciled::Happened(cents))
}

fn main() {}
