#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::part]
async fn turn<T: ToString>(item: T) -> u64 {
    look("before").await;
    look(&item.to_string()).await
}

fn main() {}
