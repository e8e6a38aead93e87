#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let branch = async { look(&name).await };
    take(branch)
}

fn take(future: impl Future<Output = u64>) -> u64 {
    std::mem::size_of_val(&future) as u64
}

fn main() {}
