#[durable::effect(read_only, retry(attempts = 3, if = is_busy))]
async fn look(text: &str) -> String {
    text.into()
}

fn is_busy(error: &String) -> bool {
    error.is_empty()
}

fn main() {}
