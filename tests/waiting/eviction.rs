//! Runs that wait leave memory, and come back for what they wait for: each alone, and by its own log.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use durable::{
    Reply, RunId, Status, StoreError,
    store::{Store, Write, memory::MemoryStore},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    bench::{BOTH, Backend, Bench, act, doubtful, in_time, look, secs, until},
    counting::replayed,
    odd::Odd,
};

/// Waits in all the ways in which one can wait.
#[durable::workflow]
async fn waits(how: String) -> durable::Result<String> {
    let looked = look(&how).await?;
    let got = match how.as_str() {
        "signal" => durable::signal("go").await,
        "timer" => {
            durable::sleep(secs(3_600)).await;
            "slept".to_owned()
        }
        "question" => durable::ask::<String>("go?").await.granted().unwrap_or_default(),
        "child" => durable::spawn(waits("signal".into())).id("the child").await.await?,
        "hold" => format!("{}", doubtful("wire").await?),
        _ => durable::timeout(secs(60), durable::signal::<String>("go")).await.unwrap_or_else(|_| "too late".into()),
    };
    act(&format!("{how} {looked}: {got}")).await
}

const HOWS: [&str; 6] = ["signal", "timer", "question", "child", "hold", "timeout"];

fn ids(ids: &[&str]) -> BTreeSet<RunId> {
    ids.iter().map(|id| RunId::new(id).unwrap()).collect()
}

async fn all_away(bench: &Bench) {
    for how in HOWS {
        bench.runtime.start(how, waits(how.into())).await.unwrap();
    }
    for how in HOWS.into_iter().chain(["the child"]) {
        bench.until_away(how).await;
    }
}

/// Gives each run what it waits for, and says which were replayed for it.
async fn woken(bench: &Bench) {
    bench.store.take();
    let runtime = &bench.runtime;
    let replays = async |run: &str, with: &[&str]| {
        bench.end(run).await;
        // Whoever asks for the end of a run reads its log for it.
        let read = replayed(&bench.store.take());
        assert_eq!(read, ids(with), "for {run}");
    };
    runtime.signal("signal", "go", "gone").await.unwrap();
    replays("signal", &["signal"]).await;
    runtime.signal("the child", "go", "gone").await.unwrap();
    replays("child", &["child", "the child"]).await;
    // The only question; whoever looks for it reads the logs of all that wait.
    runtime.answer("question:0:ask@0", Reply::granted("granted")).await.unwrap();
    replays("question", &["question"]).await;
    bench.clock.advance(secs(60));
    replays("timeout", &["timeout"]).await;
    bench.clock.advance(secs(3_540));
    replays("timer", &["timer"]).await;
    let holds = runtime.holds().await.unwrap();
    assert_eq!(holds.len(), 1);
    bench.store.take();
    runtime.resolve("hold", holds[0].step, holds[0].attempt, durable::Resolution::run_again()).await.unwrap();
    replays("hold", &["hold"]).await;
    let mut done = bench.outside.done();
    done.retain(|done| done.contains(": "));
    let all = [
        "signal 6: gone",
        "signal 6: gone",
        "child 5: did signal 6: gone",
        "question 8: granted",
        "timeout 7: too late",
        "timer 5: slept",
        "hold 4: 7",
    ];
    assert_eq!(done, all);
    assert_eq!(bench.outside.count("look at signal"), 2, "no look was repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_is_in_no_memory_and_comes_back_for_what_it_waits_for() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        all_away(&bench).await;
        bench.sound().await;
        woken(&bench).await;
        bench.sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_replays_none_that_it_does_not_wake() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        all_away(&bench).await;
        let bench = bench.restarted_built(Duration::ZERO, |builder| builder.evict_after(Duration::ZERO)).await;
        assert_eq!(replayed(&bench.store.take()), ids(&[]));
        bench.sound().await;
        woken(&bench).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_while_no_process_runs_is_done_by_the_next_one() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        all_away(&bench).await;
        let bench = bench.restarted_built(secs(61), |builder| builder.evict_after(Duration::ZERO)).await;
        assert_eq!(bench.end("timeout").await, json!({ "Ok": "did timeout 7: too late" }));
        assert_eq!(replayed(&bench.store.take()), ids(&["timeout"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_stays_in_memory_for_a_while_after_it_has_gone_to_wait() {
    let bench = Bench::built(Backend::Memory, |builder| builder.evict_after(secs(30))).await;
    bench.runtime.start("signal", waits("signal".into())).await.unwrap();
    bench.until("signal", "awaiting signal").await;
    let id = RunId::new("signal").unwrap();
    let waits = || bench.store.run(&id).unwrap().unwrap().wait.is_some();
    bench.clock.advance(secs(29));
    bench.until("signal", "awaiting signal").await;
    assert!(!waits());
    // What it does begins the time anew.
    bench.runtime.signal("signal", "other", &1).await.unwrap();
    bench.clock.advance(secs(1));
    until("it to leave", async || waits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_run_that_is_away_sees_its_end() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("signal", waits("signal".into())).await.unwrap();
        bench.until_away("signal").await;
        let run = bench.run("signal").await;
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let run = run.clone();
                tokio::spawn(async move { run.returned_as::<serde_json::Value>().await })
            })
            .collect();
        // One that does not wait any longer takes nothing from the others.
        waiting[3].abort();
        bench.runtime.signal("signal", "go", "gone").await.unwrap();
        for (n, waiting) in waiting.into_iter().enumerate().filter(|(n, _)| *n != 3) {
            assert!(waiting.await.unwrap().is_ok(), "{n}");
        }
    }
}

/// Claims of runs that were let go of take a while.
fn slow_claims() -> impl Store {
    Odd::new(MemoryStore::new(), |store: &MemoryStore, write, done| {
        let again = match &write {
            Write::Claim { run, .. } => store.run(run).is_ok_and(|run| run.is_some_and(|run| run.wait.is_some())),
            _ => false,
        };
        if again {
            thread::sleep(LEAVING * 3);
        }
        store.submit(write, done);
    })
}

const LEAVING: Duration = Duration::from_millis(5);

/// That a run has left is not written before the run is claimed again; and how often it has left.
fn late_releases() -> (impl Store, watch::Receiver<usize>) {
    let (left, leaves) = watch::channel(0);
    let late = Mutex::new(Vec::new());
    let store = Odd::new(MemoryStore::new(), move |store: &MemoryStore, write, done| match write {
        Write::Release { .. } | Write::Aside { .. } => {
            let releases = matches!(write, Write::Release { .. });
            late.lock().unwrap().push((write, done));
            left.send_modify(|left| *left += usize::from(releases));
        }
        Write::Claim { .. } => {
            let late = std::mem::take(&mut *late.lock().unwrap());
            late.into_iter().chain([(write, done)]).for_each(|(write, done)| store.submit(write, done));
        }
        write => store.submit(write, done),
    });
    (store, leaves)
}

#[durable::workflow]
async fn adds(times: u32) -> u32 {
    let mut sum = 0;
    for _ in 0..times {
        sum += durable::signal::<u32>("go").await;
    }
    sum
}

/// Its record says that it is being replayed, for longer than it is: the process has survived that all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_woken_before_it_is_written_that_it_left_has_not_killed_its_process() {
    const TIMES: u32 = 20;
    let (store, mut left) = late_releases();
    let bench = Bench::over(store).await;
    let run = bench.runtime.start("run", adds(TIMES)).await.unwrap();
    let mut claims = 0;
    for n in 0..TIMES {
        in_time("it to leave", left.wait_for(|left| *left > n as usize)).await.unwrap();
        // Whoever only looks for it, or waits for its end, has not woken it.
        bench.run("run").await;
        let ended = bench.end("run");
        tokio::select! {
            biased;
            _ = ended => panic!("it waits"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        claims += bench.store.take().iter().filter(|(what, _)| *what == "claim").count();
        assert_eq!(claims, n as usize, "one for each signal");
        run.signal("go", &1_u32).await.unwrap();
    }
    assert_eq!(bench.end("run").await, json!(TIMES));
}

/// Takes neither what is said of a run's lives nor messages.
fn without_room() -> impl Store {
    Odd::new(MemoryStore::new(), |store: &MemoryStore, write, done| match write {
        Write::Aside { .. } | Write::Put { .. } => {
            done(Err(StoreError::Refused { reason: "the disk is full".into() }));
        }
        write => store.submit(write, done),
    })
}

#[durable::workflow]
async fn naps(times: u32) -> u32 {
    for _ in 0..times {
        durable::sleep(secs(60)).await;
    }
    times
}

/// What says that a replay is over was refused, and that the run waits was taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_survival_the_store_does_not_note_has_not_killed_its_process() {
    let bench = Bench::over(without_room()).await;
    bench.runtime.start("run", naps(20)).await.unwrap();
    for _ in 0..20 {
        bench.until_away("run").await;
        bench.clock.advance(secs(60));
    }
    assert_eq!(bench.end("run").await, json!(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_store_refuses_is_not_acknowledged_though_its_run_is_made() {
    let bench = Bench::over(without_room()).await;
    let error = bench.runtime.signal_or_start("run", adds(1), "go", &1_u32).await.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_run_that_the_store_lets_nobody_claim_is_told() {
    let poisoned = Arc::new(AtomicBool::new(false));
    let is_so = poisoned.clone();
    let store = Odd::new(MemoryStore::new(), move |store: &MemoryStore, write, done| match write {
        Write::Claim { .. } | Write::Barrier if is_so.load(Ordering::Relaxed) => {
            done(Err(StoreError::Poisoned { reason: "a write failed".into() }));
        }
        write => store.submit(write, done),
    });
    let bench = Bench::over(store).await;
    let run = bench.runtime.start("run", adds(1)).await.unwrap();
    bench.until_away("run").await;
    poisoned.store(true, Ordering::Relaxed);
    bench.runtime.signal("run", "go", &1_u32).await.unwrap();
    let error = in_time("an answer", run.returned()).await.unwrap_err();
    assert!(error.to_string().contains("a write failed"), "{error}");
}

static MENDED: AtomicBool = AtomicBool::new(false);

#[durable::workflow]
async fn panics_until_mended() -> durable::Result<u64> {
    look("oven").await?;
    assert!(MENDED.load(Ordering::Relaxed), "out of cheese");
    doubtful("wire").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_parked_and_has_left_memory_since_is_not_shown_as_parked() {
    let bench = Bench::forgetful(Backend::Sled).await;
    bench.runtime.start("run", panics_until_mended()).await.unwrap();
    bench.until("run", "parked").await;
    MENDED.store(true, Ordering::Relaxed);
    let bench = bench.restarted_built(Duration::ZERO, |builder| builder.evict_after(Duration::ZERO)).await;
    bench.until_away("run").await;
    let held = bench.status("run").await;
    assert!(!matches!(held, Status::Parked(_)), "{held:?}");
    let bench = bench.restarted_built(Duration::ZERO, |builder| builder.evict_after(Duration::ZERO)).await;
    assert_eq!(bench.status("run").await, held);
    assert_eq!(replayed(&bench.store.take()), ids(&["run"]), "to be shown, and for nothing else");
    let holds = bench.runtime.holds().await.unwrap();
    bench.runtime.resolve("run", holds[0].step, holds[0].attempt, durable::Resolution::run_again()).await.unwrap();
    assert_eq!(bench.end("run").await, json!({ "Ok": 7 }));
}

/// So that a run takes a while to leave memory.
struct Heavy;

impl Drop for Heavy {
    fn drop(&mut self) {
        tokio::task::block_in_place(|| thread::sleep(LEAVING));
    }
}

#[durable::workflow]
async fn leaves() -> u32 {
    let _heavy = Heavy;
    for _ in 0..3 {
        durable::sleep(secs(60)).await;
    }
    7
}

/// The task that leaves and the one that comes are one after the other, and whoever follows the run follows both.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_follows_a_run_sees_its_end_if_it_is_woken_just_as_it_leaves() {
    let bench = Bench::over(slow_claims()).await;
    let run = bench.runtime.start("run", leaves()).await.unwrap();
    let mut due = None;
    let mut end = std::pin::pin!(run.returned());
    for _ in 0..3 {
        let left = async {
            while bench.store.run(run.id()).unwrap().unwrap().wait.is_none_or(|wait| wait.due <= due) {
                tokio::task::yield_now().await;
            }
        };
        // From the first time on it is followed.
        tokio::select! {
            biased;
            _ = &mut end => panic!("it has not ended"),
            () = left => {}
        }
        due = bench.store.run(run.id()).unwrap().unwrap().wait.unwrap().due;
        bench.clock.advance(secs(60));
    }
    assert_eq!(tokio::time::timeout(secs(60), end).await.expect("its end is seen").unwrap(), 7);
    assert!(bench.runtime.audit().await.unwrap().is_empty());
}
