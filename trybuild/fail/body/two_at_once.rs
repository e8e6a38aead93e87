#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let now = std::time::SystemTime::now();
    let home = std::env::var("HOME");
    look(&format!("{name}{now:?}{home:?}")).await
}

fn main() {}
