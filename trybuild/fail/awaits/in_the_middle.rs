#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    look(&tokio::task::spawn_blocking(|| name).await.unwrap_or_default()).await
}

fn main() {}
