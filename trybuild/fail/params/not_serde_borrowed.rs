#[derive(Clone)]
pub struct Order(u64);

#[durable::effect(read_only)]
async fn look(order: &Order) -> u64 {
    order.0
}

fn main() {}
