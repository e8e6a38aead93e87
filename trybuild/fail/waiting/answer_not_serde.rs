pub struct Approval {
    pub cents: u64,
}

#[durable::workflow]
async fn agent() -> u64 {
    durable::ask::<Approval>("how much?").await.granted().map_or(0, |approval| approval.cents)
}

fn main() {}
