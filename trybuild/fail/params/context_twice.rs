use durable::EffectContext;

#[durable::effect(read_only)]
async fn look(a: &EffectContext, b: &EffectContext) -> u64 {
    (a.idempotency_key() == b.idempotency_key()) as u64
}

fn main() {}
