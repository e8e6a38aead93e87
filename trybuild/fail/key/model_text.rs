use durable::EffectContext;

#[durable::effect(key = "{text}")]
async fn pay(cx: &EffectContext, #[model_text] text: &str, cents: u64) -> u64 {
    cents + cx.idempotency_key().len() as u64 + text.len() as u64
}

fn main() {}
