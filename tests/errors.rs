//! The page of errors says of each code what the code says, and each error's text has what one needs to act.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use durable::{Attempt, Code, EffectContext, Error, Reply, Resolution, Runtime, Status, StatusKind, StepNo};

const PAGE: &str = include_str!("../docs/errors.md");

/// What is wrong with a page: codes that it lacks, has twice, or that are none; and sections without cause or remedy.
fn mistakes(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut sections: BTreeMap<String, &str> = BTreeMap::new();
    for section in page.split("\n### ").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
        let text = text.split("\n## ").next().unwrap_or(text);
        if sections.insert(heading.trim().to_owned(), text).is_some() {
            found.push(format!("{heading} is there twice"));
        }
        let meaning = text.split("- **").next().unwrap_or_default().trim();
        if meaning.is_empty() {
            found.push(format!("{heading} does not say what it means"));
        }
        for part in ["Cause", "Remedy"] {
            let told = text.split(&format!("- **{part}**: ")).nth(1).unwrap_or_default();
            if told.split("- **").next().unwrap_or_default().trim().is_empty() {
                found.push(format!("{heading} has no {}", part.to_lowercase()));
            }
        }
    }
    let known: Vec<String> = Code::ALL.iter().map(|code| format!("{code} {code:?}")).collect();
    found.extend(known.iter().filter(|code| !sections.contains_key(*code)).map(|code| format!("{code} is missing")));
    found.extend(
        sections.keys().filter(|heading| !known.contains(heading)).map(|heading| format!("{heading} is no code")),
    );
    found
}

#[test]
fn the_page_has_every_code_and_no_other() {
    assert_eq!(mistakes(PAGE), Vec::<String>::new());
}

#[test]
fn a_doctored_page_is_found_out() {
    let doctored = |from: &str, to: &str| {
        assert!(PAGE.contains(from));
        mistakes(&PAGE.replacen(from, to, 1))
    };
    assert_eq!(
        doctored("### DUR-0011 Diverged", "### DUR-0911 Diverged"),
        ["DUR-0011 Diverged is missing", "DUR-0911 Diverged is no code"]
    );
    assert_eq!(
        doctored("DUR-0012 Panicked", "DUR-0012 Panics"),
        ["DUR-0012 Panicked is missing", "DUR-0012 Panics is no code"]
    );
    assert_eq!(doctored("### DUR-0030 StoreInUse", "### DUR-0031 StoreDamaged").len(), 2);
    assert_eq!(doctored("- **Cause**: a wrong path", "a wrong path"), ["DUR-0032 NotAStore has no cause"]);
    assert_eq!(
        doctored("- **Remedy**: look at `Runtime::holds`, or `durable holds`.", ""),
        ["DUR-0051 NotInDoubt has no remedy"]
    );
    assert_eq!(doctored("The text is no run id.\n", "\n"), ["DUR-0001 InvalidRunId does not say what it means"]);
}

#[test]
fn codes_are_told_apart_by_number_and_shown_with_four_digits() {
    let texts: std::collections::BTreeSet<_> = Code::ALL.iter().map(Code::to_string).collect();
    assert_eq!(texts.len(), Code::ALL.len());
    assert!(texts.iter().all(|text| text.len() == 8 && text.starts_with("DUR-")));
}

// ---- errors made for real ----

struct Wire;

#[durable::effect(at_most_once)]
async fn wire(cx: &EffectContext, #[resource] wire: &Wire, cents: u64) -> durable::Result<u64> {
    let _ = (wire, cents);
    Err(cx.in_doubt("no answer"))?
}

#[durable::effect(idempotent)]
async fn plain(n: u32) -> u32 {
    assert!(n != 13, "thirteen");
    n
}

#[durable::workflow]
async fn pays(cents: u64) -> durable::Result<u64> {
    wire(cents).await
}

#[durable::workflow]
async fn other(cents: u64) -> durable::Result<u64> {
    Ok(cents)
}

#[durable::workflow]
async fn texts(text: String) -> durable::Result<usize> {
    match text.as_str() {
        "fail" => Err(durable::Failure::new("declined").with_value(&51)),
        "panic" => panic!("out of cheese"),
        "large" => Ok(plain(1).await as usize),
        _ => Ok(text.len()),
    }
}

#[durable::workflow]
async fn large(n: usize) -> String {
    "x".repeat(n)
}

#[durable::workflow]
async fn nested(value: Option<Option<u32>>) -> Option<Option<u32>> {
    value
}

#[durable::workflow]
async fn unlucky(n: u32) -> u32 {
    plain(n).await
}

static CHANGED: AtomicBool = AtomicBool::new(false);

#[durable::workflow]
async fn changes(n: u32) -> durable::Result<u64> {
    let before = plain(n).await;
    if CHANGED.load(Ordering::SeqCst) {
        plain(n + 1).await;
    }
    wire(before.into()).await
}

/// Waits for a message, or for a person.
#[durable::workflow]
async fn waits(asks: bool) -> durable::Result<u64> {
    durable::publish("so far", "nothing").await;
    match asks {
        true => Ok(durable::ask::<u64>(durable::Question::new("pay?").by(["ann"])).await.granted().unwrap_or_default()),
        false => Ok(durable::signal("n").await),
    }
}

/// Hides an await from the attribute.
macro_rules! hidden {
    ($future:expr) => {
        $future.await
    };
}

#[durable::workflow]
async fn foreign(n: u32) -> u32 {
    let m = plain(n).await;
    hidden!(tokio::task::yield_now());
    m
}

async fn opened() -> Runtime {
    Runtime::builder().resource(Wire).value_bytes_max(4_096).open_in_memory().await.unwrap()
}

/// The code, and that the text has each part; and how an error's text is written.
fn check(error: &Error, code: Code, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(!text.ends_with('.'), "a fragment without a full stop: {text}");
    assert!(text.starts_with(|c: char| !c.is_uppercase()), "{text}");
    let words = text.strip_suffix(&format!(" ({code})")).expect("the code stands behind the text");
    assert_eq!(format!("{error:?}"), format!("{code}: {words}"));
}

#[tokio::test]
async fn errors_of_a_call_name_what_was_given_and_what_to_give() {
    let runtime = opened().await;
    check(&runtime.start("", pays(1)).await.unwrap_err(), Code::InvalidRunId, &["empty", "1 to 512 bytes"]);
    let long = "x".repeat(513);
    check(&runtime.run(&long).await.unwrap_err(), Code::InvalidRunId, &["513 bytes", "1 to 512 bytes"]);
    let none = runtime.run("nobody").await.unwrap_err();
    check(&none, Code::RunNotFound, &["no run nobody", "start it"]);
    assert!(none.is_not_found());
    runtime.start("pays", pays(1)).await.unwrap();
    let conflict = runtime.start("pays", pays(2)).await.unwrap_err();
    check(
        &conflict,
        Code::OtherArguments,
        &["run pays", "workflow pays", "{\"cents\":1}", "{\"cents\":2}", "another run id"],
    );
    assert!(conflict.is_conflict());
    let conflict = runtime.start("pays", other(1)).await.unwrap_err();
    check(&conflict, Code::OtherWorkflow, &["run pays", "workflow pays", "with other", "another run id"]);
    assert!(conflict.is_conflict());
    let refused = runtime.start("nested", nested(Some(None))).await.unwrap_err();
    check(&refused, Code::ArgumentNotRecordable, &["workflow nested", "`value`", "pass what"]);
    let large = runtime.start("large", texts("x".repeat(5_000))).await.unwrap_err();
    check(&large, Code::TooLarge, &["workflow texts", "5", "4096", "pass a reference"]);
    runtime.shutdown(Duration::ZERO).await.unwrap();
    check(&runtime.start("late", pays(1)).await.unwrap_err(), Code::Closed, &["shut down", "open the store again"]);
}

#[tokio::test]
async fn errors_of_a_run_name_it_and_the_reason_and_the_next_action() {
    let runtime = opened().await;
    let failed = runtime.start("failed", texts("fail".into())).await.unwrap().output().await.unwrap_err();
    check(&failed, Code::RunFailed, &["run failed failed: declined"]);
    assert!(failed.is_run_failed() && failed.parked().is_none());
    assert_eq!(failed.failure().unwrap()["value"], 51);

    let parked = |error: &Error| {
        let parked = error.parked().expect("it is parked");
        assert_eq!(parked.code, error.code());
        let text = error.to_string();
        assert!(
            text.contains(&parked.why)
                && text.ends_with(&format!("{} ({})", parked.next, parked.code))
                && !parked.next.is_empty()
        );
    };
    let panicked = runtime.start("sick", texts("panic".into())).await.unwrap().output().await.unwrap_err();
    check(
        &panicked,
        Code::Panicked,
        &["run sick is parked", "panicked", "out of cheese", "before its first step", "retry"],
    );
    parked(&panicked);
    let fault = runtime.start("thirteen", unlucky(13)).await.unwrap().returned().await.unwrap_err();
    check(&fault, Code::FaultNotTaken, &["run thirteen", "plain", "errors.rs:", "thirteen", "From<durable::Fault>"]);
    parked(&fault);
    let large = runtime.start("huge", large(5_000)).await.unwrap().returned().await.unwrap_err();
    check(
        &large,
        Code::ResultNotRecordable,
        &["run huge", "5004 bytes", "4096", "return a value that can be recorded"],
    );
    parked(&large);
    let foreign = runtime.start("foreign", foreign(1)).await.unwrap().returned().await.unwrap_err();
    check(
        &foreign,
        Code::ForeignAwait,
        &["run foreign", "no step", "after step plain", "errors.rs:", "into an effect"],
    );
    parked(&foreign);
    let run = runtime.start("typed", unlucky(1)).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 1);
    let typed = runtime.run("typed").await.unwrap().returned_as::<Vec<String>>().await.unwrap_err();
    check(&typed, Code::OtherType, &["run typed", "Vec", "ask for what its workflow returns"]);
    let info = runtime.run("sick").await.unwrap().status().await.unwrap();
    assert!(matches!(&info, Status::Parked(parked) if parked.code == Code::Panicked));
    assert_eq!(info.next_action().unwrap(), panicked.parked().unwrap().next);
}

#[tokio::test]
async fn errors_of_a_persons_word_name_run_step_and_attempt() {
    let runtime = opened().await;
    runtime.start("pays", pays(1)).await.unwrap();
    let hold = loop {
        if let Some(hold) = runtime.holds().await.unwrap().pop() {
            break hold;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let say = async |step, attempt, word| runtime.resolve("pays", step, attempt, word).await;
    let stale = say(hold.step, Attempt(7), Resolution::run_again()).await.unwrap_err();
    check(&stale, Code::StaleAttempt, &["run pays, step 0", "attempt 7", "attempt 1", "Runtime::holds"]);
    let none = say(StepNo(5), hold.attempt, Resolution::run_again()).await.unwrap_err();
    check(&none, Code::NotInDoubt, &["run pays, step 5", "held", "Runtime::holds"]);
    let unfit = say(hold.step, hold.attempt, Resolution::succeeded("much")).await.unwrap_err();
    check(&unfit, Code::ValueDoesNotFit, &["run pays", "effect wire", "expected u64", "give one of its type"]);
    check(&runtime.retry("pays").await.unwrap_err(), Code::NotParked, &["run pays", "it is held"]);
    say(hold.step, hold.attempt, Resolution::succeeded(3_u64)).await.unwrap();
    assert_eq!(runtime.run("pays").await.unwrap().returned_as::<durable::Result<u64>>().await.unwrap().unwrap(), 3);
    let late = say(hold.step, hold.attempt, Resolution::succeeded(3_u64)).await.unwrap_err();
    check(&late, Code::NotInDoubt, &["run pays, step 0", "completed"]);
    check(&runtime.retry("pays").await.unwrap_err(), Code::NotParked, &["run pays", "completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_about_waiting_runs_name_the_run_or_the_question_and_what_can_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("store");
    let builder = Runtime::builder().resource(Wire).value_bytes_max(4_096).evict_after(Duration::from_secs(3_600));
    let runtime = builder.open(&place).await.unwrap();
    let run = runtime.start("waits", waits(false)).await.unwrap();
    check(&runtime.signal("nobody", "n", &1).await.unwrap_err(), Code::RunNotFound, &["no run nobody"]);
    let none = Some(None::<u64>);
    check(&run.signal("n", &none).await.unwrap_err(), Code::ArgumentNotRecordable, &["signal \"n\"", "give what"]);
    check(&run.signal("n", &"x".repeat(5_000)).await.unwrap_err(), Code::TooLarge, &["signal \"n\"", "4096"]);
    check(
        &runtime.remove("waits").await.unwrap_err(),
        Code::RunUnfinished,
        &["run waits", "has not ended", "cancel it first"],
    );
    check(&run.log_of(1).await.unwrap_err(), Code::LogNotFound, &["run waits", "no log 1", "newest is log 0"]);
    while run.status().await.unwrap().kind() != StatusKind::AwaitingSignal {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    check(
        &run.signal("n", "one").await.unwrap_err(),
        Code::SignalDoesNotFit,
        &["run waits", "\"n\"", "u64", "nothing was sent"],
    );
    run.signal("n", &1).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 1);
    let ended = run.signal("n", &2).await.unwrap_err();
    check(&ended, Code::RunEnded, &["run waits", "completed", "start another"]);
    assert!(ended.is_run_ended() && !ended.is_not_found());
    check(&run.published::<u64>("so far").await.unwrap_err(), Code::OtherType, &["run waits", "\"so far\"", "u64"]);

    runtime.start("asks", waits(true)).await.unwrap();
    while runtime.questions().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let token = runtime.questions().await.unwrap().remove(0).token;
    let answer = async |token: &str, reply: Reply| runtime.answer(token, reply).by("ann").await;
    check(
        &answer("asks:0", Reply::refused("")).await.unwrap_err(),
        Code::QuestionNotFound,
        &["\"asks:0\"", "Runtime::questions"],
    );
    let other = runtime.answer(&token, Reply::refused("")).by("bob").await.unwrap_err();
    check(&other, Code::MayNotAnswer, &[&token, "\"bob\"", "ann"]);
    check(
        &answer(&token, Reply::granted("one")).await.unwrap_err(),
        Code::AnswerDoesNotFit,
        &[&token, "u64", "string"],
    );
    runtime.shutdown(Duration::ZERO).await.unwrap();

    let observer = Runtime::builder().observe(&place).await.unwrap();
    let asks = observer.run("asks").await.unwrap();
    let output = asks.returned_as::<serde_json::Value>().await.unwrap_err();
    check(&output, Code::Observing, &["run asks", "observes", "open the store"]);
    let stands = asks.cancel("enough").await.unwrap_err();
    check(&stands, Code::NotCancelledYet, &["run asks", "the request stands"]);
    observer.shutdown(Duration::ZERO).await.unwrap();

    let runtime = Runtime::builder().resource(Wire).open(&place).await.unwrap();
    let cancelled = runtime.run("asks").await.unwrap().returned_as::<serde_json::Value>().await.unwrap_err();
    check(&cancelled, Code::RunCancelled, &["run asks", "by a person: enough"]);
    assert!(cancelled.is_run_cancelled());
    let closed = runtime.answer(&token, Reply::refused("")).by("ann").await.unwrap_err();
    check(&closed, Code::QuestionClosed, &[&token]);
    assert_eq!(closed.answered_by(), None);
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_a_store_name_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("store");
    let open = async || Runtime::builder().resource(Wire).open(&place).await;
    let runtime = open().await.unwrap();
    let named = place.display().to_string();
    let pid = std::process::id().to_string();
    check(&open().await.unwrap_err(), Code::StoreInUse, &[&named, &pid]);
    // A divergence over a restart, in the same place.
    runtime.start("changes", changes(1)).await.unwrap();
    while runtime.holds().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    runtime.shutdown(Duration::ZERO).await.unwrap();
    CHANGED.store(true, Ordering::SeqCst);
    let runtime = open().await.unwrap();
    let run = runtime.run("changes").await.unwrap();
    let diverged = run.returned_as::<serde_json::Value>().await.unwrap_err();
    let both = [
        "run changes",
        "wire[0] [at_most_once] {\"cents\":1}",
        "plain[1] [idempotent] {\"n\":2}",
        "errors.rs:",
        "durable::version",
    ];
    check(&diverged, Code::Diverged, &both);
    runtime.shutdown(Duration::ZERO).await.unwrap();

    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("letter.txt"), "no store").unwrap();
    let error = Runtime::builder().resource(Wire).open(other.path()).await.unwrap_err();
    check(&error, Code::NotAStore, &[&other.path().display().to_string()]);
    let file = other.path().join("letter.txt");
    let error = Runtime::builder().resource(Wire).open(&file).await.unwrap_err();
    assert!([Code::NotAStore, Code::StorageFailed].contains(&error.code()), "{error:?}");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
}

#[tokio::test]
async fn a_missing_resource_is_named_with_who_needs_it() {
    let error = Runtime::builder().open_in_memory().await.unwrap_err();
    check(&error, Code::MissingResources, &["Wire", "effect wire", "errors.rs:", "Runtime::builder().resource(..)"]);
}
