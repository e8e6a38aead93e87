#[durable::effect(read_only)]
async fn look(#[resource] #[model_text] bank: &String) -> u64 {
    bank.len() as u64
}

fn main() {}
