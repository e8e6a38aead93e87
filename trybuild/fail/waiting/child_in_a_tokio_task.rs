#[durable::workflow]
async fn counter(n: u64) -> u64 {
    n
}

pub fn helper(child: durable::Child<u64>) {
    tokio::spawn(child);
}

fn main() {
    let _ = (helper, counter);
}
