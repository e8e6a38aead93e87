#[durable::effect(read_only, retries = 3)]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
