//! O-ID-2: the key of a keyed effect is stable, and unique.

use std::{collections::BTreeSet, path::Path};

use durable::{
    EffectContext, Failure, Runtime, TestClock,
    store::{Store, sled::SledStore},
};
use serde_json::json;

use crate::{
    bench::{BEGINNING, BOTH, Bench, open_sled},
    child,
    odd::Odd,
    odd_store::appends,
    world::{Line, World},
};

#[durable::effect(key, retry(attempts = 9, first = "1ms", max = "1ms", factor = 1))]
async fn email(cx: &EffectContext, #[resource] world: &World, to: &str) -> durable::Result<String> {
    world.note(cx, to);
    if cx.path() == "email[1]" && cx.attempt() == 3 {
        world.say("email", "third attempt");
    }
    // The second one is refused twice.
    match cx.path() == "email[1]" && cx.attempt() < 3 {
        true => Err(Failure::new("try later")),
        false => Ok(cx.idempotency_uuid().to_string()),
    }
}

#[durable::workflow]
async fn newsletter(to: String) -> durable::Result<Vec<String>> {
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(email(&to).await?);
    }
    Ok(sent)
}

/// Dies when the second e-mail's third attempt has returned, before that is durable.
pub(crate) async fn child(dir: &Path) {
    let world = World::in_file(dir.join("ledger"));
    let fuse = world.clone();
    let store = Odd::new(open_sled(dir.join("store")).await.unwrap(), move |inner: &SledStore, write, done| {
        if appends(&write) && fuse.word("email") == "third attempt" {
            std::process::abort();
        }
        inner.submit(write, done);
    });
    let runtime = Runtime::builder().resource(world).open_store(store).await.unwrap();
    runtime.start("first", newsletter("a@b.example".into())).await.unwrap().output().await.unwrap();
}

/// The keys in the ledger, each call's checked to be one.
fn keys(ledger: &[Line]) -> Vec<String> {
    let paths: BTreeSet<_> = ledger.iter().map(|line| &line.path).collect();
    paths
        .into_iter()
        .map(|path| {
            let keys: BTreeSet<_> = ledger.iter().filter(|line| line.path == *path).map(|line| &line.key).collect();
            assert_eq!(keys.len(), 1, "{path} has one key on every attempt: {keys:?}");
            keys.into_iter().next().unwrap().clone()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_own_key_is_one_per_call_over_attempts_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    child::dies("id_2", dir.path(), "");
    let clock = TestClock::at(BEGINNING);
    let bench = Bench::at(dir.path(), &clock).await;
    let ended = bench.end("first").await;
    let ledger = bench.world.ledger();
    let attempts: Vec<_> = ledger.iter().filter(|line| line.path == "email[1]").map(|line| line.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4], "the third one died with its process");
    assert_eq!(ledger.len(), 6);
    let first = keys(&ledger);
    let store = bench.store.about().id;
    assert_eq!(first, [0, 1, 2].map(|n| format!("{store}/first/0/email[{n}]")));
    // What providers with room for a UUID get is as different.
    let uuids: BTreeSet<_> = ended["Ok"].as_array().unwrap().iter().map(|uuid| uuid.to_string()).collect();
    assert_eq!(uuids.len(), 3);

    // The same input in another run.
    bench.runtime.start("second", newsletter("a@b.example".into())).await.unwrap();
    while bench.status("second").await.as_str() != "completed" {
        bench.advance(std::time::Duration::from_millis(1)).await;
    }
    let ledger: Vec<_> = bench.world.ledger().into_iter().filter(|line| line.run == "second").collect();
    assert!(keys(&ledger).iter().all(|key| !first.contains(key)));
    bench.replays("first").await;
    bench.replays("second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_shows_the_key_that_the_provider_knows() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("plain", single("x".into())).await.unwrap();
        bench.end("plain").await;
        let log = bench.log("plain").await;
        let called: Vec<_> = log.iter().filter(|entry| entry.name == "effect.called").collect();
        for (entry, line) in called.iter().zip(bench.world.ledger()) {
            assert_eq!(entry.get("key"), Some(&json!(line.key)), "{entry}");
        }
        assert_eq!(called.len(), 2);
    }
}

#[durable::effect(key)]
async fn own(cx: &EffectContext, #[resource] world: &World, to: &str) {
    world.note(cx, to);
}

#[durable::effect(key = "{to}:{n}")]
async fn business(cx: &EffectContext, #[resource] world: &World, to: &str, n: u32) {
    world.note(cx, to);
    let _ = n;
}

#[durable::workflow]
async fn single(to: String) {
    own(&to).await;
    business(&to, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_run_ids_and_no_two_templates_give_one_key() {
    let bench = Bench::on(crate::bench::Backend::Memory).await;
    let ids = ["a/0", "a", "a%2F0", "a/0/own[0]", "a[0]", "%", "\n", "\u{202E}a"];
    for (n, id) in ids.iter().enumerate() {
        bench.runtime.start(id, single(["a:1", "a", "a:", ":a", "a%3A", "%", "", "a%"][n].into())).await.unwrap();
        bench.end(id).await;
    }
    for effect in ["own", "business"] {
        let keys: BTreeSet<_> = bench.world.lines(effect).into_iter().map(|line| line.key).collect();
        assert_eq!(keys.len(), ids.len(), "{effect}: {keys:?}");
    }
}
