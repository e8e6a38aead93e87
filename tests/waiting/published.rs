//! What runs publish, and who may see it when.

use std::sync::{Arc, Mutex};

use durable::{
    Code, Status,
    store::{Done, Store, Write, memory::MemoryStore},
};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, act, in_time, refused, until},
    pass_on::pass_on,
};

/// Says how far it is, each time that it is told to go on.
#[durable::workflow]
async fn progress(steps: u64) -> durable::Result<()> {
    for n in 1..=steps {
        durable::publish("step", &n).await;
        durable::publish("of", &json!({ "steps": steps })).await;
        durable::signal::<()>("go on").await;
    }
    Ok(())
}

#[durable::workflow]
async fn says_once() -> durable::Result<()> {
    durable::publish("said", "it").await;
    act("after it").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_value_of_a_name_is_there_while_the_run_goes_on_and_afterwards() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        let run = bench.runtime.start("run", progress(3)).await.unwrap();
        for n in 1..=3u64 {
            until("the step", async || run.published::<u64>("step").await.unwrap() == Some(n)).await;
            bench.until_away("run").await;
            assert_eq!(run.published::<u64>("step").await.unwrap(), Some(n));
            run.signal("go on", &()).await.unwrap();
        }
        run.output().await.unwrap();
        let bench = bench.restarted().await;
        let run = bench.run("run").await;
        assert_eq!(run.published::<u64>("step").await.unwrap(), Some(3));
        assert_eq!(run.published::<serde_json::Value>("of").await.unwrap(), Some(json!({ "steps": 3 })));
        assert_eq!(run.published::<u64>("nothing").await.unwrap(), None);
        let other = refused(run.published::<Vec<u64>>("step").await, Code::OtherType);
        assert!(other.to_string().contains("\"step\"") && other.to_string().contains("run run"), "{other}");
        bench.runtime.remove("run").await.unwrap();
        refused(run.published::<u64>("step").await, Code::RunNotFound);
        refused(run.messages().await, Code::RunNotFound);
    }
}

/// What is said later; `None`: it is said at once.
type Held = Arc<Mutex<Option<Vec<Box<dyn FnOnce() + Send>>>>>;

/// A store that says late that something is durable, when it is asked to.
struct Late {
    inner: MemoryStore,
    held: Held,
}

impl Store for Late {
    pass_on!(inner);

    fn submit(&self, write: Write, done: Done) {
        let held = self.held.clone();
        self.inner.submit(
            write,
            Box::new(move |result| {
                let mut holds = held.lock().unwrap();
                match &mut *holds {
                    Some(queue) => queue.push(Box::new(move || done(result))),
                    None => {
                        drop(holds);
                        done(result);
                    }
                }
            }),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_what_is_not_durable() {
    let held = Held::default();
    let bench = Bench::over(Late { inner: MemoryStore::new(), held: held.clone() }).await;
    let run = bench.runtime.start("run", says_once()).await.unwrap();
    run.output().await.unwrap();
    // A run that has published, and whose store has not said so yet.
    let run = bench.runtime.start("another", progress(2)).await.unwrap();
    bench.until("another", "awaiting signal").await;
    run.signal("go on", &()).await.unwrap();
    until("the second step", async || run.published::<u64>("step").await.unwrap() == Some(2)).await;
    bench.until_away("another").await;
    *held.lock().unwrap() = Some(Vec::new());
    let runtime = bench.runtime.clone();
    let send = tokio::spawn(async move { runtime.signal("another", "n", &1).await });
    until("the message to be on its way", async || held.lock().unwrap().as_ref().is_some_and(|held| !held.is_empty()))
        .await;
    // It is in the store, and not durable: neither the sender nor a reader hears of it.
    let reader = run.clone();
    let reads = tokio::spawn(async move { reader.messages().await });
    let reader = run.clone();
    let looks = tokio::spawn(async move { reader.published::<u64>("step").await });
    until("all to wait", async || held.lock().unwrap().as_ref().is_some_and(|held| held.len() == 3)).await;
    assert!(!send.is_finished() && !reads.is_finished() && !looks.is_finished());
    let queue = held.lock().unwrap().take().unwrap();
    queue.into_iter().for_each(|done| done());
    in_time("the sender", send).await.unwrap().unwrap();
    assert_eq!(in_time("the reader", looks).await.unwrap().unwrap(), Some(2));
    assert_eq!(in_time("the reader", reads).await.unwrap().unwrap().len(), 1);
}

/// Says something under a name of so many letters, after something else.
#[durable::workflow]
async fn says(how: String, letters: usize) -> durable::Result<()> {
    act("before").await?;
    let name = "x".repeat(letters);
    match how.as_str() {
        "send" => durable::send("listener", name, &1).await,
        "publish" => durable::publish(name, &1).await,
        "signal" => durable::signal(name).await,
        "drain" => durable::signals::<()>(name).await.clear(),
        "ask" => drop(durable::ask::<()>(name).await),
        _ => drop(act("named").named(name).await?),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nobody_could_say_from_outside_is_refused_and_nothing_is_said() {
    let bench = Bench::forgetful(Backend::Memory).await;
    bench.runtime.start("listener", listens()).await.unwrap();
    let most = durable::VALUE_BYTES_MAX;
    let ways =
        [("send", most), ("publish", most), ("signal", most), ("drain", most), ("ask", most), ("named", 1 << 26)];
    for (how, most) in ways {
        let run = bench.runtime.start(how, says(how.into(), most + 1)).await.unwrap();
        let Status::Parked(parked) = bench.until(how, "parked").await else { panic!("it is parked") };
        assert_eq!(parked.code, Code::ValueNotRecordable, "{how}");
        assert!(parked.why.contains("bytes, more than") && !parked.why.contains("returned"), "{parked:?}");
        assert_eq!(bench.names(how).await.last(), Some(&"effect.result"), "{how}");
        assert_eq!(run.published::<u64>(&"x".repeat(most + 1)).await.unwrap(), None);
    }
    assert!(bench.run("listener").await.messages().await.unwrap().is_empty());
    let run = bench.runtime.start("just", says("send".into(), most)).await.unwrap();
    in_time("it", run.output()).await.unwrap();
    assert_eq!(bench.run("listener").await.messages().await.unwrap().len(), 1);
}

#[durable::workflow]
async fn listens() -> durable::Result<()> {
    durable::signal::<()>("never").await;
    Ok(())
}
