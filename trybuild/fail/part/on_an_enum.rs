#[durable::part]
pub enum Turn {
    First,
}

fn main() {}
