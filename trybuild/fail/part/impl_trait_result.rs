#[durable::part]
async fn turn(name: &str) -> impl ToString {
    name.len()
}

fn main() {}
