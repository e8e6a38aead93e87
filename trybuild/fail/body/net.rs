#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let peer = std::net::TcpStream::connect(name).is_ok();
    look("peer").await + u64::from(peer)
}

fn main() {}
