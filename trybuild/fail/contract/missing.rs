#[durable::effect]
async fn charge(cents: u64) -> u64 {
    cents
}

fn main() {
    let _ = charge(1);
}
