#[durable::effect(timeout = "30s", kind = "chat")]
async fn ask(text: &str) -> String {
    text.into()
}

fn main() {}
