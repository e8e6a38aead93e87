use std::cell::Cell;

#[durable::effect(read_only)]
async fn look(#[resource] bank: &Cell<u64>) -> u64 {
    bank.get()
}

fn main() {}
