//! O-SG-1: a signal to a run that is not there yet.

use std::collections::BTreeSet;

use durable::{Code, RunId};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, refused, secs, until};

#[durable::workflow]
async fn waits() -> String {
    durable::signal("go").await
}

/// Takes so many, and gives them in the order in which they came.
#[durable::workflow]
async fn takes(messages: usize) -> Vec<u32> {
    let mut all = Vec::new();
    while all.len() < messages {
        all.push(durable::signal::<u32>("go").await);
    }
    all
}

#[durable::workflow]
async fn sends(to: String) {
    durable::send(&to, "go", "from a run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_to_an_unknown_id_is_refused_and_leaves_nothing_behind() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let error = refused(bench.runtime.signal("nobody", "go", "lost").await);
        assert_eq!(error.code(), Code::RunNotFound, "{error}");
        assert!(error.is_not_found() && error.to_string().contains("nobody"), "{error}");
        assert!(bench.store.rows(&RunId::new("nobody").unwrap(), 0, 10).unwrap().is_empty());
        // Who is started under that id later waits for another one.
        bench.runtime.start("nobody", waits()).await.unwrap();
        bench.until_word("nobody", "awaiting signal").await;
        bench.stands("nobody").await;
        bench.runtime.signal("nobody", "go", "found").await.unwrap();
        assert_eq!(bench.end("nobody").await, json!("found"));
        bench.replays("nobody").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_may_start_its_run_is_kept_for_it() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.signal_or_start("new", waits(), "go", "along with the start").await.unwrap();
        assert_eq!(run.returned().await.unwrap(), "along with the start");
        bench.replays("new").await;
        // Of a run that is there it is a signal like any other.
        bench.runtime.start("old", takes(2)).await.unwrap();
        bench.runtime.signal("old", "go", &1).await.unwrap();
        let run = bench.runtime.signal_or_start("old", takes(2), "go", &2).await.unwrap();
        assert_eq!(run.returned().await.unwrap(), [1, 2]);
        bench.replays("old").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_run_is_kept_until_its_receiver_is_started() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("sender", sends("receiver".into())).await.unwrap();
        bench.end("sender").await;
        let bench = bench.restarted().await;
        bench.runtime.start("receiver", waits()).await.unwrap();
        assert_eq!(bench.end("receiver").await, json!("from a run"));
        bench.replays("sender").await;
        bench.replays("receiver").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_right_after_start_is_delivered() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for n in 0..50 {
            let run = bench.runtime.start(format!("run {n}"), waits()).await.unwrap();
            run.signal("go", &format!("at once {n}")).await.unwrap();
            assert_eq!(run.returned().await.unwrap(), format!("at once {n}"));
        }
        bench.replays("run 49").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_signals_beside_a_start_are_refused_or_delivered() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let mut signals = tokio::task::JoinSet::new();
        for n in 0..1_000_u32 {
            let runtime = bench.runtime.clone();
            signals.spawn(async move {
                match runtime.signal("run", "go", &n).await {
                    Ok(()) => Some(n),
                    // Not there yet, or it has all that it waits for.
                    Err(e) if e.is_not_found() || e.is_run_ended() => None,
                    Err(e) => panic!("{n}: {e}"),
                }
            });
            if n == 300 {
                let runtime = bench.runtime.clone();
                tokio::spawn(async move { runtime.start("run", takes(500)).await.map(drop).unwrap() });
            }
        }
        let accepted: BTreeSet<u32> = signals.join_all().await.into_iter().flatten().collect();
        let run = loop {
            match bench.runtime.run("run").await {
                Ok(run) => break run,
                Err(e) => assert!(e.is_not_found(), "{e}"),
            }
        };
        // Those that it does not need are there for others.
        for n in accepted.len() as u32..500 {
            run.signal("go", &(2_000 + n)).await.unwrap();
        }
        let taken: Vec<u32> = serde_json::from_value(bench.end("run").await).unwrap();
        let unread = run.messages().await.unwrap();
        let unread: Vec<u32> = unread.iter().map(|message| message.value.as_u64().unwrap() as u32).collect();
        let got: Vec<u32> = taken.iter().chain(&unread).copied().filter(|n| *n < 1_000).collect();
        assert_eq!(taken.len(), 500);
        assert_eq!(got.len(), accepted.len(), "none is lost or doubled");
        assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), accepted);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_a_thousand_starts_with_a_signal_beside_it_ends() {
    let bench = Bench::on(Backend::Memory).await;
    let mut pairs = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let runtime = bench.runtime.clone();
        pairs.spawn(async move {
            let id = format!("run {n}");
            let signal = async {
                loop {
                    match runtime.signal(&id, "go", "go").await {
                        Ok(()) => return,
                        Err(e) if e.is_not_found() => tokio::task::yield_now().await,
                        Err(e) => panic!("{id}: {e}"),
                    }
                }
            };
            let (run, ()) = tokio::join!(runtime.start(&id, waits()), signal);
            run.unwrap().returned().await.unwrap()
        });
    }
    assert!(pairs.join_all().await.iter().all(|word| word == "go"));
    bench.replays("run 999").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_nobody_waits_for_keep_nobody_busy() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", waits()).await.unwrap();
    for n in 0..100 {
        bench.runtime.signal("run", "another name", &n).await.unwrap();
    }
    bench.until_word("run", "awaiting signal").await;
    let frames = bench.count("run", "signal.awaited").await;
    bench.advance(secs(86_400)).await;
    assert_eq!((frames, bench.names("run").await.len()), (1, 2), "nothing is said of them");
    let run = RunId::new("run").unwrap();
    let has_left = async || bench.store.run(&run).unwrap().unwrap().is_waiting();
    until("it to leave memory, whatever lies in its mailbox", has_left).await;
    bench.runtime.signal("run", "go", "now").await.unwrap();
    assert_eq!(bench.end("run").await, json!("now"));
    assert_eq!(bench.runtime.run("run").await.unwrap().messages().await.unwrap().len(), 100);
    bench.replays("run").await;
}
