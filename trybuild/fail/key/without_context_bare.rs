#[durable::effect(key)]
async fn pay(cents: u64) -> u64 {
    cents
}

fn main() {}
