//! Parts have any signature.
#![forbid(unsafe_code)]
#![deny(warnings)]

use std::{borrow::Cow, collections::HashMap, fmt::Display, sync::Arc};

#[durable::effect(read_only)]
async fn look(query: &str) -> u64 {
    query.len() as u64
}

#[durable::part]
async fn walk(depth: u64) -> u64 {
    if depth == 0 { look("x").await } else { walk(depth - 1).await }
}

#[durable::part]
async fn nothing() {}

#[durable::part]
async fn forever() -> u64 {
    loop {
        look("again").await;
    }
}

#[durable::part]
async fn elided(a: &str, b: &mut Vec<u64>, c: Cow<'_, str>, (d, e): (u8, u8), mut f: String) -> String {
    f.push_str(a);
    b.push(look(&c).await + u64::from(d + e));
    f
}

#[durable::part]
async fn borrowed<'a, 'b: 'a>(all: &'a [String], other: &'b str) -> Option<&'a str> {
    look(other).await;
    all.first().map(String::as_str)
}

#[durable::part]
async fn one(all: &HashMap<String, String>) -> Option<&String> {
    let key = look("key").await.to_string();
    all.get(&key)
}

#[durable::part]
async fn generic<T, F, const N: usize>(items: [T; N], f: F) -> Vec<u64>
where
    T: Display + Send + Sync,
    F: Fn(&T) -> String + Send,
{
    let mut out = Vec::with_capacity(N);
    for item in items {
        out.push(look(&f(&item)).await);
    }
    out
}

#[durable::part]
async fn unnamed(text: impl Display + Send, f: &(dyn Fn(u64) -> u64 + Sync)) -> u64 {
    f(look(&text.to_string()).await)
}

#[durable::part]
async fn coerced(fail: bool) -> Result<Box<dyn Display + Send>, Box<dyn std::error::Error + Send + Sync>> {
    if fail {
        return Err("failed".into());
    }
    let n: u64 = look("n").await.to_string().parse()?;
    Ok(Box::new(n))
}

struct Agent<T> {
    history: Vec<T>,
}

impl<T: Clone + Send + Sync + 'static> Agent<T> {
    #[durable::part]
    async fn turn(&mut self, item: &T) -> &T {
        look("turn").await;
        self.history.push(item.clone());
        &self.history[0]
    }

    #[durable::part]
    async fn end(mut self) -> Vec<T> {
        look("end").await;
        self.history.clear();
        self.history
    }

    #[durable::part]
    async fn shared(self: Arc<Self>) -> usize {
        look("shared").await;
        self.history.len()
    }

    #[durable::part]
    async fn typed(self: &Self, other: Self) -> usize {
        look("typed").await;
        other.history.len() + self.history.len()
    }

    #[durable::part]
    async fn new(first: T) -> Self {
        look("new").await;
        Agent { history: vec![first] }
    }
}

trait Tool: Send + Sync {
    #[durable::part]
    async fn call(&self, input: &str) -> Result<String, String>;

    #[durable::part]
    async fn name(&self) -> String {
        look("name").await.to_string()
    }
}

struct Search;

impl Tool for Search {
    #[durable::part]
    async fn call(&self, input: &str) -> Result<String, String> {
        Ok(look(input).await.to_string())
    }
}

#[durable::workflow]
async fn all() -> u64 {
    let mut numbers = vec![];
    nothing().await;
    let text = elided("a", &mut numbers, Cow::Borrowed("b"), (1, 2), "c".into()).await;
    let all = [text];
    let first = borrowed(&all, "o").await.map(str::len);
    let map = HashMap::new();
    let one = one(&map).await.cloned();
    let out = generic([1, 2], |n: &i32| n.to_string()).await;
    let n = unnamed("x", &|n| n + 1).await;
    let shown = coerced(false).await.map(|shown| shown.to_string());
    let mut agent = Agent::new(1u8).await;
    let turn = *agent.turn(&2).await;
    let length = agent.typed(Agent { history: vec![] }).await + Arc::new(Agent { history: vec![1] }).shared().await;
    let tools: Vec<Box<dyn Tool>> = vec![Box::new(Search)];
    for tool in &tools {
        let _ = tool.call(&tool.name().await).await;
    }
    let (a, b) = durable::join((walk(3), agent.end())).await;
    if shown.is_err() {
        forever().await;
    }
    a + n + (b.len() + out.len() + length + first.unwrap_or(0)) as u64 + u64::from(turn) + one.is_some() as u64
}

fn main() {
    let _ = all();
}
