#[durable::workflow(name = "a", name = "b")]
async fn agent(name: String) -> usize {
    name.len()
}

fn main() {}
