use durable::EffectContext;

#[durable::effect(key = "{cents}{other}")]
async fn pay(cx: &EffectContext, cents: u64, other: u64) -> u64 {
    cents + cx.idempotency_key().len() as u64 + other
}

fn main() {}
