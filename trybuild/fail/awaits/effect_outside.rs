#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

async fn helper(name: &str) -> u64 {
    look(name).await
}

fn main() {
    let _ = helper("x");
}
