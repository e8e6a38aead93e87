#[durable::effect(read_only)]
async fn look<'a>(text: &'a str) -> u64 {
    text.len() as u64
}

fn main() {}
