use durable::EffectContext;

#[durable::effect(key = "{ids}")]
async fn pay(cx: &EffectContext, cents: u64, ids: Vec<u64>) -> u64 {
    cents + cx.idempotency_key().len() as u64 + ids.len() as u64
}

fn main() {}
