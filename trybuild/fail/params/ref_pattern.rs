#[durable::effect(read_only)]
async fn look(ref a: u64) -> u64 {
    *a
}

fn main() {}
