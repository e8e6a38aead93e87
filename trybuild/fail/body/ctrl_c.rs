#[durable::workflow]
async fn agent() {
    durable::race((durable::signal::<()>("go"), async {
        let _ = tokio::signal::ctrl_c().await;
    }))
    .await;
}

fn main() {}
