//! O-AG-1: the code before an approval runs again, its effects do not.

use std::path::Path;

use durable::{EffectContext, Runtime, TestClock, store::Write};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Bench, open_sled, secs},
    child,
    film::Film,
    frames,
    odd_store::{Fuse, stopping},
    world::World,
};

const THREE_DAYS: u64 = 3 * 86_400;
/// Odd bytes, which must come out of the log as they went in.
const PLAN: &str = "step 1: \u{0}\r\n\u{202e}draft \u{1f980}";

#[durable::effect(read_only)]
async fn llm(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    // A model never says the same thing twice.
    Ok(format!("{PLAN} {}", world.bodies("llm")))
}

#[durable::effect(idempotent)]
async fn send_draft(cx: &EffectContext, #[resource] world: &World, plan: &str) -> durable::Result<()> {
    world.note(cx, plan);
    Ok(())
}

#[durable::effect(key)]
async fn publish(cx: &EffectContext, #[resource] world: &World, plan: &str) -> durable::Result<()> {
    world.note(cx, plan);
    Ok(())
}

#[durable::workflow]
async fn agent() -> durable::Result<bool> {
    let plan = llm().await?;
    send_draft(&plan).await?;
    let ok = durable::signal::<bool>("approve").await;
    if ok {
        publish(&plan).await?;
    }
    Ok(ok)
}

/// The lines between which the process dies: what is durable then.
const LINES: [(&str, &str, usize); 5] = [
    ("after the plan", "effect.result", 1),
    ("after the draft", "effect.result", 2),
    ("before the approval", "signal.awaited", 1),
    ("after the approval", "signal.received", 1),
    ("after the publication", "effect.result", 3),
];

/// Plays the agent until the line; the last two come after the approval, which the process before this one has not got.
pub(crate) async fn child(dir: &Path, word: &str) {
    let (_, entry, nth) = LINES.iter().find(|(line, ..)| *line == word).unwrap();
    let seen = std::sync::atomic::AtomicUsize::new(0);
    let counts = move |write: &Write| {
        let of_kind = frames::names(write).iter().filter(|name| *name == entry).count();
        let before = seen.fetch_add(of_kind, std::sync::atomic::Ordering::SeqCst);
        before < *nth && before + of_kind >= *nth
    };
    let store = stopping(open_sled(dir.join("store")).await.unwrap(), counts, Fuse::After(1));
    let builder = Runtime::builder().resource(World::in_file(dir.join("ledger"))).clock(TestClock::at(BEGINNING));
    let runtime = builder.open_store(store).await.unwrap();
    let run = runtime.start("run", agent()).await.unwrap();
    if word.ends_with("the approval") && word != "before the approval" || word.ends_with("publication") {
        run.signal("approve", &true).await.unwrap();
    }
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_any_two_lines_repeats_nothing_and_the_plan_stays_the_plan() {
    for (line, entry, _) in LINES {
        let dir = tempfile::tempdir().unwrap();
        child::killed("ag_1", dir.path(), line);
        // Three days later, on another machine for all it knows.
        let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + secs(THREE_DAYS))).await;
        if !line.contains("after the approval") && !line.contains("publication") {
            bench.until_word("run", "awaiting signal").await;
            bench.runtime.signal("run", "approve", &true).await.unwrap();
        }
        assert_eq!(bench.end("run").await, json!({ "Ok": true }), "{line}");
        for effect in ["llm", "send_draft", "publish"] {
            assert_eq!(bench.world.bodies(effect), 1, "{line}, {entry}: {effect}");
        }
        let plan = format!("{PLAN} 1");
        assert_eq!(bench.world.lines("send_draft")[0].input, plan, "{line}");
        assert_eq!(bench.world.lines("publish")[0].input, plan, "{line}");
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_write_a_crash_publishes_the_plan_that_was_drafted_under_one_key() {
    let (world, clock) = (World::new(), TestClock::at(BEGINNING));
    let film = Film::new(&world, &clock);
    film.roll();
    let bench = Bench::through(film.clone(), world, &clock, |builder| builder).await;
    let run = bench.runtime.start("run", agent()).await.unwrap();
    bench.until_word("run", "awaiting signal").await;
    bench.clock.advance(secs(THREE_DAYS));
    run.signal("approve", &true).await.unwrap();
    assert!(run.output().await.unwrap());
    for (n, shot) in film.cut().iter().enumerate() {
        let bench = shot.opened(|_| {}).await;
        match bench.runtime.start("run", agent()).await {
            Ok(run) => match run.signal("approve", &true).id("the one").await {
                Ok(()) => {}
                Err(e) => assert!(e.is_run_ended(), "{e}"),
            },
            Err(e) => panic!("{n}: {e}"),
        }
        assert_eq!(bench.end("run").await, json!({ "Ok": true }), "{n}");
        let keys: std::collections::BTreeSet<_> =
            bench.world.lines("publish").into_iter().map(|line| line.key).collect();
        assert!(keys.len() <= 1, "{n}: {keys:?}");
        let drafted: Vec<_> = bench.world.lines("send_draft").into_iter().map(|line| line.input).collect();
        for line in bench.world.lines("publish") {
            assert_eq!(line.input, *drafted.last().unwrap(), "{n}");
        }
        bench.replays_some("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_approved_is_not_published() {
    let bench = Bench::on(crate::bench::Backend::Memory).await;
    let run = bench.runtime.start("run", agent()).await.unwrap();
    run.signal("approve", &false).await.unwrap();
    assert!(!run.output().await.unwrap());
    assert_eq!(bench.world.bodies("publish"), 0);
    bench.replays("run").await;
}
