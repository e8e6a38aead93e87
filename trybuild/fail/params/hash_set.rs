use std::collections::HashSet;

#[durable::effect(read_only)]
async fn look(ids: HashSet<u64>) -> u64 {
    ids.len() as u64
}

fn main() {}
