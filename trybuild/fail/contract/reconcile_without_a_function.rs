#[durable::effect(at_most_once, reconcile(settle = "2m"))]
async fn charge(cents: u64) -> durable::Result<u64> {
    Ok(cents)
}

fn main() {}
