//! O-OB-2: a run that cannot go on says so: in which state, since when, and what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::UNIX_EPOCH,
};

use durable::{__rt, Attempt, Code, EffectContext, Failure, Filter, RunInfo, Status};

use crate::{
    bench::{BEGINNING, BOTH, Bench, secs},
    world::World,
};

/// The code after a deploy.
static CHANGED: AtomicBool = AtomicBool::new(false);

fn changed() -> bool {
    CHANGED.load(Ordering::Relaxed)
}

#[durable::effect(idempotent)]
async fn step(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::effect(at_most_once)]
async fn doubtful(cx: &EffectContext, #[resource] world: &World) -> u32 {
    world.note(cx, "");
    world.pass("doubtful").await;
    1
}

#[durable::effect(idempotent, retry(attempts = 100, first = "1s", max = "10s"))]
async fn failing(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    Err(Failure::new("no route"))
}

#[durable::workflow]
async fn diverges() -> u32 {
    let first = step(if changed() { 2 } else { 1 }).await;
    durable::sleep(secs(3_600)).await;
    first
}

#[durable::workflow]
async fn panics() -> u32 {
    let n = step(1).await;
    if n == 1 {
        panic!("no tool of that name");
    }
    n
}

#[durable::workflow]
async fn in_doubt() -> u32 {
    doubtful().await
}

#[durable::workflow]
async fn waits() {
    durable::sleep(secs(1_000_000)).await;
}

#[durable::workflow]
async fn retries() -> durable::Result<()> {
    failing().await
}

#[durable::workflow]
async fn fails() -> durable::Result<()> {
    Err(Failure::new("nothing to do"))
}

/// A type that does not take any more what it once gave.
#[derive(serde::Serialize)]
struct Picky(u32);

impl<'de> serde::Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Picky, D::Error> {
        match changed() {
            true => Err(serde::de::Error::custom("an amount needs a currency")),
            false => u32::deserialize(deserializer).map(Picky),
        }
    }
}

#[durable::effect(idempotent)]
async fn pick(cx: &EffectContext, #[resource] world: &World) -> Picky {
    world.note(cx, "");
    Picky(5)
}

#[durable::workflow]
async fn picks() -> u32 {
    let picked = pick().await.0;
    durable::sleep(secs(1_000_000)).await;
    picked
}

#[durable::workflow]
async fn too_long() -> String {
    "x".repeat(3 * 1024 * 1024)
}

#[durable::workflow]
async fn foreign() -> u32 {
    step(1).await;
    elsewhere().await
}

/// Awaits what is no step, behind the attribute's back.
#[durable::part]
async fn elsewhere() -> u32 {
    hidden!();
    1
}

macro_rules! hidden {
    () => {
        tokio::task::yield_now().await
    };
}
use hidden;

async fn all(bench: &Bench) -> BTreeMap<String, RunInfo> {
    let runs = bench.runtime.runs(Filter::all()).await.unwrap();
    runs.into_iter()
        .filter(|run| !run.id.as_str().starts_with("canary"))
        .map(|run| (run.id.as_str().to_owned(), run))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_run_that_stands_says_why_since_when_and_what_to_do() {
    for backend in BOTH {
        CHANGED.store(false, Ordering::Relaxed);
        // The code changes behind the back of its own description: only a run that is replayed finds out.
        let bench = Bench::built(backend, |builder| builder.evict_after(secs(1_000_000_000))).await;
        bench.world.close("doubtful");
        let runtime = &bench.runtime;
        runtime.start("diverged", diverges()).await.unwrap();
        runtime.start("panicked", panics()).await.unwrap();
        runtime.start("doubt", in_doubt()).await.unwrap();
        runtime.start("waiting", waits()).await.unwrap();
        runtime.start("failed", fails()).await.unwrap();
        runtime.start("too long", too_long()).await.unwrap();
        runtime.start("retrying", retries()).await.unwrap();
        runtime.start("foreign", foreign()).await.unwrap();
        runtime.start("undecodable", picks()).await.unwrap();
        bench.until_word("diverged", "sleeping").await;
        bench.until_word("undecodable", "sleeping").await;
        bench.world.until_noted("doubtful", 1).await;
        bench.parked("panicked").await;
        bench.parked("too long").await;
        bench.parked("foreign").await;
        // Its fortieth attempt.
        for bodies in 1..40 {
            bench.world.until_noted("failing", bodies).await;
            bench.until_word("retrying", "retrying").await;
            bench.advance(secs(10)).await;
        }
        bench.world.until_noted("failing", 40).await;
        bench.until_word("retrying", "retrying").await;

        CHANGED.store(true, Ordering::Relaxed);
        let at = UNIX_EPOCH + BEGINNING + secs(390);
        let bench = bench.restarted().await;
        let diverged = bench.parked("diverged").await;
        bench.parked("undecodable").await;
        bench.held("doubt").await;
        bench.parked("panicked").await;
        bench.parked("too long").await;
        bench.parked("foreign").await;
        bench.until_word("retrying", "retrying").await;
        bench.until_word("waiting", "sleeping").await;

        let runs = all(&bench).await;
        assert_eq!(diverged.code, Code::Diverged);
        for text in [
            "seq 1",
            r#"effect.called step[0] [idempotent] {"n":1}"#,
            r#"effect.called step[0] [idempotent] {"n":2}"#,
            "ob_2.rs:",
        ] {
            assert!(diverged.why.contains(text), "{text} in {}", diverged.why);
        }
        assert_eq!(diverged.since, at);
        let Status::Parked(panicked) = &runs["panicked"].status else { panic!() };
        assert_eq!(panicked.code, Code::Panicked);
        assert!(
            panicked.why.contains("no tool of that name") && panicked.why.contains("after step step"),
            "{}",
            panicked.why
        );
        assert_eq!(panicked.since, UNIX_EPOCH + BEGINNING, "since it panicked first");
        let Status::Parked(too_long) = &runs["too long"].status else { panic!() };
        assert_eq!(too_long.code, Code::ResultNotRecordable);
        assert!(too_long.why.contains("3145"), "{}", too_long.why);
        let Status::Parked(undecodable) = &runs["undecodable"].status else { panic!() };
        assert_eq!(undecodable.code, Code::Undecodable);
        assert!(undecodable.why.contains("an amount needs a currency"), "{}", undecodable.why);
        assert!(undecodable.why.contains("pick") && undecodable.why.contains("ob_2.rs:"), "{}", undecodable.why);
        let Status::Parked(foreign) = &runs["foreign"].status else { panic!() };
        assert_eq!(foreign.code, Code::ForeignAwait);
        assert!(foreign.why.contains("after step step"), "{}", foreign.why);
        assert!(matches!(&runs["doubt"].status, Status::Held { steps } if steps.len() == 1));
        assert!(
            matches!(&runs["waiting"].status, Status::Sleeping { until } if *until == UNIX_EPOCH + BEGINNING + secs(1_000_000))
        );
        assert!(
            matches!(&runs["retrying"].status, Status::Retrying { attempt: Attempt(40), at: next, .. } if *next == at + secs(10))
        );
        assert!(matches!(&runs["failed"].status, Status::Failed { message } if message == "nothing to do"));

        // What a person must do something about says what.
        for id in ["diverged", "panicked", "doubt", "too long", "foreign", "undecodable"] {
            assert!(runs[id].status.next_action().is_some_and(|next| next.len() > 10), "{id}");
        }
        for id in ["waiting", "retrying", "failed"] {
            assert_eq!(runs[id].status.next_action(), None, "{id}");
        }
        let words: BTreeSet<_> = runs.values().map(|run| run.status.as_str()).collect();
        assert_eq!(
            words,
            BTreeSet::from(["parked", "held", "sleeping", "retrying", "failed"]),
            "none is said to be running"
        );
        for run in runs.values() {
            assert!(run.since >= run.started_at && run.since <= at, "{run:?}");
        }
        assert_eq!(runs["doubt"].since, UNIX_EPOCH + BEGINNING + secs(300), "its body had five minutes");
        assert_eq!(bench.runtime.runs(Filter::all().status(durable::StatusKind::Parked)).await.unwrap().len(), 5);

        // Whoever waits for one of them is told, and not left waiting.
        for id in ["diverged", "panicked", "too long", "foreign", "undecodable"] {
            let error = crate::bench::refused(bench.runtime.run(id).await.unwrap().returned_as::<u32>().await);
            assert!(error.parked().is_some(), "{id}: {error}");
        }

        // Nothing ran for it, and the old code finds everything as it was.
        assert_eq!(bench.world.bodies("step"), 3);
        CHANGED.store(false, Ordering::Relaxed);
        bench.runtime.retry("diverged").await.unwrap();
        bench.until_word("diverged", "sleeping").await;
        bench.runtime.retry("undecodable").await.unwrap();
        bench.until_word("undecodable", "sleeping").await;
        bench.stands("undecodable").await;
        bench.stands("diverged").await;
        bench.stands("doubt").await;
        bench.replays("failed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_code_is_missing_waits_for_it_and_goes_on_when_it_is_there() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("orphan", unlinked()).await.unwrap();
        bench.until_word("orphan", "sleeping").await;
        let mut bench = bench.restarted().await;
        for _ in 0..3 {
            let status = bench.until_word("orphan", "waiting for code").await;
            let Status::WaitingForCode { workflow, module } = &status else { panic!("{status:?}") };
            assert_eq!((workflow.as_str(), module.as_str()), ("unlinked", module_path!()));
            assert!(status.next_action().unwrap().contains("unlinked"));
            assert!(!status.is_terminal());
            let error = crate::bench::refused(bench.runtime.run("orphan").await.unwrap().returned_as::<u32>().await);
            assert_eq!(error.code(), Code::WaitingForCode);
            assert_eq!(bench.log("orphan").await.len(), 2, "its log can be read and is as it was");
            // A retry finds the code still missing.
            bench.runtime.retry("orphan").await.unwrap();
            bench.until_word("orphan", "waiting for code").await;
            bench = bench.restarted().await;
        }
        bench.until_word("orphan", "waiting for code").await;
        assert_eq!(
            bench.runtime.runs(Filter::unfinished().status(durable::StatusKind::WaitingForCode)).await.unwrap().len(),
            1
        );
        // The code comes with a call of it.
        bench.runtime.start("another", unlinked()).await.unwrap();
        bench.until_word("orphan", "sleeping").await;
        bench.advance(secs(60)).await;
        assert_eq!(bench.end("orphan").await, serde_json::json!(1));
    }
}

/// A workflow that link-time registration does not know, as if it were in another binary.
fn unlinked() -> durable::WorkflowCall<u32> {
    static META: __rt::WorkflowMeta = __rt::WorkflowMeta {
        name: "unlinked",
        explicit_name: false,
        function: "unlinked",
        module: module_path!(),
        file: file!(),
        line: line!(),
        params: &[],
        sites: &SITES,
        returns: || __rt::Returns { fault: None, check: |value| value.decode::<u32>().map(drop), is_result: false },
        run: |_| {
            Ok(Box::pin(async {
                __rt::step(durable::sleep(secs(60)), &SITES[0]).await;
                __rt::Returned { ok: true, value: durable::Value::encode(&1u32), message: String::new() }
            }))
        },
    };
    static SITES: [__rt::Site; 1] = __rt::sites(module_path!(), "unlinked", file!(), [("durable::sleep", line!())]);
    __rt::WorkflowArgs::new(&META).call()
}
