#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let sum: u64 = look(&name).await;
    let text: String = sum + 1;
    look(&text).await
}

fn main() {}
