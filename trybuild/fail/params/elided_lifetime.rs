use std::borrow::Cow;

#[durable::effect(read_only)]
async fn look(text: Cow<'_, str>) -> u64 {
    text.len() as u64
}

fn main() {}
