#[durable::effect(read_only)]
async fn look(text: &str) -> Result<&str, String> {
    Ok(text)
}

fn main() {}
