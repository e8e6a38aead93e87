//! O-PL-2: too large.
//!
//! The limit counts recorded bytes: of the arguments together, of a result, of a workflow's arguments and its result. What is too large as a
//! signal is in `pl_signals`.

use durable::{Code, EffectContext, Fault};
use serde::{Deserialize, Serialize};

use crate::support::{BOTH, Backend, Bench, World, replays};

const LIMIT: usize = 64 * 1024;

/// Bytes beside the text: codec byte, length, names.
fn recorded<T: Serialize>(value: &T) -> usize {
    durable::Value::encode(value).unwrap().len()
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    kind: String,
    size: Option<u64>,
    limit: Option<u64>,
    text: String,
}

impl From<Fault> for Known {
    fn from(fault: Fault) -> Known {
        let (size, limit) = match &fault {
            Fault::NotRecordable { size, limit, .. } => (*size, *limit),
            _ => (None, None),
        };
        Known { kind: fault.kind().into(), size, limit, text: fault.to_string() }
    }
}

#[durable::effect(idempotent, retry(attempts = 5, first = "1s"))]
async fn give(cx: &EffectContext, #[resource] world: &World, n: usize) -> Result<String, Known> {
    world.note(cx, n);
    Ok("x".repeat(n))
}

#[durable::effect(idempotent, retry(attempts = 5, first = "1s"))]
async fn fail(cx: &EffectContext, #[resource] world: &World, n: usize) -> Result<u32, Known> {
    world.note(cx, n);
    Err(Known { kind: "own".into(), size: None, limit: None, text: "x".repeat(n) })
}

#[durable::effect(idempotent, retry(attempts = 5, first = "1s"))]
async fn take(cx: &EffectContext, #[resource] world: &World, text: String) -> Result<usize, Known> {
    world.note(cx, text.len());
    Ok(text.len())
}

#[durable::workflow]
async fn gives(n: usize) -> Result<usize, Known> {
    Ok(give(n).await?.len())
}

#[durable::workflow]
async fn takes(n: usize) -> Result<usize, Known> {
    take("x".repeat(n)).await
}

#[durable::workflow]
async fn fails(n: usize) -> String {
    fail(n).await.map_or_else(|known| known.kind, |_| String::new())
}

#[durable::workflow]
async fn returns(n: usize) -> String {
    give(1).await.map_or_else(|known| known.text, |_| "x".repeat(n))
}

#[durable::workflow]
async fn is_given(text: String) -> usize {
    text.len()
}

/// The longest text with which something recorded is `LIMIT` bytes.
fn longest(recorded: impl Fn(&str) -> usize) -> usize {
    let around = LIMIT - 200;
    around + LIMIT - recorded(&"x".repeat(around))
}

fn result_of(n: usize) -> usize {
    recorded(&Ok::<_, ()>("x".repeat(n)))
}

#[derive(Serialize)]
struct TextArgument<'a> {
    text: &'a str,
}

async fn bench(backend: Backend) -> Bench {
    Bench::built(backend, |builder| builder.value_bytes_max(LIMIT)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_at_the_limit_is_recorded_and_one_byte_more_is_not() {
    let most = longest(|text| recorded(&Ok::<_, ()>(text)));
    assert_eq!(result_of(most), LIMIT);
    for backend in BOTH {
        let bench = bench(backend).await;
        for n in [1_024, most - 1, most] {
            let run = bench.runtime.start(format!("gives-{n}"), gives(n)).await.unwrap();
            assert_eq!(run.output().await.unwrap(), n);
        }
        bench.replays(&format!("gives-{most}")).await;
        for n in [most + 1, 64 * 1024 * 1024] {
            let id = format!("gives-{n}");
            let before = bench.world.bodies("give");
            let run = bench.runtime.start(&id, gives(n)).await.unwrap();
            let known = run.returned().await.unwrap().unwrap_err();
            let size = result_of(n) as u64;
            assert_eq!((&*known.kind, known.size, known.limit), ("not_recordable", Some(size), Some(LIMIT as u64)));
            for part in ["`give`", &size.to_string(), &LIMIT.to_string(), "its result"] {
                assert!(known.text.contains(part), "{part} is not in {}", known.text);
            }
            assert_eq!(bench.world.bodies("give"), before + 1, "it is not retried as if another time were shorter");
            let bytes: usize = bench.tape(&id).frames.iter().map(|frame| frame.len()).sum();
            assert!(bytes < 4_096, "what is too large is nowhere in the log");
            replays(&bench.tape(&id), &bench.clock, 5).await.unwrap();
        }
        for n in [most, 64 * 1024 * 1024] {
            let id = format!("fails-{n}");
            let run = bench.runtime.start(&id, fails(n)).await.unwrap();
            bench.end(&id).await.unwrap();
            assert_eq!(run.returned().await.unwrap(), "not_recordable", "an error value has the limit as well");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_at_the_limit_are_recorded_and_one_byte_more_never_reach_a_body() {
    let most = longest(|text| recorded(&TextArgument { text }));
    for backend in BOTH {
        let bench = bench(backend).await;
        for n in [1_024, most - 1, most] {
            let run = bench.runtime.start(format!("takes-{n}"), takes(n)).await.unwrap();
            assert_eq!(run.output().await.unwrap(), n);
        }
        let bodies = bench.world.bodies("take");
        for n in [most + 1, 64 * 1024 * 1024] {
            let id = format!("takes-{n}");
            let known = bench.runtime.start(&id, takes(n)).await.unwrap().returned().await.unwrap().unwrap_err();
            let size = recorded(&TextArgument { text: &"x".repeat(n) }) as u64;
            assert_eq!((&*known.kind, known.size, known.limit), ("not_recordable", Some(size), Some(LIMIT as u64)));
            for part in ["`take`", &size.to_string(), &LIMIT.to_string(), "its arguments"] {
                assert!(known.text.contains(part), "{part} is not in {}", known.text);
            }
            let bytes: usize = bench.tape(&id).frames.iter().map(|frame| frame.len()).sum();
            assert!(bytes < 4_096, "what is too large is nowhere in the log");
            replays(&bench.tape(&id), &bench.clock, 5).await.unwrap();
            // Also if the process died before it said so.
            let next = Bench::after(&bench.tape(&id), 2, &bench.clock).await;
            next.end(&id).await.unwrap();
            assert!(next.world.ledger().is_empty());
        }
        assert_eq!(bench.world.bodies("take"), bodies, "no body ran");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_has_the_limit_for_what_it_is_given_and_for_what_it_gives() {
    let most = longest(|text| recorded(&TextArgument { text }));
    let given = longest(|text| recorded(&text));
    for backend in BOTH {
        let bench = bench(backend).await;
        let run = bench.runtime.start("fits", is_given("x".repeat(most))).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), most);
        for n in [most + 1, 64 * 1024 * 1024] {
            let error = bench.runtime.start("too-large", is_given("x".repeat(n))).await.unwrap_err();
            assert_eq!(error.code(), Code::TooLarge);
            let size = recorded(&TextArgument { text: &"x".repeat(n) }).to_string();
            for part in ["workflow is_given", &size, &LIMIT.to_string()] {
                assert!(error.to_string().contains(part), "{part} is not in {error}");
            }
        }
        assert!(bench.runtime.run("too-large").await.unwrap_err().is_not_found());
        let run = bench.runtime.start("given", returns(given)).await.unwrap();
        assert_eq!(run.returned().await.unwrap().len(), given);
        bench.runtime.start("gives", returns(given + 1)).await.unwrap();
        let error = bench.parked("gives").await;
        assert_eq!(error.code(), Code::ResultNotRecordable);
        for part in ["run gives", &(LIMIT + 1).to_string(), &LIMIT.to_string()] {
            assert!(error.to_string().contains(part), "{part} is not in {error}");
        }
        // The next process has a larger limit by default: what was parked goes on with it.
        let bench = bench.reopened().await;
        bench.end("gives").await.unwrap();
        bench.replays("gives").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_a_log_stays_readable_under_a_smaller_limit() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("gives", gives(500_000)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 500_000);
    let run = bench.runtime.start("takes", takes(500_000)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 500_000);
    for id in ["gives", "takes"] {
        let tape = bench.tape(id);
        for cut in 1..tape.frames.len() {
            let next = Bench::after_built(&tape, cut, &bench.clock, |builder| builder.value_bytes_max(1_000)).await;
            next.end(id).await.unwrap();
            let recorded_before = cut >= if id == "gives" { 3 } else { 2 };
            let last = next.log(id).await.pop().unwrap().name;
            assert_eq!(last == "run.completed", recorded_before, "{id} cut at {cut}");
        }
    }
}

#[durable::workflow]
async fn hundred_kib(n: u32) -> Result<usize, Known> {
    Ok(give(100 * 1024 + n as usize % 7).await?.len())
}

/// Ten thousand runs of 100 KiB would be a gigabyte in a test's memory; what counts is that none of them is kept there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_of_large_values_end() {
    let bench = Bench::on(Backend::Memory).await;
    let mut runs = Vec::new();
    for n in 0..500 {
        runs.push(bench.runtime.start(format!("large-{n}"), hundred_kib(n)).await.unwrap());
    }
    for (n, run) in runs.iter().enumerate() {
        assert_eq!(run.output().await.unwrap(), 100 * 1024 + n % 7);
    }
    replays(&bench.tape("large-499"), &bench.clock, 5).await.unwrap();
}
