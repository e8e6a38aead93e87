#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let (_send, receive) = tokio::sync::oneshot::channel::<u64>();
    receive.await.unwrap_or(0) + look(&name).await
}

fn main() {}
