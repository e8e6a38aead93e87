#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let now = Some(1).map(|_| 1).or_else(|| None).map(|n: u64| (n, std::time::Instant::now));
    look(&name).await + now.map_or(0, |now| now.0)
}

fn main() {}
