#[durable::effect(read_only)]
async fn look((a, b): (u64, u64)) -> u64 {
    a + b
}

fn main() {}
