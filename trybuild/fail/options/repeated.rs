#[durable::effect(read_only, timeout = "1s", timeout = "2s")]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
