#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let home = std::env::var("HOME").unwrap_or(name);
    look(&home).await
}

fn main() {}
