#[durable::effect(read_only, name = "")]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
