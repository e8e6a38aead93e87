#[durable::effect(read_only)]
async fn look(text: &str) -> &str {
    text
}

fn main() {}
