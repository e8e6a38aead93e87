#[durable::workflow]
#[durable::effect(read_only)]
async fn agent(name: String) -> usize {
    name.len()
}

fn main() {
    let _ = agent("x".into());
}
