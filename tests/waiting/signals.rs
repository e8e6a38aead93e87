//! Messages from outside: O-SG-1 to O-SG-4, and what their values are.

use durable::{Code, StatusKind, StepState};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, act, in_time, refused, secs, stubborn, until};

#[durable::workflow]
async fn one() -> durable::Result<u64> {
    Ok(durable::signal("n").await)
}

#[durable::workflow]
async fn all_there() -> durable::Result<Vec<u64>> {
    Ok(durable::signals("n").await)
}

/// Is busy for a while, then takes ten.
#[durable::workflow]
async fn ten() -> durable::Result<Vec<u64>> {
    stubborn("work").await?;
    let mut taken = Vec::new();
    for _ in 0..10 {
        taken.push(durable::signal("n").await);
    }
    Ok(taken)
}

/// Two payments, the second within five seconds.
#[durable::workflow]
async fn payments() -> durable::Result<(String, Option<String>)> {
    let first = durable::signal("pay").await;
    let second = durable::timeout(secs(5), durable::signal("pay")).await.ok();
    Ok((first, second))
}

#[durable::workflow]
async fn returns(fail: bool) -> durable::Result<u64> {
    act("return").await?;
    if fail { Err(durable::Failure::new("no luck")) } else { Ok(1) }
}

/// Hears the first words before it does anything.
#[durable::workflow]
async fn listens() -> durable::Result<(Vec<String>, String)> {
    let first = durable::signals("word").await;
    Ok((first, durable::signal("word").await))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_run_that_is_not_there_is_refused_and_one_right_after_its_start_is_taken() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let early = refused(bench.runtime.signal("run", "n", &1).await, Code::RunNotFound);
        assert!(early.is_not_found() && early.to_string().contains("run"));
        let run = bench.runtime.start("run", one()).await.unwrap();
        run.signal("n", &2).await.unwrap();
        assert_eq!(run.output().await.unwrap(), 2, "the refused one was not kept");
        assert!(run.messages().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_started_with_a_message_has_it_before_it_first_looks() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.signal_or_start("run", listens(), "word", "hello").id("w-1").await.unwrap();
        // To one that is there it is only a message, and the same id is the same message.
        bench.runtime.signal_or_start("run", listens(), "word", "hello").id("w-1").await.unwrap();
        until("the first word", async || bench.names("run").await.contains(&"signal.received")).await;
        bench.runtime.signal_or_start("run", listens(), "word", "bye").id("w-2").await.unwrap();
        assert_eq!(in_time("the run", run.output()).await.unwrap(), (vec!["hello".to_owned()], "bye".to_owned()));
        let over = bench.runtime.signal_or_start("run", listens(), "word", "more").await.map(drop);
        assert!(refused(over, Code::RunEnded).is_run_ended());
        assert!(run.messages().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_refused_sends_nothing() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", one()).await.unwrap();
    let other = bench.runtime.signal_or_start("run", all_there(), "n", &1).await.map(drop);
    refused(other, Code::OtherWorkflow);
    assert!(bench.run("run").await.messages().await.unwrap().is_empty());
    assert_eq!(bench.until("run", "awaiting signal").await.kind(), StatusKind::AwaitingSignal);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_that_was_accepted_while_its_run_was_started_is_taken_once() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let sends: Vec<_> = (0..200u64)
            .map(|n| {
                let runtime = bench.runtime.clone();
                tokio::spawn(async move {
                    match n % 2 {
                        0 => runtime.signal("run", "n", &n).await.map(|()| n),
                        _ => runtime.signal_or_start("run", takes_until(1_000), "n", &n).await.map(|_| n),
                    }
                })
            })
            .collect();
        let mut accepted = vec![1_000];
        for send in sends {
            match in_time("an answer", send).await.unwrap() {
                Ok(n) => accepted.push(n),
                Err(error) => assert!(error.is_not_found(), "{error}"),
            }
        }
        assert!(accepted.len() > 100, "whoever starts it is not refused");
        bench.runtime.signal("run", "n", &1_000).await.unwrap();
        let mut taken: Vec<u64> = serde_json::from_value(bench.end("run").await["Ok"].take()).unwrap();
        taken.sort_unstable();
        accepted.sort_unstable();
        assert_eq!(taken, accepted);
    }
}

#[durable::workflow]
async fn takes_until(last: u64) -> durable::Result<Vec<u64>> {
    let mut taken = Vec::new();
    while !taken.contains(&last) {
        taken.push(durable::signal("n").await);
    }
    Ok(taken)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_come_while_the_run_is_busy_are_taken_in_their_order() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("run", ten()).await.unwrap();
        bench.outside.until_done("begin work").await;
        for n in 1..=10u64 {
            run.signal("n", &n).await.unwrap();
            run.signal("other", &format!("other {n}")).await.unwrap();
        }
        let unread = run.messages().await.unwrap();
        assert_eq!(unread.len(), 20);
        assert_eq!((&*unread[0].name, &unread[0].value, unread[0].sent_at), ("n", &json!(1), bench.now()));
        assert!(unread.iter().all(|message| message.id.len() == 32));
        bench.outside.open();
        assert_eq!(in_time("the run", run.output()).await.unwrap(), (1..=10).collect::<Vec<_>>());
        let unread = run.messages().await.unwrap();
        assert!(unread.len() == 10 && unread.iter().all(|message| message.name == "other"), "{unread:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_outlive_the_process_whether_or_not_somebody_waits() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", takes_until(5)).await.unwrap();
        for n in 1..=3u64 {
            bench.runtime.signal("run", "n", &n).await.unwrap();
            bench.runtime.signal("run", "other", &n).await.unwrap();
        }
        let bench = bench.restarted().await;
        bench.runtime.signal("run", "n", &4).await.unwrap();
        let bench = bench.restarted().await;
        bench.runtime.signal("run", "n", &5).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": [1, 2, 3, 4, 5] }));
        assert_eq!(bench.run("run").await.messages().await.unwrap().len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_again_with_its_id_is_one_message_in_each_run() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for id in ["run", "another"] {
            bench.runtime.start(id, payments()).await.unwrap();
        }
        for _ in 0..2 {
            bench.runtime.signal("run", "pay", "10 EUR").id("7").await.unwrap();
        }
        let bench = bench.restarted().await;
        bench.runtime.signal("run", "pay", "10 EUR").id("7").await.unwrap();
        bench.runtime.signal("another", "pay", "10 EUR").id("7").await.unwrap();
        for id in ["run", "another"] {
            until("the first to be taken", async || bench.names(id).await.contains(&"signal.received")).await;
            until("the clock to be set", async || bench.names(id).await.contains(&"timer.set")).await;
        }
        // Another name, another message.
        bench.runtime.signal("run", "other", "10 EUR").id("7").await.unwrap();
        bench.clock.advance(secs(5));
        let once = json!({ "Ok": ["10 EUR", null] });
        assert_eq!((bench.end("run").await, bench.end("another").await), (once.clone(), once));
        // The sender's retry after the end is answered as the first time, and opens nothing.
        bench.runtime.signal("run", "pay", "10 EUR").id("7").await.unwrap();
        assert_eq!(bench.run("run").await.messages().await.unwrap().len(), 1);
        refused(bench.runtime.signal("run", "pay", "10 EUR").id("8").await, Code::RunEnded);
        // Without an id they are two.
        bench.runtime.start("twice", payments()).await.unwrap();
        for _ in 0..2 {
            bench.runtime.signal("twice", "pay", "10 EUR").await.unwrap();
        }
        assert_eq!(bench.end("twice").await, json!({ "Ok": ["10 EUR", "10 EUR"] }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_to_a_run_that_has_ended_is_told_how_and_the_log_stays() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("completed", returns(false)).await.unwrap();
        bench.runtime.start("failed", returns(true)).await.unwrap();
        bench.runtime.start("cancelled", one()).await.unwrap();
        bench.runtime.cancel("cancelled", "over").await.unwrap();
        for id in ["completed", "failed", "cancelled"] {
            bench.until(id, id).await;
            let before = bench.log(id).await.len();
            let error = refused(bench.runtime.signal(id, "n", &1).await, Code::RunEnded);
            assert!(error.is_run_ended() && error.to_string().contains(&format!("it is {id}")), "{error}");
            assert_eq!(bench.log(id).await.len(), before);
            assert!(bench.run(id).await.messages().await.unwrap().is_empty());
        }
        refused(bench.runtime.signal("nobody", "n", &1).await, Code::RunNotFound);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_senders_at_the_end_each_is_told_or_its_message_is_listed() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", one()).await.unwrap();
        let sends: Vec<_> = (0..50u64)
            .map(|n| {
                let runtime = bench.runtime.clone();
                tokio::spawn(async move { runtime.signal("run", "n", &n).await.map(|()| n) })
            })
            .collect();
        let mut accepted = Vec::new();
        for send in sends {
            match in_time("an answer", send).await.unwrap() {
                Ok(n) => accepted.push(json!(n)),
                Err(error) => assert!(error.is_run_ended(), "{error}"),
            }
        }
        let mut found = vec![bench.end("run").await["Ok"].take()];
        found.extend(bench.run("run").await.messages().await.unwrap().into_iter().map(|message| message.value));
        let key = |value: &serde_json::Value| value.as_u64();
        found.sort_by_key(key);
        accepted.sort_by_key(key);
        assert_eq!(found, accepted);
        assert_eq!(bench.names("run").await.last(), Some(&"run.completed"));
    }
}

/// Takes a text, then a number.
#[durable::workflow]
async fn two_types() -> durable::Result<(String, u64)> {
    Ok((durable::signal("n").await, durable::signal("n").await))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_type_than_is_waited_for_is_refused_and_not_sent() {
    for backend in BOTH {
        // Runs stay in memory.
        let bench = Bench::built(backend, |builder| builder.evict_after(secs(3_600))).await;
        bench.runtime.start("run", two_types()).await.unwrap();
        bench.until("run", "awaiting signal").await;
        let error = refused(bench.runtime.signal("run", "n", &3).id("first").await, Code::SignalDoesNotFit);
        assert!(error.to_string().contains("string") && error.to_string().contains("\"n\""), "{error}");
        refused(bench.runtime.signal("run", "n", &json!(["x"])).await, Code::SignalDoesNotFit);
        // Nobody waits for that name: whoever will, will see.
        bench.runtime.signal("run", "other", &3).await.unwrap();
        bench.runtime.signal("run", "n", "three").id("first").await.unwrap();
        until("the second wait", async || bench.entries("run", "signal.awaited").await.len() == 2).await;
        // The message that was sent, and not another one that does not fit.
        bench.runtime.signal("run", "n", "three").id("first").await.unwrap();
        refused(bench.runtime.signal("run", "n", "three").id("second").await, Code::SignalDoesNotFit);
        bench.runtime.signal("run", "n", &3).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": ["three", 3] }));
        assert!(bench.entries("run", "signal.set_aside").await.is_empty());
        assert_eq!(bench.run("run").await.messages().await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_type_is_set_aside_and_the_wait_goes_on() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", one()).await.unwrap();
        for (n, value) in [(1, json!("three")), (2, json!({ "n": 3 }))] {
            // Where the run is not in memory, nobody knows what it waits for.
            bench.until_away("run").await;
            bench.runtime.signal("run", "n", &value).await.unwrap();
            until("it to be set aside", async || bench.entries("run", "signal.set_aside").await.len() == n).await;
        }
        assert_eq!(bench.status("run").await.kind(), StatusKind::AwaitingSignal);
        let waits = bench.run("run").await.steps().await.unwrap().remove(0);
        assert_eq!((waits.state, waits.set_aside), (StepState::Waiting, 2));
        assert!(waits.set_aside_why.unwrap().contains("u64"));
        bench.runtime.signal("run", "n", &3).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": 3 }));
        let aside = bench.entries("run", "signal.set_aside").await;
        assert_eq!(aside[0].get("value"), Some(&json!("three")));
        assert!(aside[0].get("reason").unwrap().as_str().unwrap().contains("u64"), "{}", aside[0]);
        assert!(bench.run("run").await.messages().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_refused_before_it_is() {
    let bench = Bench::built(Backend::Memory, |builder| builder.value_bytes_max(1_000)).await;
    bench.runtime.start("run", one()).await.unwrap();
    refused(bench.runtime.signal("", "n", &1).await, Code::InvalidRunId);
    let large = refused(bench.runtime.signal("run", "n", &"x".repeat(2_000)).await, Code::TooLarge);
    assert!(large.to_string().contains("signal \"n\"") && large.to_string().contains("1000"), "{large}");
    let nested = refused(bench.runtime.signal("run", "n", &Some(None::<u32>)).await, Code::ArgumentNotRecordable);
    assert!(nested.to_string().contains("signal \"n\""), "{nested}");
    assert!(bench.run("run").await.messages().await.unwrap().is_empty());
    let status = bench.until("run", "awaiting signal").await;
    assert_eq!(status, durable::Status::AwaitingSignal { names: vec!["n".into()] });
    assert!(status.next_action().unwrap().contains("\"n\""));
}
