#[durable::effect(read_only)]
async fn look(text: &str) -> Result<String, std::fmt::Error> {
    Ok(text.into())
}

fn main() {}
