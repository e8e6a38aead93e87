//! O-SG-3: signals that are sent more than once.

use std::{path::Path, time::Duration};

use durable::{Runtime, TestClock};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Bench, open_sled, secs},
    child::{self, stop},
    world::World,
};

const LIMIT: Duration = secs(5);

/// Two payments, if the second one comes in time.
#[durable::workflow]
async fn paid() -> (Option<u32>, Option<u32>) {
    let first = durable::timeout(LIMIT, durable::signal::<u32>("pay")).await.ok();
    let second = durable::timeout(LIMIT, durable::signal::<u32>("pay")).await.ok();
    (first, second)
}

/// Sends the payment, and dies when that is accepted.
pub(crate) async fn child(dir: &Path) {
    let world = World::in_file(dir.join("ledger"));
    let store = open_sled(dir.join("store")).await.unwrap();
    let builder = Runtime::builder().resource(world).clock(TestClock::at(BEGINNING));
    let runtime = builder.open_store(store).await.unwrap();
    runtime.start("run", paid()).await.unwrap();
    runtime.signal("run", "pay", &7).id("7").await.unwrap();
    stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_an_id_counts_once_per_run_however_often_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    child::killed("sg_3", dir.path(), "");
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING)).await;
    let again = async || bench.runtime.signal("run", "pay", &7).id("7").await.unwrap();
    again().await;
    again().await;
    // Another run has its own, and so has another name.
    bench.runtime.start("other", paid()).await.unwrap();
    bench.runtime.signal("other", "pay", &70).id("7").await.unwrap();
    bench.runtime.signal("other", "pray", &71).id("7").await.unwrap();
    for id in ["run", "other"] {
        bench.until_status(id, "waiting", |status| matches!(status.as_str(), "awaiting signal" | "sleeping")).await;
    }
    bench.advance(LIMIT).await;
    assert_eq!(bench.end("run").await, json!([7, null]));
    assert_eq!(bench.end("other").await, json!([70, null]));
    // After completion a repeat is answered as the first one was, and changes nothing.
    let names = bench.names("run").await;
    again().await;
    assert_eq!(bench.names("run").await, names);
    assert!(bench.runtime.run("run").await.unwrap().messages().await.unwrap().is_empty());
    bench.replays("run").await;
    bench.replays("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_messages_without_ids_are_two() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", paid()).await.unwrap();
        bench.runtime.signal("run", "pay", &7).await.unwrap();
        bench.runtime.signal("run", "pay", &7).await.unwrap();
        assert_eq!(bench.end("run").await, json!([7, 7]));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_with_another_value_is_the_first_one() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", paid()).await.unwrap();
        for value in [7, 8, 9] {
            bench.runtime.signal("run", "pay", &value).id("7").await.unwrap();
        }
        bench.runtime.signal("run", "pay", &10).id("8").await.unwrap();
        assert_eq!(bench.end("run").await, json!([7, 10]));
        bench.replays("run").await;
    }
}
