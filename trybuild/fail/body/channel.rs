#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let (_to, mut from) = tokio::sync::mpsc::channel::<String>(1);
    let correction = from.try_recv();
    look(&correction.unwrap_or(name)).await
}

fn main() {}
