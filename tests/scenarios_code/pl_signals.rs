//! O-PL-1 and O-PL-2 for what is said between runs and the world outside: values that do not survive, and values that are too large.

use std::sync::atomic::{AtomicU32, Ordering};

use durable::{Answer, Code, EffectContext, Question, Reply, RunId, store::Store as _};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{BOTH, Backend, Bench, World, every_cut_ends};

const LIMIT: usize = 64 * 1024;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    lines: Vec<Entry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    note: Option<Option<String>>,
    cents: u32,
}

fn order(note: Option<Option<String>>) -> Order {
    Order { lines: vec![Entry { note: None, cents: 1 }, Entry { note, cents: 2 }] }
}

/// Another text each time.
struct Fickle;

impl Serialize for Fickle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        static TIMES: AtomicU32 = AtomicU32::new(0);
        TIMES.fetch_add(1, Ordering::SeqCst).serialize(serializer)
    }
}

#[durable::effect(idempotent)]
async fn act(cx: &EffectContext, #[resource] world: &World, what: &str) -> String {
    world.note(cx, what);
    world.pass(what).await;
    what.to_owned()
}

#[durable::workflow]
async fn takes_order() -> usize {
    let order = durable::signal::<Order>("order").await;
    act("taken").await;
    order.lines.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_not_come_back_equal_is_refused_before_it_is_put_and_names_the_field() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("run", takes_order()).await.unwrap();
        let nested = run.signal("order", &order(Some(None))).await.unwrap_err();
        assert_eq!(nested.code(), Code::ArgumentNotRecordable);
        assert!(nested.to_string().contains("lines[1].note"), "{nested}");
        assert!(run.messages().await.unwrap().is_empty());
        run.signal("order", &order(Some(Some(String::new())))).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), 2);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_another_each_time_is_what_it_was_when_it_was_sent() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("run", takes_number()).await.unwrap();
    // One encoding is one value: nothing is encoded again.
    run.signal("n", &Fickle).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 0);
    bench.replays("run").await;
}

#[durable::workflow]
async fn takes_number() -> u32 {
    durable::signal::<u32>("n").await
}

/// Takes one that fits, however many do not; and all that fit of a drain.
#[durable::workflow]
async fn picky() -> (u32, Vec<u32>) {
    act("before").await;
    let one = durable::signal::<u32>("n").await;
    act("between").await;
    (one, durable::signals::<u32>("n").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_does_not_decode_is_set_aside_with_the_reason_and_the_wait_goes_on() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        // All are sent before anybody waits for them: of what is waited for the type is known, and another one refused.
        bench.world.close("before");
        let run = bench.runtime.start("run", picky()).await.unwrap();
        run.signal("n", "not a number").await.unwrap();
        run.signal("n", &-1).await.unwrap();
        for n in [json!(1), json!({ "n": 2 }), json!(3), json!(null), json!(4)] {
            run.signal("n", &n).await.unwrap();
        }
        bench.world.open("before");
        assert_eq!(run.returned().await.unwrap(), (1, vec![3, 4]));
        let log = bench.log("run").await;
        let aside: Vec<_> = log.iter().filter(|entry| entry.name == "signal.set_aside").collect();
        assert_eq!(aside.len(), 4);
        assert!(run.messages().await.unwrap().is_empty());
        let first = aside[0];
        assert_eq!(first.get("value"), Some(&json!("not a number")));
        assert!(first.get("reason").unwrap().as_str().unwrap().contains("u32"), "{first}");
        bench.replays("run").await;
        if backend == Backend::Memory {
            every_cut_ends(&bench, "run").await;
        }
    }
}

// ---- too large ----

#[durable::workflow]
async fn length() -> usize {
    durable::signal::<String>("text").await.len()
}

#[durable::workflow]
async fn tells(n: usize, how: String) -> usize {
    let text = "x".repeat(n);
    match how.as_str() {
        "sends" => durable::send("receiver", "text", &text).await,
        "publishes" => durable::publish("text", &text).await,
        "asks" => drop(durable::ask::<()>(Question::new("ok?").about(&text)).await),
        "undoes" => durable::undo(act(&text)).await,
        "restarts" => return durable::restart_as(is_given(text)).await,
        _ => return durable::spawn(is_given(text)).await.await,
    }
    act("told").await;
    n
}

#[durable::workflow]
async fn is_given(text: String) -> usize {
    text.len()
}

/// Bytes beside the text: codec byte, length.
fn recorded(n: usize) -> usize {
    durable::Value::encode(&"x".repeat(n)).unwrap().len()
}

async fn bench(backend: Backend) -> Bench {
    Bench::built(backend, |builder| builder.value_bytes_max(LIMIT)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_at_the_limit_is_taken_and_one_byte_more_never_gets_to_the_store() {
    let around = LIMIT - 200;
    let most = around + LIMIT - recorded(around);
    assert_eq!(recorded(most), LIMIT);
    for backend in BOTH {
        let bench = bench(backend).await;
        for n in [1_024, most - 1, most] {
            let id = format!("run-{n}");
            let run = bench.runtime.start(&id, length()).await.unwrap();
            run.signal("text", &"x".repeat(n)).await.unwrap();
            assert_eq!(run.returned().await.unwrap(), n);
        }
        bench.replays(&format!("run-{most}")).await;
        let run = bench.runtime.start("too-large", length()).await.unwrap();
        for n in [most + 1, 64 * 1024 * 1024] {
            let error = run.signal("text", &"x".repeat(n)).await.unwrap_err();
            assert_eq!(error.code(), Code::TooLarge);
            for part in ["signal \"text\"", &recorded(n).to_string(), &LIMIT.to_string()] {
                assert!(error.to_string().contains(part), "{part} is not in {error}");
            }
            let with_start = bench.runtime.signal_or_start("new", length(), "text", &"x".repeat(n)).await.unwrap_err();
            assert_eq!(with_start.code(), Code::TooLarge, "{with_start}");
        }
        assert!(bench.store.rows(&RunId::new("too-large").unwrap(), 0, 10).unwrap().is_empty());
        assert!(bench.runtime.run("new").await.unwrap_err().is_not_found());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_the_limit_too() {
    for backend in BOTH {
        let bench = bench(backend).await;
        let run = bench.runtime.start("asks", is_answered()).await.unwrap();
        bench.until_status("asks", "asking", |status| status.as_str() == "awaiting answer").await;
        let token = bench.runtime.questions().await.unwrap().remove(0).token;
        let error = bench.runtime.answer(&token, Reply::granted(&"x".repeat(LIMIT))).await.unwrap_err();
        assert_eq!(error.code(), Code::TooLarge, "{error}");
        bench.runtime.answer(&token, Reply::granted("short")).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), "short");
        bench.replays("asks").await;
    }
}

#[durable::workflow]
async fn is_answered() -> String {
    match durable::ask::<String>("how?").await {
        Answer::Granted(text) => text,
        Answer::Refused(reason) => reason,
        Answer::Expired => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_would_tell_too_much_is_parked_and_has_told_nothing() {
    for backend in BOTH {
        for how in ["sends", "publishes", "asks", "undoes", "restarts", "spawns"] {
            let bench = bench(backend).await;
            bench.runtime.start("tells", tells(LIMIT, how.into())).await.unwrap();
            let error = bench.parked("tells").await;
            assert_eq!(error.code(), Code::ValueNotRecordable, "{how}: {error}");
            for part in ["pl_signals.rs", &LIMIT.to_string()] {
                assert!(error.to_string().contains(part), "{how}: {part} is not in {error}");
            }
            assert_eq!(bench.names("tells").await, ["run.started"], "{how}");
            assert!(bench.world.ledger().is_empty(), "{how}");
            assert_eq!(bench.runtime.runs(durable::Filter::all()).await.unwrap().len(), 1, "{how}");
            assert!(bench.store.rows(&RunId::new("receiver").unwrap(), 0, 10).unwrap().is_empty(), "{how}");
            // Under a larger limit it goes on.
            let bench = bench.reopened().await;
            if how == "asks" {
                bench.until_status("tells", "asking", |status| status.as_str() == "awaiting answer").await;
                let question = bench.runtime.questions().await.unwrap().remove(0);
                assert_eq!(question.about.as_str().unwrap().len(), LIMIT, "the whole of it is shown");
                bench.runtime.answer(question.token, Reply::granted(&())).await.unwrap();
            }
            bench.end("tells").await.unwrap();
            assert_eq!(bench.names("tells").await.last(), Some(&"run.completed"), "{how}");
        }
    }
}
