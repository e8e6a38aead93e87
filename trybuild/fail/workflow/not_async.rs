#[durable::workflow]
fn agent(name: String) -> usize {
    name.len()
}

fn main() {
    let _ = agent("x".into());
}
