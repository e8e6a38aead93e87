//! What is awaited under a shield and outside of it: a child, a set, a step that was begun.

use std::future::IntoFuture;

use durable::Status;

use crate::bench::{BOTH, Bench, act, in_time, look, secs, until};

#[durable::workflow]
async fn waits() -> durable::Result<u64> {
    durable::sleep(secs(1)).await;
    Ok(durable::signal("go").await)
}

/// Takes something out of a shield, and waits for something else then.
#[durable::workflow]
async fn takes_out(what: String) -> durable::Result<u64> {
    match what.as_str() {
        "child" => {
            let child = durable::shield(async { durable::spawn(waits()).id("child").await }).await;
            durable::signal::<()>("never").await;
            child.await
        }
        "begun" => {
            let begun = durable::shield(async { durable::begin(waits()).await }).await;
            durable::signal::<()>("never").await;
            begun.await
        }
        _ => {
            let mut set = durable::Set::new();
            set.add(waits());
            let _ = durable::shield(durable::timeout(secs(0), set.next())).await;
            durable::signal::<()>("never").await;
            set.next().await.unwrap_or(Ok(0))
        }
    }
}

/// Looks at its child under a shield as long as it is told to, and waits for something else then.
#[durable::workflow]
async fn looks(shielded_twice: bool) -> durable::Result<u64> {
    let mut child = durable::spawn(waits()).id("child").await;
    let looked = async {
        let inner = async {
            let _ = durable::timeout(secs(5), &mut child).await;
        };
        if shielded_twice {
            durable::shield(inner).await
        } else {
            inner.await
        }
        look("still shielded").await
    };
    durable::shield(looked).await?;
    durable::signal::<()>("never").await;
    child.await
}

/// A set that is awaited under a shield first, or last, once the run is cancelled.
#[durable::workflow]
async fn carries_over(into: bool) -> durable::Result<u64> {
    let mut set = durable::Set::new();
    set.add(act("first"));
    if into {
        drop(set.next().await);
        durable::cancelled().await;
        durable::shield(async {
            set.add(act("second"));
            drop(set.next().await);
            act("third").await
        })
        .await?;
    } else {
        durable::shield(async { drop(set.next().await) }).await;
        durable::cancelled().await;
        set.add(act("second"));
        drop(set.next().await);
    }
    Ok(0)
}

/// Has begun something that it waits for under a shield.
#[durable::workflow]
async fn waits_under_shield() -> durable::Result<u64> {
    let begun = durable::begin(waits()).await;
    durable::shield(begun).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_left_its_shield_does_not_keep_a_cancel_waiting() {
    for backend in BOTH {
        for (what, entries) in [("child", 3), ("begun", 3), ("set", 5)] {
            for restarts in [false, true] {
                let bench = Bench::forgetful(backend).await;
                bench.runtime.start("run", takes_out(what.into())).await.unwrap();
                until("it to wait", async || bench.names("run").await.len() == entries).await;
                let bench = if restarts { bench.restarted().await } else { bench };
                let cancel = bench.runtime.cancel("run", "enough").into_future();
                let end = in_time("the cancel", cancel).await.unwrap();
                assert_eq!(end, Status::Cancelled { reason: "enough".into() }, "{what}");
                bench.sound().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_was_looked_at_under_a_shield_is_told_of_the_cancel_when_that_is_over() {
    for backend in BOTH {
        for (twice, restarts) in [(false, false), (false, true), (true, false), (true, true)] {
            let bench = Bench::forgetful(backend).await;
            bench.runtime.start("run", looks(twice)).await.unwrap();
            until("it to look", async || bench.names("run").await.len() == 3).await;
            let asked = bench.run("run").await;
            let cancel = tokio::spawn(asked.cancel("enough").into_future());
            until("the cancel", async || bench.names("run").await.contains(&"run.cancel_requested")).await;
            bench.until("child", "sleeping").await;
            let bench = if restarts { bench.restarted().await } else { bench };
            bench.clock.advance(secs(6));
            let again = bench.runtime.cancel("run", "enough").into_future();
            let end = in_time("the cancel", again).await.unwrap();
            assert_eq!(end, Status::Cancelled { reason: "enough".into() });
            assert_eq!(bench.outside.count("look at still shielded"), 1);
            assert!(matches!(bench.status("child").await, Status::Cancelled { .. }));
            assert_eq!(in_time("an answer", cancel).await.unwrap().is_ok(), !restarts);
            bench.sound().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_has_the_shield_under_which_it_is_awaited_now() {
    for backend in BOTH {
        for (into, done, end) in [
            (true, vec!["first", "second", "third"], Status::Completed),
            (false, vec!["first"], Status::Cancelled { reason: "enough".into() }),
        ] {
            let bench = Bench::forgetful(backend).await;
            bench.runtime.start("run", carries_over(into)).await.unwrap();
            until("the first", async || bench.names("run").await.contains(&"effect.result")).await;
            let cancel = bench.runtime.cancel("run", "enough").into_future();
            assert_eq!(in_time("the cancel", cancel).await.unwrap(), end);
            assert_eq!(bench.outside.done(), done);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begun_step_goes_on_while_a_shield_is_around_whoever_waits_for_it() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("run", waits_under_shield()).await.unwrap();
        bench.until("run", "sleeping").await;
        let cancel = tokio::spawn(run.cancel("enough").into_future());
        until("the cancel", async || bench.names("run").await.contains(&"run.cancel_requested")).await;
        bench.clock.advance(secs(2));
        run.signal("go", &7u64).await.unwrap();
        assert_eq!(in_time("an answer", cancel).await.unwrap().unwrap(), Status::Completed);
        assert_eq!(run.output().await.unwrap(), 7);
    }
}
