#[durable::effect(at_most_once, in_doubt = hold)]
async fn charge(cents: u64) -> durable::Result<u64> {
    Ok(cents)
}

fn main() {}
