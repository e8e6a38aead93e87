#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let child = durable::spawn(look(&name)).await;
    child.await
}

fn main() {}
