pub struct Tools(u64);

impl Tools {
    #[durable::effect(read_only)]
    async fn look(&self, text: &str) -> u64 {
        self.0 + text.len() as u64
    }
}

fn main() {
    let _ = Tools(1).look("x");
}
