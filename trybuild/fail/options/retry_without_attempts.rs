#[durable::effect(read_only, retry(first = "1s"))]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
