macro_rules! concat_all {
    ($($all:expr),*) => { format!("{:?}", ($(&$all),*)) };
}

#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let _ = concat_all!(name, std::env::var("HOME"));
    look(&name).await
}

fn main() {}
