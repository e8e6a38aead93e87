#[durable::effect(read_only)]
async fn look(text: &'static str) -> u64 {
    text.len() as u64
}

fn main() {}
