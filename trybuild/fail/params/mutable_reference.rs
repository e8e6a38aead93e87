#[durable::effect(read_only)]
async fn look(words: &mut Vec<String>) -> u64 {
    words.len() as u64
}

fn main() {}
