#[durable::effect(read_only)]
async fn look(text: &str) -> anyhow::Result<Vec<String>> {
    Ok(vec![text.into()])
}

#[durable::workflow]
async fn agent(text: String) -> Result<String, anyhow::Error> {
    Ok(look(&text).await?.concat())
}

fn main() {}
