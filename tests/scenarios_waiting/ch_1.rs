//! O-CH-1: a parent is cancelled, with a child in every state.
//!
//! A child that is recorded and not made there is none: both are one batch. In its place stands one that is made and has not begun.

use std::collections::{BTreeMap, BTreeSet};

use durable::{Code, EffectContext, Fault, Filter, Status};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Bench, millis, secs, until},
    film::Film,
    world::World,
};

#[durable::effect(idempotent)]
async fn work(cx: &EffectContext, #[resource] world: &World, what: &str) -> String {
    world.note(cx, what);
    world.pass(what).await;
    what.to_owned()
}

#[durable::effect(idempotent)]
async fn undo_work(cx: &EffectContext, #[resource] world: &World, what: &str) {
    world.note(cx, what);
}

#[durable::workflow]
async fn grandchild() -> durable::Result<String> {
    durable::undo(undo_work("grandchild")).await;
    work("grandchild").await;
    durable::sleep(secs(86_400)).await;
    Ok("slept".into())
}

/// What it does when it is cancelled, if anything.
#[durable::workflow]
async fn child(how: String) -> durable::Result<String> {
    match how.as_str() {
        "done" => Ok(work("done").await),
        "running" => {
            let grandchild = durable::spawn(grandchild()).id("grandchild").await;
            work("running").await;
            // It hears of the grandchild's end, and goes on to where a cancel drops it.
            let end = grandchild.await;
            durable::sleep(secs(3_600)).await;
            end
        }
        // It goes on as if nothing had happened.
        "ignoring" => {
            durable::shield(async {
                work("ignoring").await;
                durable::sleep(secs(1)).await;
                Ok(work("ignoring too").await)
            })
            .await
        }
        // It fails instead of being cancelled.
        "failing" => {
            work("failing").await;
            durable::cancelled().await;
            Err(durable::Failure::new("failed when it was cancelled"))
        }
        "detached" => {
            work("detached").await;
            Ok(durable::signal("go").await)
        }
        // It is made with the entry that the cancel finds last, and may not have begun by then.
        _ => {
            durable::sleep(secs(3_600)).await;
            Ok("it has begun".into())
        }
    }
}

const CHILDREN: [&str; 6] = ["done", "running", "ignoring", "failing", "detached", "new"];

#[durable::workflow]
async fn parent() -> durable::Result<String> {
    let mut children = Vec::new();
    for how in ["done", "running", "ignoring", "failing"] {
        children.push(durable::spawn(child(how.into())).id(how).await);
    }
    let detached = durable::spawn(child("detached".into())).id("detached").detached().await;
    let done = (&mut children[0]).await?;
    durable::signal::<()>("all there").await;
    let new = durable::spawn(child("new".into())).id("new").await;
    let all = durable::try_join_all(children).await;
    // It hears of its children's ends, and goes on to where a cancel drops it: else it would end as failed, for one of them did.
    durable::sleep(secs(3_600)).await;
    let all = all?;
    Ok(format!("{done} {} {} {all:?}", detached.await?, new.await?))
}

/// The parent and all its children stand where they are to stand when the cancel comes; only the last one is just being made.
async fn family(bench: &Bench) {
    bench.runtime.start("parent", parent()).await.unwrap();
    for id in ["done", "failing", "running", "grandchild", "ignoring", "detached"] {
        there(bench, id).await;
    }
    bench.until_word("done", "completed").await;
    bench.until_status("failing", "waiting", |status| status.as_str() == "awaiting cancel").await;
    bench.until_word("grandchild", "sleeping").await;
    bench.until_word("running", "awaiting child").await;
    bench.until_word("ignoring", "sleeping").await;
    bench.until_word("detached", "awaiting signal").await;
    bench.until_word("parent", "awaiting signal").await;
}

async fn there(bench: &Bench, id: &str) {
    until(&format!("{id} to be made"), async || bench.runtime.run(id).await.is_ok()).await;
}

/// Lets time pass until the family is at rest.
async fn at_rest(bench: &Bench) {
    until("all but the detached one to end", async || {
        bench.clock.advance(millis(200));
        let unfinished = bench.runtime.runs(Filter::unfinished()).await.unwrap();
        unfinished.iter().all(|info| info.id.as_str() == "detached")
    })
    .await;
}

/// What must be true of the family in the end.
async fn whole(bench: &Bench, at: &str) {
    let words: BTreeMap<&str, String> = {
        let mut words = BTreeMap::new();
        for id in ["parent", "grandchild"].into_iter().chain(CHILDREN) {
            let run = bench.runtime.run(id).await;
            words.insert(
                id,
                match run {
                    Ok(run) => run.status().await.unwrap().as_str().to_owned(),
                    // The crash came before it was made; then it is in nobody's log either.
                    Err(e) if e.is_not_found() && id == "new" => "not made".to_owned(),
                    Err(e) => panic!("{at}: {id}: {e}"),
                },
            );
        }
        words
    };
    let is = |id, word: &str| assert_eq!(words[id], word, "{at}: {words:?}");
    is("parent", "cancelled");
    is("done", "completed");
    is("running", "cancelled");
    is("grandchild", "cancelled");
    is("ignoring", "completed");
    is("failing", "failed");
    is("detached", "awaiting signal");
    assert!(matches!(&*words["new"], "cancelled" | "not made"), "{at}: {words:?}");
    // The parent's log holds each child's real end.
    let log = bench.log("parent").await;
    let mut ends = BTreeMap::new();
    for entry in log.iter().filter(|entry| entry.name == "child.result") {
        let before =
            ends.insert(entry.get("run").unwrap().as_str().unwrap(), entry.get("end").unwrap().as_str().unwrap());
        assert_eq!(before, None, "{at}: an end is recorded once");
    }
    for id in CHILDREN.into_iter().filter(|id| *id != "detached") {
        let told = ends.get(id).map_or("not made", |end| *end);
        assert_eq!(told, words[id], "{at}: what the parent's log says of {id}");
    }
    assert_eq!(ends.get("detached"), None, "{at}");
    // What was shielded was finished, and what was to be taken back was so, by one step each.
    let steps = |effect: &str, input: &str| -> usize {
        let lines = bench.world.lines(effect);
        let paths = lines.iter().filter(|line| line.input == input).map(|line| (line.run.clone(), line.path.clone()));
        paths.collect::<BTreeSet<_>>().len()
    };
    assert_eq!((steps("work", "ignoring too"), steps("undo_work", "grandchild")), (1, 1), "{at}");
    // No child is without an owner, and nobody waits for what will not come.
    let findings = bench.runtime.audit().await.unwrap();
    assert!(findings.is_empty(), "{at}: {findings:?}");
    // None holds its id: a removed one is free.
    bench.runtime.remove("failing").await.unwrap();
    let run = bench.runtime.start("failing", child("done".into())).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "done", "{at}");
    // Who is detached goes on.
    bench.runtime.signal("detached", "go", "on").await.unwrap();
    assert_eq!(bench.end("detached").await, json!({ "Ok": "on" }), "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_parent_ends_after_its_children_and_knows_each_ones_end() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        family(&bench).await;
        bench.runtime.signal("parent", "all there", &()).await.unwrap();
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("parent", "enough").by("ann").await });
        at_rest(&bench).await;
        assert_eq!(cancel.await.unwrap().unwrap(), Status::Cancelled { reason: "enough".into() });
        for id in ["parent", "running", "grandchild", "ignoring", "failing", "done"] {
            bench.replays(id).await;
        }
        whole(&bench, "without a crash").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_the_propagation_leaves_nobody_behind() {
    let (world, clock) = (World::new(), durable::TestClock::at(BEGINNING));
    let film = Film::new(&world, &clock);
    let bench = Bench::through(film.clone(), world, &clock, |builder| builder).await;
    family(&bench).await;
    film.roll();
    bench.runtime.signal("parent", "all there", &()).await.unwrap();
    let runtime = bench.runtime.clone();
    let cancel = tokio::spawn(async move { runtime.cancel("parent", "enough").by("ann").await });
    at_rest(&bench).await;
    cancel.await.unwrap().unwrap();
    let shots = film.cut();
    assert!(shots.len() > 20, "{} writes", shots.len());
    for (n, shot) in shots.iter().enumerate() {
        let at = format!("a crash before write {n}");
        let bench = shot.opened(|_| {}).await;
        // Who had asked does not know whether that was accepted.
        let runtime = bench.runtime.clone();
        let cancel = tokio::spawn(async move { runtime.cancel("parent", "enough").by("ann").await });
        at_rest(&bench).await;
        assert_eq!(cancel.await.unwrap().unwrap(), Status::Cancelled { reason: "enough".into() }, "{at}");
        for id in ["parent", "running", "grandchild", "ignoring", "failing"] {
            bench.replays_some(id).await;
        }
        whole(&bench, &at).await;
    }
}

/// A child whose id names another run: the parent is told, and its cancel touches nobody else's child.
#[durable::workflow]
async fn rival(first: bool) -> durable::Result<String> {
    let child = durable::spawn(child("detached".into())).id("contested").await;
    if first {
        durable::signal::<()>("enough").await;
    }
    match child.await {
        Ok(word) => Ok(word),
        Err(e) if matches!(e.fault(), Some(Fault::ChildIdTaken { .. })) => {
            durable::signal::<()>("enough").await;
            Ok("it is somebody else's".into())
        }
        Err(e) => Err(e),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_a_race_for_an_id_does_not_cancel_the_winners_child() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("winner", rival(true)).await.unwrap();
        there(&bench, "contested").await;
        bench.until_word("contested", "awaiting signal").await;
        bench.runtime.start("loser", rival(false)).await.unwrap();
        bench.until_word("loser", "awaiting signal").await;
        assert_eq!(bench.runtime.cancel("loser", "enough").await.unwrap().as_str(), "cancelled");
        bench.looked().await;
        assert_eq!(bench.status("contested").await.as_str(), "awaiting signal");
        bench.runtime.signal("contested", "go", "for the winner").await.unwrap();
        bench.runtime.signal("winner", "enough", &()).await.unwrap();
        assert_eq!(bench.end("winner").await, json!({ "Ok": "for the winner" }));
        for id in ["winner", "loser", "contested"] {
            bench.replays(id).await;
        }
        let conflict = crate::bench::refused(bench.runtime.start("contested", child("new".into())).await);
        assert_eq!(conflict.code(), Code::OtherArguments);
    }
}
