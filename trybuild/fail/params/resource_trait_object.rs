pub trait Bank: Send + Sync {
    fn rate(&self) -> u64;
}

#[durable::effect(read_only)]
async fn look(#[resource] bank: &dyn Bank) -> u64 {
    bank.rate()
}

fn main() {}
