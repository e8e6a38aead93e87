#[durable::effect(read_only)]
async fn look(#[cfg(test)] text: String, n: u64) -> u64 {
    n
}

fn main() {}
