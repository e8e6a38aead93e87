#[durable::effect(at_most_once, in_doubt = error)]
async fn charge(cents: u64) -> Result<u64, String> {
    Ok(cents)
}

fn main() {}
