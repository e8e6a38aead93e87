async fn helper() {
    durable::cancelled().await
}

fn main() {
    let _ = helper();
}
