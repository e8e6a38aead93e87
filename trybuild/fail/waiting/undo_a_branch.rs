#[durable::effect(idempotent)]
async fn release(order: &str) -> usize {
    order.len()
}

#[durable::workflow]
async fn agent(order: String) {
    durable::undo(async { release(&order).await }).await;
}

fn main() {}
