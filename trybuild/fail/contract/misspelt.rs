#[durable::effect(readonly)]
async fn look(text: &str) -> String {
    text.into()
}

fn main() {}
