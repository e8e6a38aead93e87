#[durable::effect(read_only)]
async fn look<T: ToString>(text: T) -> u64 {
    text.to_string().len() as u64
}

fn main() {}
