pub struct Client;

#[durable::effect(read_only)]
async fn look(client: &Client, text: &str) -> u64 {
    let _ = client;
    text.len() as u64
}

fn main() {}
