#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let out = std::process::Command::new(name).output().is_ok();
    look("out").await + u64::from(out)
}

fn main() {}
