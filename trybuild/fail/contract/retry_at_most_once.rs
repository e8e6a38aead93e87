#[durable::effect(at_most_once, retry(attempts = 3))]
async fn charge(cents: u64) -> u64 {
    cents
}

fn main() {}
