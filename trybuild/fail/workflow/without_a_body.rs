pub trait Agent {
    #[durable::workflow]
    async fn run() -> u64;
}

fn main() {}
