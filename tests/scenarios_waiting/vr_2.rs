//! O-VR-2: a deploy strands no run without a word.
//!
//! Another binary is one whose code has another digest: here the store says so of what the runs have left in it. What the new code does
//! is switched by hand.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use durable::{
    __rt, Code, EffectContext, Filter, RunId, StatusKind, StoreError, TestClock,
    store::{Done, RunRecord, Store, Write, memory::MemoryStore},
};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Bench, secs, until},
    counting::{Counting, replayed},
    pass_on::pass_on,
    tape::Image,
    world::World,
};

const RUNS: usize = 20;

/// A store whose runs were all left there by other code.
struct Redeployed(Image);

fn of_other_code(mut record: RunRecord) -> RunRecord {
    if let Some(wait) = &mut record.wait {
        wait.code ^= 1;
    }
    record
}

impl Store for Redeployed {
    pass_on!(0: about, read, rows, published, dump, close);

    fn submit(&self, write: Write, done: Done) {
        self.0.submit(write, done);
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.0.run(run)?.map(of_other_code))
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        let runs = self.0.runs(live, after, most)?;
        Ok(runs.into_iter().map(|(id, record)| (id, of_other_code(record))).collect())
    }
}

/// The code after an incompatible deploy.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// One test at a time: what they switch is one for all.
static DEPLOYS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[durable::effect(idempotent)]
async fn ask_for_approval(cx: &EffectContext, #[resource] world: &World, n: u32) {
    world.note(cx, n);
}

#[durable::effect(idempotent)]
async fn act(cx: &EffectContext, #[resource] world: &World, word: &str) -> String {
    world.note(cx, word);
    format!("acted: {word}")
}

#[durable::workflow]
async fn approval(n: u32) -> String {
    let n = if durable::untracked(|| CHANGED.load(Ordering::Relaxed)) { n + 1_000 } else { n };
    ask_for_approval(n).await;
    let word = durable::signal::<String>("approve").await;
    act(&word).await
}

/// A workflow that link-time registration does not know, as if it were in another binary.
fn removed() -> durable::WorkflowCall<String> {
    static META: __rt::WorkflowMeta = __rt::WorkflowMeta {
        name: "removed",
        explicit_name: false,
        function: "removed",
        module: module_path!(),
        file: file!(),
        line: line!(),
        params: &[],
        sites: &SITES,
        returns: || __rt::Returns { fault: None, check: |value| value.decode::<String>().map(drop), is_result: false },
        run: |_| {
            Ok(Box::pin(async {
                let word = __rt::step(durable::signal::<String>("approve"), &SITES[0]).await;
                __rt::Returned { ok: true, value: durable::Value::encode(&word), message: String::new() }
            }))
        },
    };
    static SITES: [__rt::Site; 1] = __rt::sites(module_path!(), "removed", file!(), [("durable::signal", line!())]);
    __rt::WorkflowArgs::new(&META).call()
}

fn id(n: usize) -> String {
    format!("run {n:02}")
}

/// Twenty runs wait for a signal, out of memory, and their process is gone.
async fn waiting(is_removed: bool) -> Image {
    CHANGED.store(false, Ordering::Relaxed);
    let image = Image::from(Arc::new(MemoryStore::new()));
    let clock = TestClock::at(BEGINNING);
    let bench = Bench::through(image.clone(), World::new(), &clock, |builder| builder).await;
    for n in 0..RUNS {
        match is_removed {
            true => drop(bench.runtime.start(id(n), removed()).await.unwrap()),
            false => drop(bench.runtime.start(id(n), approval(n as u32)).await.unwrap()),
        }
    }
    until("all to wait", async || count(&bench, StatusKind::AwaitingSignal).await == RUNS).await;
    bench.advance(secs(2)).await;
    bench.looked().await;
    for n in 0..RUNS {
        let run = RunId::new(id(n)).unwrap();
        until("it to leave memory", async || bench.store.run(&run).unwrap().unwrap().is_waiting()).await;
    }
    bench.runtime.shutdown(secs(0)).await.unwrap();
    image.reopened()
}

async fn count(bench: &Bench, kind: StatusKind) -> usize {
    bench.runtime.runs(Filter::unfinished().status(kind)).await.unwrap().len()
}

/// The next process.
async fn opened(store: impl Store) -> Bench {
    Bench::through(store, World::new(), &TestClock::at(BEGINNING + secs(86_400)), |builder| builder).await
}

async fn approve(bench: &Bench) {
    for n in 0..RUNS {
        bench.runtime.signal(id(n), "approve", &format!("yes {n}")).await.unwrap();
    }
}

/// All act on their approval, and did before what was done then: nothing runs again.
async fn resume(bench: &Bench) {
    for n in 0..RUNS {
        assert_eq!(bench.end(&id(n)).await, json!(format!("acted: yes {n}")));
    }
    assert_eq!((bench.world.bodies("ask_for_approval"), bench.world.bodies("act")), (0, RUNS));
    bench.replays(&id(0)).await;
    bench.replays(&id(RUNS - 1)).await;
}

#[durable::workflow]
async fn passer_by() -> u32 {
    5
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_of_the_same_code_replays_nobody_and_all_resume() {
    let _one = DEPLOYS.lock().await;
    let image = waiting(false).await;
    let counting = Counting::new(image);
    let bench = opened(counting.clone()).await;
    assert_eq!(bench.runtime.start("passer-by", passer_by()).await.unwrap().returned().await.unwrap(), 5);
    let before = replayed(&counting.take());
    assert!((0..RUNS).all(|n| !before.contains(&RunId::new(id(n)).unwrap())), "{before:?}");
    approve(&bench).await;
    resume(&bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_of_other_code_that_fits_replays_each_once_and_all_resume() {
    let _one = DEPLOYS.lock().await;
    let image = waiting(false).await;
    let counting = Counting::new(Redeployed(image));
    let bench = opened(counting.clone()).await;
    until("all to be replayed", async || {
        let opening = count(&bench, StatusKind::Opening).await;
        opening == 0 && count(&bench, StatusKind::AwaitingSignal).await == RUNS
    })
    .await;
    let asked = counting.take();
    for n in 0..RUNS {
        let run = RunId::new(id(n)).unwrap();
        let claims = asked.iter().filter(|(what, of)| *what == "claim" && of.as_ref() == Some(&run)).count();
        assert_eq!(claims, 1, "{run}");
    }
    approve(&bench).await;
    resume(&bench).await;
}

/// What stands is listed with its reason, and takes signals; with the code that fits it goes on.
async fn stands_until_the_code_is_back(bench: Bench, image: &Image, kind: StatusKind, code: Code) {
    until("all to stand", async || count(&bench, kind).await == RUNS).await;
    assert_eq!(bench.runtime.runs(Filter::unfinished()).await.unwrap().len(), RUNS, "all of them");
    for n in 0..RUNS {
        let status = bench.status(&id(n)).await;
        assert!(status.next_action().is_some(), "{status:?}");
        let run = bench.runtime.run(id(n)).await.unwrap();
        let error = crate::bench::refused(run.returned_as::<String>().await);
        assert_eq!(error.code(), code, "{error}");
    }
    let ledger = bench.world.ledger();
    assert!(ledger.is_empty(), "nothing runs: {ledger:?}");
    approve(&bench).await;
    for n in 0..RUNS {
        let unread = bench.runtime.run(id(n)).await.unwrap().messages().await.unwrap();
        assert_eq!(unread.iter().map(|m| m.value.clone()).collect::<Vec<_>>(), [json!(format!("yes {n}"))]);
        assert_eq!(bench.names(&id(n)).await.last(), Some(&"signal.awaited"), "its log is as it was");
    }
    assert_eq!(image.runs(Some(true), None, 100).unwrap().len(), RUNS);
    bench.runtime.shutdown(secs(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incompatible_deploy_parks_each_with_the_reason_and_keeps_their_signals() {
    let _one = DEPLOYS.lock().await;
    let image = waiting(false).await;
    CHANGED.store(true, Ordering::Relaxed);
    let bench = opened(Redeployed(image.clone())).await;
    until("all to be parked", async || count(&bench, StatusKind::Parked).await == RUNS).await;
    let parked = bench.parked(&id(3)).await;
    for part in ["1003", "ask_for_approval", "vr_2.rs"] {
        assert!(parked.why.contains(part), "{part} is not in {}", parked.why);
    }
    stands_until_the_code_is_back(bench, &image, StatusKind::Parked, Code::Diverged).await;
    CHANGED.store(false, Ordering::Relaxed);
    resume(&opened(Redeployed(image.reopened())).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incompatible_change_that_no_digest_shows_is_found_when_the_signal_comes_and_keeps_it() {
    let _one = DEPLOYS.lock().await;
    let image = waiting(false).await;
    CHANGED.store(true, Ordering::Relaxed);
    let bench = opened(image.clone()).await;
    assert_eq!(count(&bench, StatusKind::AwaitingSignal).await, RUNS);
    approve(&bench).await;
    until("all to be parked", async || count(&bench, StatusKind::Parked).await == RUNS).await;
    assert!(bench.world.ledger().is_empty());
    bench.runtime.shutdown(secs(0)).await.unwrap();
    CHANGED.store(false, Ordering::Relaxed);
    resume(&opened(image.reopened()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_whose_workflow_is_removed_wait_for_it_and_keep_their_signals() {
    let _one = DEPLOYS.lock().await;
    let image = waiting(true).await;
    let bench = opened(Redeployed(image.clone())).await;
    stands_until_the_code_is_back(bench, &image, StatusKind::WaitingForCode, Code::WaitingForCode).await;
    let bench = opened(image.reopened()).await;
    // The code comes with a call of it.
    let run = bench.runtime.start("another", removed()).await.unwrap();
    until("all but that one to end", async || bench.runtime.runs(Filter::unfinished()).await.unwrap().len() == 1).await;
    for n in 0..RUNS {
        assert_eq!(bench.end(&id(n)).await, json!(format!("yes {n}")));
    }
    run.signal("approve", "me too").await.unwrap();
    assert_eq!(run.returned().await.unwrap(), "me too");
}
