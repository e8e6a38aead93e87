#[durable::workflow]
async fn counter(n: u64) -> u64 {
    n
}

#[durable::workflow]
async fn agent() -> u64 {
    let child = durable::spawn(counter(1)).await;
    child.await + child.await
}

fn main() {}
