pub struct Agent;

impl Agent {
    const LIMIT: u64 = 1;

    #[durable::workflow]
    pub async fn run() -> u64 {
        Self::LIMIT
    }
}

fn main() {}
