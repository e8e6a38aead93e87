#[durable::effect(idempotent, reconcile(find, settle = "2m"))]
async fn set(cents: u64) -> durable::Result<u64> {
    Ok(cents)
}

fn main() {}
