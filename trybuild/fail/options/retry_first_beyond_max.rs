#[durable::effect(read_only, retry(attempts = 3, first = "1h"))]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
