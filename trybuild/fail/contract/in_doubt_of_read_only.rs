#[durable::effect(read_only, in_doubt = error)]
async fn look(text: &str) -> durable::Result<String> {
    Ok(text.into())
}

fn main() {}
