use durable::EffectContext;

#[durable::effect(key = "{bank}")]
async fn pay(cx: &EffectContext, #[resource] bank: &String, cents: u64) -> u64 {
    cents + cx.idempotency_key().len() as u64 + bank.len() as u64
}

fn main() {}
