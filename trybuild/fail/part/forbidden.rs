#[durable::part]
async fn turn(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn main() {}
