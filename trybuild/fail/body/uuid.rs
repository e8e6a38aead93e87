mod uuid {
    pub struct Uuid;

    impl Uuid {
        pub fn new_v4() -> u64 {
            4
        }
    }
}

#[durable::workflow]
async fn agent(name: String) -> u64 {
    uuid::Uuid::new_v4() + name.len() as u64
}

fn main() {}
