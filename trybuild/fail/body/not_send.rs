#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let shared = std::rc::Rc::new(1);
    look(&name).await + *shared
}

fn main() {}
