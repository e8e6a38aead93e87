#[durable::effect(read_only)]
async fn look(text: String) -> u64
where
    String: Clone, {
    text.len() as u64
}

fn main() {}
