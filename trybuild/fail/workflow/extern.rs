#[durable::effect(read_only)]
extern "C" fn look(n: u64) -> u64 {
    n
}

fn main() {}
