#[durable::workflow]
async fn agent() -> bool {
    let token = tokio_util::sync::CancellationToken::new();
    token.is_cancelled()
}

fn main() {}
