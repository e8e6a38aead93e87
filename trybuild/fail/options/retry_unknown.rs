#[durable::effect(read_only, retry(attempts = 3, times = 5))]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
