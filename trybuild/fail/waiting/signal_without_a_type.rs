#[durable::workflow]
async fn agent() -> u64 {
    durable::signal("go").await;
    1
}

fn main() {}
