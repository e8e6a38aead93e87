#[durable::effect(read_only, timeout = "1s", idempotent)]
async fn look(text: &str) -> String {
    text.into()
}

fn main() {}
