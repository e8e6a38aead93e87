#[durable::effect(read_only, timeout = "0s")]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
