#[durable::effect(read_only, retry(attempts = 0))]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
