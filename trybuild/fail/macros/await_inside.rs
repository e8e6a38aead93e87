macro_rules! info {
    ($($told:expr),*) => { $(println!("{}", $told);)* };
}

pub fn used() {
    info!(1);
}

#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    info!(look(&name).await);
    1
}

fn main() {}
