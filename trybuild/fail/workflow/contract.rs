#[durable::workflow(read_only)]
async fn agent(name: String) -> usize {
    name.len()
}

fn main() {}
