pub struct Found(String);

#[durable::effect(read_only)]
async fn look(text: &str) -> Found {
    Found(text.into())
}

fn main() {}
