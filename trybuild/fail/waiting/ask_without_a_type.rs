#[durable::workflow]
async fn agent() -> bool {
    let answer = durable::ask("go on?").await;
    answer.is_granted()
}

fn main() {}
