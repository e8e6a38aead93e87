#[durable::effect(read_only)]
async fn look(#[resource] bank: &mut String) -> u64 {
    bank.len() as u64
}

fn main() {}
