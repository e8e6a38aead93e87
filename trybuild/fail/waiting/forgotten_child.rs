#![deny(unused_must_use)]

#[durable::workflow]
async fn counter(n: u64) -> u64 {
    n
}

#[durable::workflow]
async fn agent() {
    durable::spawn(counter(1)).await;
}

fn main() {}
