#[durable::effect(read_only = true)]
async fn look(text: &str) -> String {
    text.into()
}

fn main() {}
