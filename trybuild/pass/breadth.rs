//! The breadth of ordinary Rust in workflows and parts.
#![forbid(unsafe_code)]
#![deny(warnings)]

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Debug, Clone)]
struct Order {
    id: String,
    items: Vec<u64>,
}

mod look {
    /// A module and a function of one name. See [`look`].
    #[durable::effect(read_only)]
    pub async fn look(query: &str, more: &[u64]) -> Result<u64, String> {
        Ok(query.len() as u64 + more.len() as u64)
    }
}
use look::look;

#[durable::effect(idempotent)]
async fn ping() {}

#[durable::workflow]
async fn fact(n: u64) -> u64 {
    if n == 0 { 1 } else { n * fact(n - 1).await }
}

#[durable::workflow]
async fn even(n: u64) -> bool {
    if n == 0 { true } else { odd(n - 1).await }
}

#[durable::workflow]
async fn odd(n: u64) -> bool {
    if n == 0 { false } else { even(n - 1).await }
}

#[durable::part]
async fn ask<T: AsRef<str> + Send + Sync>(history: &mut Vec<String>, q: &T) -> Result<u64, String> {
    let n = look(q.as_ref(), &[]).await?;
    history.push(format!("{} -> {n}", q.as_ref()));
    Ok(n)
}

struct Agent {
    name: String,
}

impl Agent {
    #[durable::part]
    async fn turn(&mut self, q: &str) -> Result<u64, String> {
        self.name.push('.');
        look(q, &[1]).await
    }
}

#[durable::workflow]
async fn agent(order: Order) -> Result<u64, String> {
    async fn inner() -> u64 {
        // A nested item is a function of its own.
        std::future::ready(std::env::args().count() as u64).await
    }
    let _ = inner;
    let mut history = vec![];
    let a = async { look(&order.id, &order.items).await };
    let b = async { look(&order.id, &[]).await };
    let (x, y) = durable::join((a, b)).await;
    let per_item = durable::join_all(order.items.iter().map(|i| async move {
        ping().await;
        look(&format!("{i}"), &[*i]).await
    }))
    .await;
    let again = durable::join_all(order.items.iter().map(|i| {
        let order = &order;
        async move { look(&order.id, &[*i]).await }
    }))
    .await;
    let f = |q: u64| async move { look(&q.to_string(), &[]).await };
    for i in 0..3 {
        f(i).await?;
    }
    let n = ask(&mut history, &"hello".to_string()).await?;
    let mut g = Agent { name: "x".into() };
    g.turn("a").await?;
    g.turn("b").await?;
    let call = if n > 3 { look("e", &[]) } else { look("f", &[1]) };
    let z = call.await?;
    let mut sum = x? + y? + n + z + fact(3).await + u64::from(even(4).await);
    sum += (per_item.len() + again.len() + history.len()) as u64;
    Ok(sum)
}

#[durable::workflow]
async fn control(mut words: Vec<String>, limit: Option<u64>) -> Result<u64, String> {
    let Some(limit) = limit else { return Ok(look("none", &[]).await?) };
    let mut total = 0;
    'outer: loop {
        for (i, word) in words.iter().enumerate() {
            total += look(word, &[i as u64]).await?;
            if total > limit {
                break 'outer;
            }
            if word.is_empty() {
                continue 'outer;
            }
        }
        while let Ok(n @ 1..) = look("while", &[total]).await {
            total += n;
            words.push(n.to_string());
        }
    }
    let block = 'block: {
        if total == 3 {
            break 'block look("block", &[]).await?;
        }
        0
    };
    total += match look("match", &[]).await {
        Ok(0) | Err(_) => 1,
        Ok(n) if n > 100 => look("guard", &[n]).await?,
        Ok(n) => n,
    };
    let closure = |n: u64| n + total;
    let [a, b] = [look("array", &[]).await?, closure(block)];
    let (c, ref d) = (look("tuple", &[]).await?, 4u64);
    Ok(-(a as i64 + b as i64) as u64 + c + *d + !look("not", &[]).await? + (look("cast", &[]).await? as u8) as u64)
}

#[durable::workflow]
async fn nested() -> u64 {
    look(&look("a", &[]).await.unwrap_or(0).to_string(), &[look("b", &[]).await.unwrap_or(1)]).await.unwrap_or_default()
}

#[durable::workflow]
async fn borrows(name: &str, words: &[String], order: &Order, mut limit: u64) -> Result<u64, String> {
    limit += look(name, &order.items).await? + words.len() as u64;
    Ok(limit)
}

fn main() {
    let _ = borrows("x", &["y".into()], &Order { id: "o".into(), items: vec![] }, 1);
    let _ = (agent(Order { id: "o".into(), items: vec![1, 2] }), control(vec![], None), nested());
}
