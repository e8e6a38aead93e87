//! A run from start to output.
use durable::{EffectContext, Runtime};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Serialize, Deserialize, Clone)]
struct Order {
    id: String,
    cents: u64,
}

static PAID: AtomicUsize = AtomicUsize::new(0);

struct Gateway;

#[durable::effect(read_only)]
async fn search_policy(query: &str) -> durable::Result<String> {
    Ok(format!("policy on {query}"))
}

#[durable::effect(key = "{order_id}:refund:{cents}", retry(attempts = 5))]
async fn process_refund(
    cx: &EffectContext,
    #[resource] gateway: &Gateway,
    order_id: &str,
    cents: u64,
) -> durable::Result<String> {
    let _ = gateway;
    PAID.fetch_add(1, Ordering::SeqCst);
    Ok(cx.idempotency_key().to_owned())
}

#[durable::workflow]
async fn refund_agent(order: Order) -> durable::Result<String> {
    let policy = search_policy("refund window").await?;
    let receipt = process_refund(&order.id, order.cents).await?;
    let both = durable::join((async { search_policy("a").await }, async { search_policy("b").await })).await;
    let all = durable::join_all((0..5).map(|i| search_policy(if i == 0 { "x" } else { "y" }))).await;
    durable::sleep(std::time::Duration::from_millis(20)).await;
    let r = durable::timeout(std::time::Duration::from_secs(60), search_policy("t")).await;
    let b = durable::begin(search_policy("begun")).await;
    let b = b.await?;
    Ok(format!("{policy}; {receipt}; {both:?} {} {r:?} {b}", all.len()))
}

async fn go(runtime: Runtime) {
    let run = runtime.start("run-1", refund_agent(Order { id: "ORD-3300".into(), cents: 18000 })).await.unwrap();
    println!("{}", run.output().await.unwrap());
    for e in run.log().await.unwrap() {
        println!("{e}");
    }
    println!("{:?}", runtime.runs(durable::Filter::all()).await.unwrap());
    runtime.shutdown(std::time::Duration::from_secs(1)).await.unwrap();
}
#[tokio::test]
async fn memory() {
    go(Runtime::builder().resource(Gateway).open_in_memory().await.unwrap()).await;
}
#[tokio::test(flavor = "multi_thread")]
async fn sled() {
    let dir = std::env::temp_dir().join(format!("durable-smoke-{}", std::process::id()));
    go(Runtime::builder().resource(Gateway).open(&dir).await.unwrap()).await;
    std::fs::remove_dir_all(dir).unwrap();
}
