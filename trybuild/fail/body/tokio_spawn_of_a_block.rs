#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let task = tokio::spawn(async { 1 });
    drop(task);
    look(&name).await
}

fn main() {}
