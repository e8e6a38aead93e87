#[durable::workflow(nmae = "x")]
fn agent(text: Option<&str>, (a, b): (u64, u64)) -> &str {
    std::thread::sleep(std::time::Duration::from_millis(a + b));
    text.unwrap_or_default()
}

fn main() {}
