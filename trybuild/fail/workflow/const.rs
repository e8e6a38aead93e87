#[durable::effect(read_only)]
const fn look(n: u64) -> u64 {
    n
}

fn main() {}
