async fn helper() -> u64 {
    durable::signal::<u64>("n").await
}

fn main() {
    let _ = helper();
}
