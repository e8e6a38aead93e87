#[durable::workflow]
async fn agent(n: u64) -> u64 {
    durable::restart_as(n + 1).await
}

fn main() {}
