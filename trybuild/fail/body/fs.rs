#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let text = std::fs::read_to_string(name).unwrap_or_default();
    look(&text).await
}

fn main() {}
