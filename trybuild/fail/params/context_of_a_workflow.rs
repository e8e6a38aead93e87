use durable::EffectContext;

#[durable::workflow]
async fn look(cx: &EffectContext) -> u64 {
    cx.idempotency_key().len() as u64
}

fn main() {}
