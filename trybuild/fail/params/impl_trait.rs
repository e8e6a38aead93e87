#[durable::effect(read_only)]
async fn look(text: impl Into<String>) -> u64 {
    text.into().len() as u64
}

fn main() {}
