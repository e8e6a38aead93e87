#[durable::effect(read_only, kind = 1)]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
