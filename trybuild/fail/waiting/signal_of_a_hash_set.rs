use std::collections::HashSet;

#[durable::workflow]
async fn agent() -> Vec<String> {
    let tags = durable::signal::<HashSet<String>>("tags").await;
    tags.into_iter().collect()
}

fn main() {}
