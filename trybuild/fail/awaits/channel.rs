#[durable::part]
async fn agent(mut from: tokio::sync::mpsc::Receiver<u64>) -> u64 {
    from.recv().await.unwrap_or_default()
}

fn main() {}
