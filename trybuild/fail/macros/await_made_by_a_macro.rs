macro_rules! wait {
    ($step:expr) => { $step.await };
}

#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    wait!(look(&name))
}

fn main() {}
