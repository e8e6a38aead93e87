//! What people and programs see: logs as JSON lines, the table of workflows, traces.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/pass_on.rs"]
mod pass_on;
#[path = "common/traces.rs"]
mod traces;

use std::{
    fmt::Write,
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use durable::{
    Clock, EffectContext, Runtime, StepNo, TestClock,
    store::{self, Done, Store, memory::MemoryStore},
};
use pass_on::pass_on;
use serde_json::{Value as Json, json};

#[durable::effect(read_only)]
async fn look_up(order: &str) -> durable::Result<u64> {
    tracing::info!(order, "in the body");
    Ok(order.len() as u64)
}

#[durable::effect(key = "{order}:pay:{cents}", retry(attempts = 3, first = "1s"))]
async fn pay(cx: &EffectContext, order: &str, cents: u64) -> durable::Result<String> {
    match cx.attempt() {
        1 => Err(durable::Failure::new("busy")),
        n => Ok(format!("paid {cents} for {order} at attempt {n}")),
    }
}

#[durable::effect(at_most_once)]
async fn tell(text: &str) -> durable::Result<()> {
    let _ = text;
    Ok(())
}

#[durable::effect(idempotent, name = "audit-trail")]
async fn audit(n: u32) -> u32 {
    n
}

mod twin {
    /// As in the module around it, with another contract.
    #[durable::effect(idempotent)]
    pub(crate) async fn tell(text: &str) -> durable::Result<()> {
        let _ = text;
        Ok(())
    }

    #[durable::workflow]
    pub(crate) async fn twins(text: String) -> durable::Result<()> {
        tell(&text).await?;
        super::tell(&text).await
    }
}

#[durable::part]
async fn check_stock(order: &str) -> durable::Result<u64> {
    look_up(order).await
}

#[durable::workflow]
async fn buys(order: String) -> durable::Result<String> {
    durable::untracked(|| tracing::info!("the code says one"));
    let stock = check_stock(&order).await?;
    durable::untracked(|| tracing::info!("the code says two"));
    let both = durable::join((look_up("a"), async {
        durable::sleep(Duration::from_secs(5)).await;
        audit(7).await
    }))
    .await;
    if durable::version("tell-all", 2).await >= 2 {
        tell("all").named("shout").await?;
    }
    let _left = durable::begin(durable::sleep(Duration::from_secs(3_600))).await;
    let receipt = pay(&order, stock + both.0? + u64::from(both.1)).await?;
    durable::untracked(|| tracing::info!("the code says three"));
    Ok(receipt)
}

#[durable::workflow]
async fn fails() -> durable::Result<u8> {
    Err(durable::Failure::new("declined").with_kind("card"))
}

const ORDER: &str = "o-1";

/// Runs it to its end; time passes by itself.
async fn run_to_end(runtime: &Runtime, clock: &TestClock, id: &str) -> Vec<durable::LogEntry> {
    let run = runtime.start(id, buys(ORDER.into())).await.unwrap();
    let time = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_millis(500));
        }
    };
    tokio::select! {
        output = run.output() => assert_eq!(output.unwrap(), "paid 11 for o-1 at attempt 2"),
        () = time => unreachable!("time passes for ever"),
    }
    run.log().await.unwrap()
}

fn clock() -> TestClock {
    TestClock::at(Duration::from_secs(1_700_000_000))
}

/// What a line says beside place and time.
fn said(entry: &durable::LogEntry) -> Json {
    let mut json = entry.to_json();
    let fields = json.as_object_mut().unwrap();
    for field in ["seq", "at", "site", "retry_at", "deadline", "build"] {
        fields.remove(field);
    }
    json
}

#[tokio::test]
async fn a_log_is_lines_of_json_that_say_all_that_happened() {
    let clock = clock();
    let runtime = Runtime::builder().clock(clock.clone()).open_in_memory().await.unwrap();
    let log = run_to_end(&runtime, &clock, "buys").await;
    for (n, entry) in log.iter().enumerate() {
        let line = entry.to_string();
        assert!(!line.contains('\n'), "one entry is one line: {line}");
        let json: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(json, entry.to_json());
        let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys[..3], ["seq", "at", "entry"], "every line begins alike");
        assert_eq!((json["seq"].as_u64(), json["entry"].as_str()), (Some(n as u64), Some(entry.name)));
        assert_eq!(entry.step.map(|step| step.0), json.get("step").map(|step| step.as_u64().unwrap() as u32));
        assert_eq!(entry.path.as_deref(), json.get("path").map(|path| path.as_str().unwrap()));
        assert!(json["at"].as_str().unwrap().starts_with("2023-11-14T22:"), "{line}");
        let asked =
            ["effect.called", "timer.set", "version.chosen"].contains(&entry.name) && entry.get("args").is_some();
        assert!(!asked || json["site"].as_str().unwrap().contains("observe.rs:"), "{line}");
    }
    assert!(log.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let lines: Vec<Json> = log.iter().map(said).collect();
    let has = |line: Json| assert!(lines.contains(&line), "{line} is not among\n{lines:#?}");
    has(json!({ "entry": "run.started", "workflow": "buys", "module": "observe", "args": { "order": "o-1" } }));
    has(json!({ "entry": "effect.called", "step": 0, "path": "check_stock[0]/look_up[0]", "effect": "look_up",
        "contract": "read_only", "args": { "order": "o-1" }, "attempt": 1 }));
    has(
        json!({ "entry": "effect.result", "step": 0, "path": "check_stock[0]/look_up[0]", "attempt": 1, "value": { "Ok": 3 } }),
    );
    has(json!({ "entry": "timer.set", "step": 2, "path": "join[0]/1/async[0]/sleep[0]" }));
    has(json!({ "entry": "timer.fired", "step": 2, "path": "join[0]/1/async[0]/sleep[0]" }));
    has(
        json!({ "entry": "effect.called", "step": 3, "path": "join[0]/1/async[0]/audit-trail[0]", "effect": "audit-trail",
        "contract": "idempotent", "args": { "n": 7 }, "attempt": 1 }),
    );
    has(json!({ "entry": "version.chosen", "step": 4, "path": "tell-all[0]", "version": 2 }));
    has(json!({ "entry": "effect.called", "step": 5, "path": "shout[0]", "effect": "tell",
        "contract": "at_most_once", "args": { "text": "all" }, "attempt": 1 }));
    has(json!({ "entry": "effect.called", "step": 7, "path": "pay[0]", "effect": "pay", "contract": "key",
        "args": { "order": "o-1", "cents": 11 }, "attempt": 1, "key": "o-1:pay:11" }));
    has(
        json!({ "entry": "effect.failed", "step": 7, "path": "pay[0]", "attempt": 1, "value": { "Err": { "message": "busy" } } }),
    );
    // The second attempt says its key as well.
    has(json!({ "entry": "effect.called", "step": 7, "path": "pay[0]", "attempt": 2, "key": "o-1:pay:11" }));
    has(json!({ "entry": "step.closed", "step": 6, "path": "sleep[0]" }));
    has(json!({ "entry": "run.completed", "value": { "Ok": "paid 11 for o-1 at attempt 2" } }));
    let failed = log.iter().find(|entry| entry.name == "effect.failed").unwrap();
    assert!(failed.get("retry_at").unwrap().as_str().unwrap().ends_with('Z'));
    let run = runtime.start("fails", fails()).await.unwrap();
    run.output().await.unwrap_err();
    let last = run.log().await.unwrap().pop().unwrap();
    let value = json!({ "Err": { "message": "declined", "kind": "card" } });
    assert_eq!(said(&last), json!({ "entry": "run.failed", "error": "declined", "value": value }));
}

#[test]
fn every_workflow_is_listed_with_its_numbered_steps_and_their_contracts() {
    let all = durable::workflows();
    let names: Vec<_> = all.iter().map(|workflow| workflow.name).collect();
    assert_eq!(names, ["buys", "fails", "sleepy", "twins"], "by name");
    let source: Vec<&str> = include_str!("observe.rs").lines().collect();
    let mut table = String::new();
    for workflow in &all {
        assert!(workflow.file.ends_with("observe.rs"), "{}", workflow.file);
        let function = source[workflow.line as usize - 1];
        assert!(function.contains(&format!("async fn {}(", workflow.name)), "{}:{}", workflow.file, workflow.line);
        for step in &workflow.steps {
            writeln!(table, "{} {} {} {}", workflow.name, step.number, step.callee, step.contract.unwrap_or("-"))
                .unwrap();
            assert_eq!(step.file, workflow.file);
            // The line is that of the awaited expression.
            let callee = step.callee.rsplit("::").next().unwrap();
            let line = source[step.line as usize - 1];
            assert!(line.contains(callee), "{} of {} is said to be in: {line}", step.callee, workflow.name);
        }
    }
    let want = "\
        buys 0 check_stock -\n\
        buys 1 durable::sleep -\n\
        buys 2 audit idempotent\n\
        buys 3 durable::join -\n\
        buys 4 durable::version -\n\
        buys 5 tell at_most_once\n\
        buys 6 durable::begin -\n\
        buys 7 pay key\n\
        sleepy 0 durable::sleep -\n\
        sleepy 1 audit idempotent\n\
        twins 0 tell idempotent\n\
        twins 1 super::tell -\n";
    assert_eq!(table, want);
    let ids: std::collections::BTreeSet<_> = all.iter().flat_map(|w| w.steps.iter().map(|step| step.id)).collect();
    assert_eq!(ids.len(), all.iter().map(|w| w.steps.len()).sum::<usize>(), "each call site has an id of its own");
}

// ---- traces ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_code_logs_is_in_its_runs_span_and_said_once() {
    traces::keep("observe");
    let clock = clock();
    let store = Arc::new(MemoryStore::new());
    let builder = || Runtime::builder().clock(clock.clone()).log_entries_warn(12);
    let runtime = builder().open_store(store.clone()).await.unwrap();
    let from = traces::kept();
    let log = run_to_end(&runtime, &clock, "traced").await;
    let lines = traces::lines_of("traced", from);
    let count = |lines: &[String], part: &str| lines.iter().filter(|line| line.contains(part)).count();
    for part in ["the code says one", "the code says two", "the code says three"] {
        assert_eq!(count(&lines, part), 1, "{part}: {lines:#?}");
        assert!(lines.iter().any(|line| *line == format!("[run id=traced] {part}")), "{lines:#?}");
    }
    // A body is in its own span, inside the run's.
    let body = "[run id=traced > effect name=look_up path=check_stock[0]/look_up[0] attempt=1] in the body order=o-1";
    assert_eq!(count(&lines, body), 1, "{lines:#?}");
    assert_eq!(count(&lines, "the log is long"), 1, "one warning for a run that is longer than asked: {lines:#?}");
    assert!(log.len() > 12);

    // A run that stands in a long sleep is replayed: nothing of what it has said is said again.
    let run = runtime.start("asleep", sleepy()).await.unwrap();
    let asleep = async |run: &durable::AnyRun| {
        while !matches!(run.status().await.unwrap(), durable::Status::Sleeping { .. }) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    asleep(&run).await;
    assert_eq!(count(&traces::lines_of("asleep", from), "awake at"), 3);
    runtime.shutdown(Duration::ZERO).await.unwrap();
    let next = builder().open_store(store.reopened()).await.unwrap();
    let replay = traces::kept();
    let run = next.run("asleep").await.unwrap();
    asleep(&run).await;
    let lines = traces::lines_of("asleep", replay);
    assert_eq!(count(&lines, "awake at"), 0, "{lines:#?}");
    assert_eq!(count(&lines, "effect name="), 0, "{lines:#?}");
    // Awake again, it goes on to speak.
    while run.status().await.unwrap() != durable::Status::Completed {
        clock.advance(Duration::from_secs(3_600));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let lines = traces::lines_of("asleep", replay);
    assert_eq!(count(&lines, "awake at"), 1, "{lines:#?}");
    assert_eq!(count(&lines, "[run id=asleep] awake at 3"), 1, "{lines:#?}");
    assert_eq!(run.log().await.unwrap().last().unwrap().step, None::<StepNo>);
    assert!(clock.wall() > 0);
}

#[durable::workflow]
async fn sleepy() -> u32 {
    let mut sum = 0;
    for n in 0..4 {
        if n == 3 {
            durable::sleep(Duration::from_secs(600)).await;
        }
        durable::untracked(|| tracing::info!("awake at {n}"));
        sum += audit(n).await;
    }
    sum
}

/// A store that is slow to let go of runs: it does so when the next write comes.
#[derive(Default)]
struct Reluctant {
    inner: MemoryStore,
    released: Mutex<Vec<(store::Write, Done)>>,
}

impl Store for Reluctant {
    pass_on!(inner);

    fn submit(&self, write: store::Write, done: Done) {
        let mut released = self.released.lock().unwrap();
        if matches!(write, store::Write::Release { .. }) {
            return released.push((write, done));
        }
        let before = mem::take(&mut *released);
        drop(released);
        before.into_iter().for_each(|(write, done)| self.inner.submit(write, done));
        self.inner.submit(write, done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_wakes_before_the_store_has_let_go_of_it_says_nothing_again() {
    traces::keep("observe");
    let clock = clock();
    let store = Arc::new(Reluctant::default());
    let builder = Runtime::builder().clock(clock.clone()).evict_after(Duration::ZERO);
    let runtime = builder.open_store(store.clone()).await.unwrap();
    let from = traces::kept();
    let run = runtime.start("reluctant", sleepy()).await.unwrap();
    while store.released.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    clock.advance(Duration::from_secs(600));
    assert_eq!(run.returned().await.unwrap(), 6);
    let lines = traces::lines_of("reluctant", from);
    assert_eq!(lines.iter().filter(|line| line.contains("awake at")).count(), 4, "{lines:#?}");
}
