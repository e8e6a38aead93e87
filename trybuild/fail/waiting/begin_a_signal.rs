#[durable::workflow]
async fn agent() -> u64 {
    let later = durable::begin(durable::signal::<u64>("n")).await;
    later.await
}

fn main() {}
