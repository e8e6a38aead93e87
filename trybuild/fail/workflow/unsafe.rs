#[durable::workflow]
async unsafe fn agent() -> u64 {
    1
}

fn main() {}
