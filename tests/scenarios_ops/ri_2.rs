//! O-RI-2: odd ids.

use durable::{Attempt, Code, EffectContext, Filter, RUN_ID_BYTES_MAX, Resolution, StepNo};
use serde_json::json;

use crate::{
    bench::{BOTH, Bench, refused},
    world::World,
};

#[durable::effect(at_most_once)]
async fn odd(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    world.pass("odd").await;
    n
}

#[durable::workflow]
async fn oddity(n: u32) -> u32 {
    odd(n).await
}

fn ids() -> Vec<String> {
    let long = "x".repeat(RUN_ID_BYTES_MAX);
    let mut ids: Vec<String> = [
        " ",
        "  ",
        "a/b",
        "a",
        "a/",
        "/",
        "..",
        ".",
        "\0",
        "a\0",
        "a\0b",
        "\0\0",
        "\n",
        "a\nb",
        "\u{1F600}",
        "\u{202E}evil",
        "\u{E9}",
        "e\u{301}",
        "%",
        "%2F",
        "'",
        "\"",
        "run",
        "run-1",
        "run-10",
        "run-1/0",
        "\u{FFFD}",
        "\u{10FFFF}",
        "A",
        "\t",
        "{}",
        "\u{7F}",
        "\u{1}",
        "\u{FF}",
    ]
    .map(str::to_owned)
    .into();
    // Ids of the greatest length that differ in the last byte only, and one that is a prefix of them.
    ids.extend([long[1..].to_owned(), long.clone(), format!("{}y", &long[1..])]);
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn every_text_is_an_id_of_its_own_on_every_way_in() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("odd");
        let ids = ids();
        for (n, id) in ids.iter().enumerate() {
            bench.runtime.start(id, oddity(n as u32)).await.unwrap();
        }
        bench.world.until_noted("odd", ids.len()).await;
        let listed = async |bench: &Bench| {
            let mut listed: Vec<_> = bench
                .runtime
                .runs(Filter::all())
                .await
                .unwrap()
                .into_iter()
                .map(|run| run.id.as_str().to_owned())
                .collect();
            listed.sort();
            listed
        };
        let mut sorted = ids.clone();
        sorted.sort();
        assert_eq!(listed(&bench).await, sorted);

        let bench = bench.restarted().await;
        assert_eq!(listed(&bench).await, sorted, "no run more or less after a restart");
        for (n, id) in ids.iter().enumerate() {
            let hold = bench.held(id).await;
            assert_eq!(hold.args, json!({ "n": n }), "{id:?} is its own run");
            assert_eq!(bench.log(id).await[0].get("args"), Some(&json!({ "n": n })));
            let wrong = refused(bench.runtime.resolve(id, hold.step, Attempt(2), Resolution::run_again()).await);
            assert_eq!(wrong.code(), Code::StaleAttempt);
            bench.runtime.resolve(id, hold.step, hold.attempt, Resolution::succeeded(100 + n)).await.unwrap();
            assert_eq!(bench.end(id).await, json!(100 + n));
        }
        for (n, id) in ids.iter().enumerate() {
            // Nobody else's end has touched it.
            assert_eq!(
                bench.runtime.start(id, oddity(n as u32)).await.unwrap().returned().await.unwrap(),
                100 + n as u32
            );
        }
        bench.replays("a\0b").await;
        let bench = bench.restarted().await;
        assert_eq!(listed(&bench).await, sorted);
        assert!(bench.runtime.runs(Filter::unfinished()).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_id_is_refused_with_a_typed_error_on_every_way_in() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for id in [
            String::new(),
            "x".repeat(RUN_ID_BYTES_MAX + 1),
            "\u{E9}".repeat(RUN_ID_BYTES_MAX / 2 + 1),
            "x".repeat(64 * 1024),
        ] {
            let errors = [
                refused(bench.runtime.start(&id, oddity(1)).await),
                refused(bench.runtime.run(&id).await),
                refused(bench.runtime.resolve(&id, StepNo(0), Attempt(1), Resolution::run_again()).await),
                refused(bench.runtime.retry(&id).await),
            ];
            for error in errors {
                assert_eq!(error.code(), Code::InvalidRunId);
                assert!(error.to_string().len() < 200, "the message does not repeat the id: {error}");
            }
        }
        assert!(bench.runtime.runs(Filter::all()).await.unwrap().is_empty());
        for id in ["not there", "\0", ".."] {
            assert!(refused(bench.runtime.run(id).await).is_not_found());
            assert!(refused(bench.runtime.retry(id).await).is_not_found());
            assert!(
                refused(bench.runtime.resolve(id, StepNo(0), Attempt(1), Resolution::run_again()).await).is_not_found()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_cannot_forge_a_line_of_a_message() {
    let bench = Bench::on(crate::bench::Backend::Memory).await;
    let error = refused(bench.runtime.run("a\nERROR all is lost \u{202E}").await).to_string();
    assert!(!error.contains('\n') && !error.contains('\u{202E}'), "{error:?}");
}
