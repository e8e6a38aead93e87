pub struct Steer {
    pub words: String,
}

#[durable::workflow]
async fn agent() -> usize {
    let steer = durable::signal::<Steer>("steer").await;
    steer.words.len()
}

fn main() {}
