#[durable::effect(std::read_only)]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
