pub struct Draft {
    pub text: String,
}

#[durable::workflow]
async fn agent(reader: String) {
    durable::send(reader, "draft", &Draft { text: "once".into() }).await;
}

fn main() {}
