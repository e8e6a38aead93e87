#[durable::workflow]
async fn look(#[model_text] text: String) -> u64 {
    text.len() as u64
}

fn main() {}
