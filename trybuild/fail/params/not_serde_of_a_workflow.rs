pub struct Order(u64);

#[durable::workflow]
async fn look(order: Order) -> u64 {
    order.0
}

fn main() {}
