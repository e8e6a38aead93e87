#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let line = std::io::stdin().lines().next().and_then(Result::ok).unwrap_or(name);
    look(&line).await
}

fn main() {}
