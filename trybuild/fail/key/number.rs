use durable::EffectContext;

#[durable::effect(key = 5)]
async fn pay(cx: &EffectContext, cents: u64) -> u64 {
    cents + cx.idempotency_key().len() as u64
}

fn main() {}
