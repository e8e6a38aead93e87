#[durable::effect(read_only, read_only)]
async fn look(text: &str) -> String {
    text.into()
}

fn main() {}
