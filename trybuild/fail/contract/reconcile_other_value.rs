use durable::{EffectContext, Reconciled};

#[durable::effect(at_most_once, reconcile(find, settle = "2m"))]
async fn charge(cents: u64) -> durable::Result<u64> {
    Ok(cents)
}

async fn find(_: &EffectContext, cents: u64) -> durable::Result<Reconciled<String>> {
    Ok(Reconciled::Happened(cents.to_string()))
}

fn main() {}
