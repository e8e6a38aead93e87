#[durable::effect(at_most_once(hold))]
async fn charge(cents: u64) -> u64 {
    cents
}

fn main() {}
