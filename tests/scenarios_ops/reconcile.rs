//! Steps in doubt whose effect knows how to find out.

use durable::{Code, EffectContext, Reconciled, Resolution};
use serde_json::json;

use crate::{
    bench::{BOTH, Backend, Bench, millis, refused, secs, until},
    world::World,
};

#[durable::effect(at_most_once, timeout = "10s", reconcile(find_charge, settle = "2m"))]
async fn charge(cx: &EffectContext, #[resource] world: &World, cents: u64) -> durable::Result<String> {
    world.note(cx, cents);
    world.pass("charge").await;
    Ok(format!("charged {cents}"))
}

/// Notes that it was asked as a line of effect `charge` with input `asked`.
async fn find_charge(cx: &EffectContext, world: &World, cents: u64) -> durable::Result<Reconciled<String>> {
    world.note(cx, "asked");
    world.pass("find").await;
    match world.word("find").as_str() {
        "happened" => Ok(Reconciled::Happened(format!("found {cents} under {}", cx.idempotency_key()))),
        "cannot" => Ok(Reconciled::CannotHappen),
        "error" => Err(durable::Failure::new("the bank does not answer")),
        "panic" => panic!("cannot read what the bank says"),
        _ => Ok(Reconciled::Unknown),
    }
}

#[durable::workflow]
async fn charging(cents: u64) -> durable::Result<String> {
    charge(cents).await
}

fn asked(bench: &Bench) -> usize {
    bench.world.lines("charge").iter().filter(|line| line.input == "asked").count()
}

fn charged(bench: &Bench) -> usize {
    bench.world.lines("charge").iter().filter(|line| line.input == "500").count()
}

/// A run whose charge died with its process, in a process that has just seen the doubt.
async fn doubted(backend: Backend, word: &str) -> Bench {
    let bench = Bench::on(backend).await;
    bench.world.close("charge");
    bench.runtime.start("run", charging(500)).await.unwrap();
    bench.world.until_noted("charge", 1).await;
    let bench = match backend {
        Backend::Memory => bench.crashed().await,
        Backend::Sled => bench.restarted().await,
    };
    bench.world.say("find", word);
    bench.until_word("run", "reconciling").await;
    bench
}

async fn until_asked(bench: &Bench, times: usize) {
    until(&format!("asked {times} times"), async || asked(bench) >= times).await;
    assert_eq!(asked(bench), times);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_asked_once_the_doubt_has_settled_and_its_word_is_the_outcome() {
    for backend in BOTH {
        let bench = doubted(backend, "happened").await;
        bench.advance(secs(120) - millis(1)).await;
        assert_eq!(asked(&bench), 0, "a request of the dead process may still be under way");
        assert!(bench.runtime.holds().await.unwrap().is_empty(), "nobody has to do anything yet");
        bench.advance(millis(1)).await;
        let ended = bench.end("run").await;
        let found = ended["Ok"].as_str().unwrap();
        assert!(found.starts_with("found 500 under ") && found.ends_with("/run/0/charge[0]"), "{found}");
        assert_eq!((asked(&bench), charged(&bench)), (1, 1));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cannot_happen_lets_the_body_run() {
    for backend in BOTH {
        let bench = doubted(backend, "cannot").await;
        bench.advance(secs(120)).await;
        assert_eq!(bench.end("run").await, json!({ "Ok": "charged 500" }));
        assert_eq!((asked(&bench), charged(&bench)), (1, 2));
        let log = bench.log("run").await;
        let word = log.iter().find(|entry| entry.name == "effect.resolved").unwrap();
        assert_eq!((word.get("by"), word.get("how")), (Some(&json!("reconcile")), Some(&json!("run again"))));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_begins_to_settle_anew() {
    let mut bench = doubted(Backend::Memory, "happened").await;
    for _ in 0..3 {
        bench.advance(secs(119)).await;
        assert_eq!(asked(&bench), 0);
        bench = bench.crashed().await;
        bench.world.say("find", "happened");
        bench.until_word("run", "reconciling").await;
    }
    // By the wall clock it has settled long ago; that counts for nothing.
    bench.clock.set_wall(crate::bench::BEGINNING + secs(86_400));
    bench.advance(secs(119)).await;
    assert_eq!(asked(&bench), 0);
    bench.advance(secs(1)).await;
    bench.end("run").await;
    assert_eq!((asked(&bench), charged(&bench)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_is_asked_again_with_patience_and_then_held_for_a_person() {
    for word in ["", "error", "panic"] {
        let bench = doubted(Backend::Memory, word).await;
        bench.advance(secs(120)).await;
        let mut wait = 2;
        for times in 1..10 {
            until_asked(&bench, times).await;
            bench.until_word("run", "reconciling").await;
            bench.looked().await;
            bench.advance(secs(wait) - millis(1)).await;
            assert_eq!(asked(&bench), times, "{word:?}: not before {wait} s");
            bench.advance(millis(1)).await;
            wait = (2 * wait).min(300);
        }
        until_asked(&bench, 10).await;
        let hold = bench.held("run").await;
        bench.advance(secs(86_400)).await;
        assert_eq!((asked(&bench), charged(&bench)), (10, 1), "{word:?}");
        // Settled long ago: a person's word counts at once.
        bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::run_again()).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "charged 500" }), "{word:?}");
        assert_eq!(charged(&bench), 2);
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_may_say_what_happened_before_it_has_settled() {
    for backend in BOTH {
        let bench = doubted(backend, "").await;
        let step = bench.log("run").await.iter().find(|entry| entry.name == "effect.in_doubt").unwrap().step.unwrap();
        bench.runtime.resolve("run", step, durable::Attempt(1), Resolution::succeeded("seen")).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "seen" }));
        bench.advance(secs(600)).await;
        assert_eq!((asked(&bench), charged(&bench)), (0, 1));
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_run_again_waits_until_it_has_settled() {
    let bench = doubted(Backend::Memory, "").await;
    let step = durable::StepNo(0);
    bench.advance(secs(60)).await;
    bench.runtime.resolve("run", step, durable::Attempt(1), Resolution::run_again()).await.unwrap();
    let again = refused(bench.runtime.resolve("run", step, durable::Attempt(1), Resolution::succeeded("x")).await);
    assert_eq!(again.code(), Code::NotInDoubt, "{again}");
    bench.advance(secs(60) - millis(1)).await;
    assert_eq!((asked(&bench), charged(&bench)), (0, 1));
    // The word is kept over a crash, and waits anew.
    let bench = bench.crashed().await;
    until("replayed", async || bench.status("run").await != durable::Status::Opening).await;
    bench.looked().await;
    bench.advance(secs(120) - millis(1)).await;
    assert_eq!((asked(&bench), charged(&bench)), (0, 1));
    bench.advance(millis(1)).await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "charged 500" }));
    assert_eq!((asked(&bench), charged(&bench)), (0, 2), "a person has spoken: the function is not asked");
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_never_asked_while_the_body_still_runs() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("charge");
    bench.world.say("find", "cannot");
    bench.runtime.start("run", charging(500)).await.unwrap();
    bench.world.until_noted("charge", 1).await;
    bench.advance(secs(10)).await;
    bench.until_word("run", "reconciling").await;
    for _ in 0..10 {
        bench.advance(secs(120)).await;
    }
    assert_eq!((asked(&bench), bench.runtime.bodies().len()), (0, 1));
    bench.world.open("charge");
    assert_eq!(bench.end("run").await, json!({ "Ok": "charged 500" }));
    bench.advance(secs(600)).await;
    assert_eq!((asked(&bench), charged(&bench)), (0, 1));
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_its_time_is_waited_for() {
    let bench = doubted(Backend::Memory, "happened").await;
    bench.world.close("find");
    bench.advance(secs(120)).await;
    until_asked(&bench, 1).await;
    // Less than the effect's own timeout, in steps.
    for _ in 0..9 {
        bench.advance(secs(1)).await;
    }
    assert_eq!(asked(&bench), 1);
    bench.world.open("find");
    assert!(bench.end("run").await["Ok"].as_str().unwrap().starts_with("found 500"));
    assert_eq!(asked(&bench), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_after_a_person_has_spoken_is_discarded() {
    let bench = doubted(Backend::Memory, "cannot").await;
    bench.world.close("find");
    bench.advance(secs(120)).await;
    until_asked(&bench, 1).await;
    bench.runtime.resolve("run", durable::StepNo(0), durable::Attempt(1), Resolution::succeeded("seen")).await.unwrap();
    assert_eq!(bench.end("run").await, json!({ "Ok": "seen" }));
    bench.world.open("find");
    bench.advance(secs(600)).await;
    assert_eq!(charged(&bench), 1);
    bench.replays("run").await;
}
