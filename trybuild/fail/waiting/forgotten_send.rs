#![deny(unused_must_use)]

#[durable::workflow]
async fn agent(reader: String) {
    durable::send(reader, "draft", "once");
}

fn main() {}
