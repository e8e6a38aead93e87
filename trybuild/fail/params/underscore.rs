#[durable::effect(read_only)]
async fn look(_: u64) -> u64 {
    1
}

fn main() {}
