#[durable::effect(read_only)]
async fn look(shown: &(dyn Fn() -> u64 + Sync)) -> u64 {
    shown()
}

fn main() {}
