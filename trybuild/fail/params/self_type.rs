pub struct Tools(u64);

impl Tools {
    #[durable::effect(read_only)]
    async fn look(tools: Self) -> u64 {
        tools.0
    }
}

fn main() {}
