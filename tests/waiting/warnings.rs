//! What needs somebody is said where the program's own warnings go.

use durable::{EffectContext, Resolution};
use serde_json::json;

use crate::{
    bench::{Backend, Bench, until},
    traces,
};

/// Does not know what it did.
#[durable::effect(at_most_once)]
async fn unsure(cx: &EffectContext, n: u64) -> durable::Result<u64> {
    Err(cx.in_doubt(format!("no answer after {n}")))?
}

#[durable::workflow]
async fn needs_somebody() -> durable::Result<u64> {
    let n = durable::signal("n").await;
    let n = unsure(n).await?;
    durable::untracked(|| assert_eq!(n, 0, "more than nothing"));
    Ok(n)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_somebody_is_said_once_as_a_warning_about_its_run() {
    traces::keep("waiting");
    let from = traces::kept();
    let bench = Bench::forgetful(Backend::Sled).await;
    bench.runtime.start("needs-somebody", needs_somebody()).await.unwrap();
    bench.until_away("needs-somebody").await;
    bench.runtime.signal("needs-somebody", "n", "three").await.unwrap();
    until("it to be set aside", async || bench.entries("needs-somebody", "signal.set_aside").await.len() == 1).await;
    bench.runtime.signal("needs-somebody", "n", &3).await.unwrap();
    bench.until("needs-somebody", "held").await;
    // Woken for what it does not wait for, and by another process.
    for n in 0..3 {
        bench.until_away("needs-somebody").await;
        bench.runtime.signal("needs-somebody", "other", &n).await.unwrap();
        assert_eq!(bench.runtime.holds().await.unwrap().len(), 1);
    }
    let bench = bench
        .observed(async |observer| {
            let hold = observer.holds().await.unwrap().remove(0);
            let word = Resolution::succeeded("one").by("ann");
            observer.resolve(&hold.run, hold.step, hold.attempt, word).await.unwrap();
        })
        .await;
    until("it to be set aside", async || bench.entries("needs-somebody", "resolution.set_aside").await.len() == 1)
        .await;
    let hold = bench.runtime.holds().await.unwrap().remove(0);
    bench.runtime.resolve("needs-somebody", hold.step, hold.attempt, Resolution::succeeded(1)).await.unwrap();
    bench.until("needs-somebody", "parked").await;
    let lines = traces::lines_of("needs-somebody", from);
    let said =
        |what: &str| lines.iter().filter(|line| line.contains("run id=needs-somebody") && line.contains(what)).count();
    for what in [
        "a message is set aside, the wait goes on: ",
        "held, as nobody knows what it did: no answer after 3; find out",
        "`durable resolve needs-somebody 1 1 ..`",
        "a resolution is set aside, the step is in doubt: ",
        "more than nothing",
    ] {
        assert_eq!(said(what), 1, "{what}: {lines:#?}");
    }
    assert_eq!(bench.run("needs-somebody").await.messages().await.unwrap()[0].value, json!(0));
}
