#[durable::part]
async fn turn(name: &str) -> usize {
    name.len()
}

async fn helper() -> usize {
    turn("x").await
}

fn main() {
    let _ = helper();
}
