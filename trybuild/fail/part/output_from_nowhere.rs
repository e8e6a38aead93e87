#[durable::part]
async fn turn(a: &str, b: &str) -> &str {
    if a > b { a } else { b }
}

fn main() {}
