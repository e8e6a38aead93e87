#[durable::workflow]
async fn other(n: u64) -> String {
    n.to_string()
}

#[durable::workflow]
async fn agent(n: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    durable::restart_as(other(n - 1)).await
}

fn main() {}
