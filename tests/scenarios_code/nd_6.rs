//! O-ND-6: panics in an effect, in the workflow, in a serializer.

use std::sync::atomic::{AtomicBool, Ordering};

use durable::{Code, EffectContext, Status};
use serde::{Deserialize, Serialize};

use crate::support::{BOTH, Backend, Bench, World, replays};

/// How a body panics.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum With {
    Text,
    Formatted,
    /// Neither `&str` nor `String`.
    Number,
    /// And panics again when it is dropped.
    Bomb,
    /// Text that no log would like to hold.
    Endless,
}

const HOWS: [With; 5] = [With::Text, With::Formatted, With::Number, With::Bomb, With::Endless];
const ENDLESS: usize = 70 * 1024 * 1024;

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload panics as well");
    }
}

fn blow_up(with: With) {
    match with {
        With::Text => panic!("plain text"),
        With::Formatted => panic!("text of {:?}", with),
        With::Number => std::panic::panic_any(7_u64),
        With::Bomb => std::panic::panic_any(Bomb),
        With::Endless => std::panic::panic_any("x".repeat(ENDLESS)),
    }
}

fn text_of(with: With) -> &'static str {
    match with {
        With::Text => "plain text",
        With::Formatted => "text of Formatted",
        With::Number | With::Bomb => "a panic without text",
        With::Endless => "xxxxx",
    }
}

#[durable::effect(idempotent, retry(attempts = 3, first = "1s"))]
async fn shaky(cx: &EffectContext, #[resource] world: &World, with: With, until: u32) -> durable::Result<u32> {
    world.note(cx, format!("{with:?}"));
    if cx.attempt() <= until {
        blow_up(with);
    }
    Ok(cx.attempt())
}

/// The same on the pool for code that blocks.
#[durable::effect(idempotent, retry(attempts = 3, first = "1s"))]
fn shaky_blocking(cx: &EffectContext, #[resource] world: &World, with: With, until: u32) -> durable::Result<u32> {
    world.note(cx, format!("{with:?}"));
    if cx.attempt() <= until {
        blow_up(with);
    }
    Ok(cx.attempt())
}

#[durable::effect(at_most_once)]
async fn pay(cx: &EffectContext, #[resource] world: &World, with: With) -> durable::Result<u32> {
    world.note(cx, format!("{with:?}"));
    blow_up(with);
    Ok(1)
}

#[durable::effect(idempotent)]
async fn healthy(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn bodies_panic(with: With, until: u32) -> durable::Result<u32> {
    let n = shaky(with, until).await?;
    Ok(n + shaky_blocking(with, until).await?)
}

#[durable::workflow]
async fn pays(with: With) -> durable::Result<u32> {
    pay(with).await
}

/// While true, workflows blow up.
static ARMED: AtomicBool = AtomicBool::new(true);

#[durable::workflow]
async fn code_panics(with: With) -> u32 {
    let a = healthy(1).await;
    if ARMED.load(Ordering::SeqCst) {
        blow_up(with);
    }
    a + healthy(2).await
}

#[durable::workflow]
async fn fine(n: u32) -> u32 {
    healthy(n).await + healthy(n).await
}

/// Healthy runs beside the sick one.
async fn crowd(bench: &Bench) -> Vec<durable::Run<u32>> {
    let mut runs = Vec::new();
    for n in 0..20 {
        runs.push(bench.runtime.start(format!("fine-{n}"), fine(n)).await.unwrap());
    }
    runs
}

async fn all_fine(runs: Vec<durable::Run<u32>>) {
    for (n, run) in runs.into_iter().enumerate() {
        assert_eq!(run.returned().await.unwrap(), 2 * n as u32);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_panics_is_a_failed_attempt() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let runs = crowd(&bench).await;
        for with in HOWS {
            let id = format!("shaky-{with:?}");
            let run = bench.runtime.start(&id, bodies_panic(with, 2)).await.unwrap();
            bench.end(&id).await.unwrap();
            assert_eq!(run.output().await.unwrap(), 6);
            let log = bench.log(&id).await;
            let failed: Vec<_> = log.iter().filter(|entry| entry.name == "effect.failed").collect();
            assert_eq!(failed.len(), 4);
            for entry in failed {
                let text = entry.to_string();
                assert!(text.contains(text_of(with)), "{with:?}: {}", &text[..text.len().min(300)]);
                assert!(text.len() < 20_000, "a text of 70 MiB is not for a log");
            }
            replays(&bench.tape(&id), &bench.clock, 3).await.unwrap();
        }
        bench.replays("shaky-Bomb").await;
        all_fine(runs).await;
        assert_eq!(bench.world.bodies("shaky"), 3 * HOWS.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_used_up_by_panics_are_an_error_with_the_text() {
    let bench = Bench::on(Backend::Memory).await;
    for with in HOWS {
        let id = format!("used-up-{with:?}");
        let run = bench.runtime.start(&id, bodies_panic(with, 9)).await.unwrap();
        bench.end(&id).await.unwrap();
        let error = run.output().await.unwrap_err();
        assert_eq!(error.code(), Code::RunFailed);
        assert!(error.to_string().contains(text_of(with)));
        assert!(error.to_string().contains("3 attempts are used up for `shaky`"));
        replays(&bench.tape(&id), &bench.clock, 3).await.unwrap();
    }
    assert_eq!(bench.world.bodies("shaky"), 3 * HOWS.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_panics_is_in_doubt_and_says_so() {
    for with in HOWS {
        let bench = Bench::on(Backend::Memory).await;
        bench.runtime.start("pays", pays(with)).await.unwrap();
        bench.until_status("pays", "held", |status| matches!(status, Status::Held { .. })).await;
        let holds = bench.runtime.holds().await.unwrap();
        assert!(holds[0].reason.starts_with("it panicked: ") && holds[0].reason.contains(text_of(with)));
        assert!(holds[0].reason.len() < 20_000);
        bench.stands("pays").await;
        let resolution = durable::Resolution::succeeded(5_u32);
        bench.runtime.resolve("pays", holds[0].step, holds[0].attempt, resolution).await.unwrap();
        bench.end("pays").await.unwrap();
        assert_eq!(bench.world.bodies("pay"), 1);
        replays(&bench.tape("pays"), &bench.clock, 3).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_panics_parks_its_run_only() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let runs = crowd(&bench).await;
        for with in HOWS {
            let id = format!("code-{with:?}");
            bench.runtime.start(&id, code_panics(with)).await.unwrap();
            let error = bench.parked(&id).await;
            assert_eq!(error.code(), Code::Panicked);
            let text = error.to_string();
            for part in [&format!("run {id} is parked"), text_of(with), "after step healthy (", "nd_6.rs:"] {
                assert!(text.contains(part), "{part} is not in {}", &text[..text.len().min(500)]);
            }
            assert!(text.len() < 20_000);
            // The effect before it is not repeated, by no number of restarts.
            for _ in 0..3 {
                bench.stands(&id).await;
            }
        }
        all_fine(runs).await;
        // The store takes new runs, in this process and in the next.
        assert_eq!(bench.runtime.start("later", fine(3)).await.unwrap().returned().await.unwrap(), 6);
        let bench = bench.reopened().await;
        assert_eq!(bench.parked("code-Text").await.code(), Code::Panicked);
        assert_eq!(bench.runtime.start("later still", fine(4)).await.unwrap().returned().await.unwrap(), 8);
        assert_eq!(bench.world.inputs("healthy"), ["4", "4"]);
    }
}

/// Its own test's switch.
static DISARMED_LATER: AtomicBool = AtomicBool::new(true);

#[durable::workflow]
async fn mended_later() -> u32 {
    let a = healthy(1).await;
    assert!(!DISARMED_LATER.load(Ordering::SeqCst), "not mended yet");
    a + healthy(2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mended_code_goes_on_where_it_panicked() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("mended", mended_later()).await.unwrap();
    assert!(bench.parked("mended").await.to_string().contains("not mended yet"));
    bench.runtime.retry("mended").await.unwrap();
    assert!(bench.parked("mended").await.to_string().contains("not mended yet"));
    DISARMED_LATER.store(false, Ordering::SeqCst);
    bench.runtime.retry("mended").await.unwrap();
    bench.end("mended").await.unwrap();
    assert_eq!(bench.world.inputs("healthy"), ["1", "2"]);
    bench.replays("mended").await;
}

/// What panics when it is written, or read back, or dropped.
#[derive(Debug)]
struct Touchy(u32);

impl Serialize for Touchy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 != 13, "the serializer panics at 13");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let n = u32::deserialize(deserializer)?;
        assert!(n != 14, "the deserializer panics at 14");
        Ok(Touchy(n))
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(self.0 != 15 || std::thread::panicking(), "the drop panics at 15");
    }
}

#[durable::effect(idempotent)]
async fn touchy(cx: &EffectContext, #[resource] world: &World, n: u32) -> durable::Result<Touchy> {
    world.note(cx, n);
    Ok(Touchy(n))
}

#[durable::workflow]
async fn takes_touchy(n: u32) -> String {
    match touchy(n).await {
        Ok(touchy) => {
            let n = touchy.0;
            std::mem::forget(touchy);
            format!("got {n}")
        }
        Err(failure) => format!("{}: {failure}", failure.kind().unwrap_or("?")),
    }
}

#[durable::workflow]
async fn gives_touchy(n: u32) -> Touchy {
    healthy(n).await;
    Touchy(n)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_whose_serializer_panics_is_not_recordable_and_its_body_is_not_repeated() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let runs = crowd(&bench).await;
        for (n, word) in [(12, "got 12"), (13, "the serializer panics at 13"), (14, "the deserializer panics at 14")] {
            let id = format!("touchy-{n}");
            let run = bench.runtime.start(&id, takes_touchy(n)).await.unwrap();
            let out = run.returned().await.unwrap();
            assert!(out.contains(word), "{out}");
            assert!(n == 12 || out.starts_with("not_recordable"), "{out}");
            bench.replays(&id).await;
        }
        // A body's value that panics when it is dropped: a failed body, for it did not return.
        bench.runtime.start("touchy-15", takes_touchy(15)).await.unwrap();
        bench.end("touchy-15").await.unwrap();
        all_fine(runs).await;
        assert_eq!(bench.world.bodies("touchy"), 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_result_whose_serializer_panics_parks_the_run() {
    let bench = Bench::on(Backend::Memory).await;
    for (n, word) in [(13, "the serializer panics at 13"), (14, "the deserializer panics at 14")] {
        let id = format!("gives-{n}");
        bench.runtime.start(&id, gives_touchy(n)).await.unwrap();
        let error = bench.parked(&id).await;
        assert!(error.to_string().contains(word), "{error}");
        assert!([Code::ResultNotRecordable, Code::Panicked].contains(&error.code()));
        bench.stands(&id).await;
    }
}
