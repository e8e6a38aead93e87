#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let calls = [look("a"), look(&name)];
    futures::future::join_all(calls).await.len() as u64
}

fn main() {}
