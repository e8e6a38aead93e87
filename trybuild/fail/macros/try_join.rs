#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    tokio::try_join!(look("a"), look(&name)).map_or(0, |(a, b)| a + b)
}

fn main() {}
