use durable::EffectContext;

#[durable::effect(read_only)]
async fn look(#[resource] cx: &EffectContext) -> u64 {
    cx.idempotency_key().len() as u64
}

fn main() {}
