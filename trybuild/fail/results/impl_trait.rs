#[durable::effect(read_only)]
async fn look(text: &str) -> impl ToString {
    text.len()
}

fn main() {}
