pub struct Found(String);

#[durable::workflow]
async fn look(text: &str) -> Found {
    Found(text.into())
}

fn main() {}
