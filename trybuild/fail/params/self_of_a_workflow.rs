pub struct Agent(u64);

impl Agent {
    #[durable::workflow]
    async fn run(self) -> u64 {
        self.0
    }
}

fn main() {
    let _ = Agent(1).run();
}
