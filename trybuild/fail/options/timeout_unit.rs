#[durable::effect(read_only, timeout = "30 seconds")]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
