#[durable::effect(read_only)]
async fn look(text: &str) -> u64 {
    text.len() as u64
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    let log = std::cell::RefCell::new(vec![1]);
    let a = async {
        let n = look("a").await;
        log.borrow_mut().push(n);
    };
    let b = async { look("b").await };
    durable::join((a, b)).await;
    look(&name).await
}

fn main() {}
