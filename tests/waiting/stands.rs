//! Where runs stand: the same whether their life or their log is asked; and their steps as a table.

use durable::{Contract, Question, Reply, RunId, Status, StepKind, StepState, StepView};
use serde_json::json;

use crate::bench::{BOTH, Bench, act, doubtful, look, revert, secs};

#[durable::effect(idempotent, retry(attempts = 2, first = "1h", max = "1h"))]
async fn flaky(n: u32) -> durable::Result<u32> {
    Err(durable::Failure::new(format!("not {n}")))
}

/// Waits in several ways at once.
#[durable::workflow]
async fn stands(how: Vec<String>) -> durable::Result<()> {
    durable::join_all(how.into_iter().map(|how| async move {
        match how.as_str() {
            "signal" => durable::signal::<()>("go").await,
            "drain" => drop(durable::signals::<()>("go").await),
            "sleep" => durable::sleep(secs(7_200)).await,
            "question" => drop(durable::ask::<()>(Question::new("go?").by(["ann"])).await),
            "hold" => drop(doubtful("wire").await),
            "retry" => drop(flaky(3).await),
            "child" => drop(durable::spawn(stands(vec!["signal".into()])).id("attached").await.await),
            _ => {
                let _ = durable::spawn(stands(vec!["signal".into()])).id("detached").detached().await;
            }
        }
    }))
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_is_what_must_be_seen_to_first_and_the_same_without_a_life() {
    let cases: &[(&[&str], &str)] = &[
        (&["sleep"], "sleeping"),
        (&["signal", "sleep"], "awaiting signal"),
        (&["child", "sleep"], "awaiting child"),
        (&["signal", "child", "sleep", "drain"], "awaiting signal"),
        (&["retry", "signal", "child"], "retrying"),
        (&["question", "retry", "signal"], "awaiting answer"),
        (&["hold", "question", "retry", "signal", "sleep"], "held"),
        (&["left", "sleep"], "sleeping"),
    ];
    for backend in BOTH {
        for (how, word) in cases {
            let bench = Bench::on(backend).await;
            bench.runtime.start("run", stands(how.iter().map(ToString::to_string).collect())).await.unwrap();
            let alive = bench.until("run", word).await;
            // Until nothing of it is on its way.
            bench.clock.advance(secs(2));
            bench.until_away("run").await;
            assert_eq!(bench.status("run").await, alive, "{how:?}");
            let bench = bench.restarted().await;
            bench.until("run", word).await;
            assert_eq!(bench.status("run").await, alive, "{how:?}");
            bench.sound().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_state_says_what_it_is_about() {
    let bench = Bench::on(crate::bench::Backend::Memory).await;
    bench.runtime.start("run", stands(vec!["signal".into(), "signal".into()])).await.unwrap();
    assert_eq!(bench.until("run", "awaiting signal").await, Status::AwaitingSignal { names: vec!["go".into()] });
    bench.runtime.start("asks", stands(vec!["question".into(), "question".into()])).await.unwrap();
    let tokens: Vec<_> = bench.questions("asks", 2).await.into_iter().map(|question| question.token).collect();
    assert_eq!(bench.status("asks").await, Status::AwaitingAnswer { tokens });
    bench.runtime.start("parent", stands(vec!["child".into()])).await.unwrap();
    let runs = vec![RunId::new("attached").unwrap()];
    assert_eq!(bench.until("parent", "awaiting child").await, Status::AwaitingChild { runs });
}

/// Uses every kind of step.
#[durable::workflow]
async fn everything() -> durable::Result<u64> {
    durable::undo(revert("all")).await;
    let looked = look("it").await?;
    act("it").await?;
    durable::send("nobody", "word", &looked).await;
    durable::publish("looked", &looked).await;
    durable::version("second", 2).await;
    let word: String = durable::signal("word").await;
    let granted = durable::ask::<u64>("how much?").await.granted();
    let child = durable::spawn(brief()).id("brief").await;
    let of_child = child.await.unwrap_or_default();
    let fast =
        durable::race((durable::sleep(secs(3_600)), async { durable::signals::<()>("none").await.clear() })).await;
    let () = fast;
    let wired = doubtful("wire").await?;
    Ok(looked + word.len() as u64 + granted.unwrap_or_default() + of_child + wired)
}

#[durable::workflow]
async fn brief() -> durable::Result<u64> {
    Err(durable::Failure::new("too brief"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_steps_says_of_each_what_became_of_it() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let run = bench.runtime.start("run", everything()).await.unwrap();
        run.signal("word", "abc").await.unwrap();
        let token = bench.token("run").await;
        bench.clock.advance(secs(1));
        bench.runtime.answer(token, Reply::granted(&5)).await.unwrap();
        bench.until("run", "held").await;
        let steps = run.steps().await.unwrap();
        let line = |step: &StepView| (step.kind, step.path.clone(), step.what.clone(), step.state.as_str());
        let want = [
            (StepKind::Undo, "undo:revert[0]", "revert", "done"),
            (StepKind::Effect, "look[0]", "look", "done"),
            (StepKind::Effect, "act[0]", "act", "done"),
            (StepKind::Send, "send:word[0]", "word to nobody", "done"),
            (StepKind::Publish, "publish:looked[0]", "looked", "done"),
            (StepKind::Version, "second[0]", "second", "done"),
            (StepKind::Signal, "signal:word[0]", "word", "done"),
            (StepKind::Question, "ask[0]", "how much?", "done"),
            (StepKind::Child, "spawn:brief[0]", "brief", "failed"),
        ];
        for (step, (kind, path, what, state)) in steps.iter().zip(want) {
            assert_eq!(line(step), (kind, path.to_owned(), what.to_owned(), state));
            assert!(step.site.as_ref().is_some_and(|site| site.contains("stands.rs:")), "{step}");
            assert_eq!(step.asked_at <= step.over_at.unwrap(), step.state.is_over());
        }
        let by_kind = |kind| steps.iter().find(|step| step.kind == kind).unwrap();
        let sleep = by_kind(StepKind::Sleep);
        assert!(sleep.dropped && sleep.state == StepState::Dropped && sleep.over_at.is_some());
        let (looked, acted) = (&steps[1], &steps[2]);
        assert_eq!((looked.contract, acted.contract), (Some(Contract::ReadOnly), Some(Contract::Idempotent)));
        assert_eq!((looked.attempts, &looked.outcome, &acted.outcome), (1, &Some(json!(2)), &Some(json!("did it"))));
        assert_eq!(steps[0].contract, Some(Contract::Keyed));
        assert_eq!((&steps[6].outcome, &steps[7].outcome), (&Some(json!(["abc"])), &Some(json!(5))));
        assert_eq!(steps[7].over_at.unwrap(), bench.now());
        assert_eq!(steps[8].outcome.as_ref().unwrap()["message"], json!("too brief"));
        let wire = steps.last().unwrap();
        assert!(matches!(&wire.state, StepState::InDoubt { reason } if reason.contains("no answer")), "{wire}");
        assert!(!wire.state.is_over() && wire.over_at.is_none() && wire.attempts == 1);
        assert_eq!(wire.to_string(), format!("{} doubtful[0]: effect doubtful, in doubt", wire.step));
        let hold = bench.runtime.holds().await.unwrap().remove(0);
        bench.runtime.resolve("run", hold.step, hold.attempt, durable::Resolution::run_again()).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": 2 + 3 + 5 + 7 }));
        let last = run.steps().await.unwrap().pop().unwrap();
        assert_eq!((last.attempts, last.state.clone(), last.outcome), (2, StepState::Done, Some(json!(7))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_runs_are_listed_by_the_page_and_without_a_look_at_their_logs() {
    use durable::{Filter, store::Store};
    let bench = Bench::forgetful(crate::bench::Backend::Memory).await;
    for n in 0..2_000 {
        bench.runtime.start(format!("done {n}"), brief()).await.unwrap();
    }
    bench.runtime.start("waits", stands(vec!["signal".into()])).await.unwrap();
    bench.until_away("waits").await;
    for n in 0..2_000 {
        bench.until(&format!("done {n}"), "failed").await;
    }
    bench.store.take();
    let all = bench.runtime.runs(Filter::all()).await.unwrap();
    assert_eq!(all.len(), 2_001);
    let asked = bench.store.take();
    let reads: Vec<_> = asked.iter().filter(|(what, _)| *what == "read from 0").collect();
    assert_eq!(reads.len(), 1, "only that of the one that waits");
    assert!(asked.iter().all(|(what, _)| *what != "claim"), "and none is woken");
    assert!(asked.len() < 20, "a page at a time: {}", asked.len());
    assert!(bench.store.run(&RunId::new("waits").unwrap()).unwrap().unwrap().wait.is_some());
}
