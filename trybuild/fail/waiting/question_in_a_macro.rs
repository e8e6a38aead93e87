#[durable::workflow]
async fn agent() -> bool {
    let question = durable::Question::new("go on?");
    tokio::select! {
        answer = durable::ask::<()>(question) => answer.is_granted(),
        () = durable::cancelled() => false,
    }
}

fn main() {}
