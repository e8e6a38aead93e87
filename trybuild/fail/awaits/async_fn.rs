#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    async fn helper(name: &str) -> usize {
        name.len()
    }
    look("x").await + helper(&name).await as u64
}

fn main() {}
