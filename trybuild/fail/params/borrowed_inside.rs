#[durable::effect(read_only)]
async fn look(text: Option<&str>) -> u64 {
    text.map_or(0, str::len) as u64
}

fn main() {}
