#[durable::part(name = "turn")]
async fn turn(name: &str) -> usize {
    name.len()
}

fn main() {}
