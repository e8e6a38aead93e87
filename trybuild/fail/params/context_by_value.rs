#[durable::effect(read_only)]
async fn look(cx: durable::EffectContext) -> u64 {
    cx.idempotency_key().len() as u64
}

fn main() {}
