#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let found = matches!(name.len(), n if look("x").await > n as u64);
    u64::from(found)
}

fn main() {}
