//! What the runtime lists: runs and bodies.

use std::time::UNIX_EPOCH;

use durable::{Attempt, EffectContext, Failure, Filter, Status};

use crate::{
    bench::{BEGINNING, BOTH, Bench, secs, until},
    world::World,
};

#[durable::effect(key = "{n}")]
async fn gated(cx: &EffectContext, #[resource] world: &World, n: u32) -> durable::Result<u32> {
    world.note(cx, n);
    world.pass("gated").await;
    match n {
        13 => Err(Failure::new("unlucky")),
        n => Ok(n),
    }
}

#[durable::workflow]
async fn first(n: u32) -> durable::Result<u32> {
    gated(n).await
}

#[durable::workflow(name = "the second")]
async fn second() {
    durable::sleep(secs(60)).await;
}

async fn ids(bench: &Bench, filter: Filter) -> Vec<String> {
    bench.runtime.runs(filter).await.unwrap().into_iter().map(|run| run.id.as_str().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_by_what_they_are_and_where_they_stand() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("gated");
        bench.runtime.start("a", first(1)).await.unwrap();
        bench.clock.advance(secs(1));
        bench.runtime.start("b", first(13)).await.unwrap();
        bench.runtime.start("c", second()).await.unwrap();
        bench.world.until_noted("gated", 2).await;
        bench.until_word("c", "sleeping").await;
        assert_eq!(ids(&bench, Filter::all()).await, ["a", "b", "c"]);
        assert_eq!(ids(&bench, Filter::all().workflow("first")).await, ["a", "b"]);
        assert_eq!(ids(&bench, Filter::all().workflow("second")).await, [""; 0]);
        assert_eq!(ids(&bench, Filter::all().workflow("the second")).await, ["c"]);
        assert_eq!(ids(&bench, Filter::all().status(durable::StatusKind::Running)).await, ["a", "b"]);
        assert_eq!(ids(&bench, Filter::finished()).await, [""; 0]);

        bench.clock.advance(secs(1));
        bench.world.open("gated");
        until("the end", async || ids(&bench, Filter::finished()).await.len() == 2).await;
        assert_eq!(ids(&bench, Filter::unfinished()).await, ["c"]);
        assert_eq!(ids(&bench, Filter::finished().workflow("first").status(durable::StatusKind::Failed)).await, ["b"]);
        assert_eq!(ids(&bench, Filter::unfinished().status(durable::StatusKind::Completed)).await, [""; 0]);

        let bench = bench.restarted().await;
        let runs = bench.runtime.runs(Filter::all()).await.unwrap();
        assert_eq!((runs[0].workflow.as_str(), runs[0].module.as_str()), ("first", module_path!()));
        assert_eq!((runs[0].started_at, runs[0].since), (UNIX_EPOCH + BEGINNING, UNIX_EPOCH + BEGINNING + secs(2)));
        assert_eq!(runs[0].status, Status::Completed);
        assert_eq!(runs[1].status, Status::Failed { message: "unlucky".into() });
        let info = bench.runtime.run("b").await.unwrap().info().await.unwrap();
        assert_eq!((info.status, info.since), (runs[1].status.clone(), runs[1].since));
        bench.replays("a").await;
        bench.replays("b").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_listed_while_they_run() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("gated");
        bench.clock.advance(secs(7));
        bench.runtime.start("a", first(1)).await.unwrap();
        bench.world.until_noted("gated", 1).await;
        let bodies = bench.runtime.bodies();
        assert_eq!(bodies.len(), 1);
        let body = &bodies[0];
        assert_eq!((body.run.as_str(), body.effect, body.path.as_str()), ("a", "gated", "gated[0]"));
        assert_eq!((body.attempt, body.since), (Attempt(1), UNIX_EPOCH + BEGINNING + secs(7)));
        bench.world.open("gated");
        bench.end("a").await;
        until("no body", async || bench.runtime.bodies().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_runs_than_a_page_are_listed_each_once_while_others_begin_and_end() {
    let bench = Bench::on(crate::bench::Backend::Memory).await;
    for n in 0..2_500 {
        bench.runtime.start(format!("s {n:04}"), second()).await.unwrap();
    }
    let runtime = bench.runtime.clone();
    let busy = tokio::spawn(async move {
        for n in 0..500 {
            runtime.start(format!("b {n}"), first(n)).await.unwrap();
        }
    });
    for _ in 0..5 {
        let listed = ids(&bench, Filter::all().workflow("the second")).await;
        assert_eq!(listed.len(), 2_500);
        assert!(listed.is_sorted());
    }
    busy.await.unwrap();
    assert_eq!(ids(&bench, Filter::all()).await.len(), 3_000);
}
