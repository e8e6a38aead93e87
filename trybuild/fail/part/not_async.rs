#[durable::part]
fn turn(name: &str) -> usize {
    name.len()
}

fn main() {}
