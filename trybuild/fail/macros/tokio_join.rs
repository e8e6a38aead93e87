#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let (a, b) = tokio::join!(look("a"), look(&name));
    a + b
}

fn main() {}
