use anyhow::Result;

#[durable::effect(read_only)]
async fn look(text: &str) -> Result<String> {
    Ok(text.into())
}

fn main() {}
