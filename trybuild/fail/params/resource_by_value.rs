#[durable::effect(read_only)]
async fn look(#[resource] bank: String) -> u64 {
    bank.len() as u64
}

fn main() {}
