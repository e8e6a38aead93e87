pub struct Agent;

#[durable::effect(read_only)]
impl Agent {
    pub async fn look() {}
}

fn main() {}
