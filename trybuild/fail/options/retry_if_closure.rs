#[durable::effect(read_only, retry(attempts = 3, if = |_| true))]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
