#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let found = tokio::time::timeout(std::time::Duration::from_secs(1), look(&name)).await;
    found.unwrap_or(0)
}

fn main() {}
