//! What a part borrows is the same in every edition, and `gen` is a name.
#![deny(warnings)]

#[durable::effect(read_only)]
async fn r#gen(n: &u64) -> u64 {
    *n
}

#[durable::part]
async fn lends(a: &u64, b: &u64) -> u64 {
    r#gen(a).await + r#gen(b).await
}

#[durable::workflow]
async fn both() -> u64 {
    let one = 1;
    let part = {
        let two = &2;
        lends(&one, two)
    };
    part.await
}

fn main() {
    let _ = both();
}
