#[durable::effect(at_most_once, in_doubt = error)]
async fn charge(cents: u64) -> u64 {
    cents
}

fn main() {}
