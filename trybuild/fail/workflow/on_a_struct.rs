#[durable::workflow]
pub struct Agent {
    pub name: String,
}

fn main() {}
