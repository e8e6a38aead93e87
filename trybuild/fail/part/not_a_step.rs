#[durable::part]
async fn turn(history: &mut Vec<String>) -> usize {
    std::future::ready(1).await;
    history.len()
}

fn main() {}
