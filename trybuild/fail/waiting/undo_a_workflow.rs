#[durable::workflow]
async fn clean_up(order: String) -> usize {
    order.len()
}

#[durable::workflow]
async fn agent(order: String) {
    durable::undo(clean_up(order)).await;
}

fn main() {}
