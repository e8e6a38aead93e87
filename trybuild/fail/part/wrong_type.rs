#[durable::part]
async fn turn(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Ok(1);
    }
    Ok(name.into())
}

fn main() {}
