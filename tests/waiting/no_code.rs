//! Runs whose workflow is not in this binary: they are kept, and so is what comes for them. O-VR-2.

use std::future::IntoFuture;

use durable::{__rt, Answered, Code, Filter, Reply, Status, StatusKind, WorkflowCall};
use serde_json::json;

use crate::bench::{BOTH, Bench, in_time, refused};

/// A workflow that link-time registration does not know, as if it were in another binary: asks, then takes a message.
fn unlinked() -> WorkflowCall<u64> {
    static META: __rt::WorkflowMeta = __rt::WorkflowMeta {
        name: "unlinked",
        explicit_name: false,
        function: "unlinked",
        module: module_path!(),
        file: file!(),
        line: line!(),
        params: &[],
        sites: &SITES,
        returns: || __rt::Returns { fault: None, check: |value| value.decode::<u64>().map(drop), is_result: false },
        run: |_| {
            Ok(Box::pin(async {
                let asked = __rt::step(durable::ask::<u64>("how much?"), &SITES[0]).await.granted().unwrap_or_default();
                let told = __rt::step(durable::signal::<u64>("more"), &SITES[1]).await;
                __rt::Returned { ok: true, value: durable::Value::encode(&(asked + told)), message: String::new() }
            }))
        },
    };
    static SITES: [__rt::Site; 2] =
        __rt::sites(module_path!(), "unlinked", file!(), [("durable::ask", line!()), ("durable::signal", line!())]);
    __rt::WorkflowArgs::new(&META).call()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_for_a_run_without_its_code_is_kept_until_the_code_is_back() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", unlinked()).await.unwrap();
        let token = bench.token("run").await;
        let bench = bench.restarted().await;
        let status = bench.until("run", "waiting for code").await;
        assert!(status.next_action().unwrap().contains("unlinked"));
        assert_eq!(bench.runtime.runs(Filter::all().status(StatusKind::WaitingForCode)).await.unwrap().len(), 1);
        bench.sound().await;
        // Both are accepted, and change nothing for now.
        bench.runtime.signal("run", "more", &2).await.unwrap();
        assert_eq!(bench.token("run").await, token);
        assert_eq!(bench.runtime.answer(&token, Reply::granted(&40)).by("ann").await.unwrap(), Answered::Kept);
        // Nobody knows here whether 40 is an answer; the first that is one counts.
        assert_eq!(bench.runtime.answer(&token, Reply::granted(&50)).by("bob").await.unwrap(), Answered::Kept);
        assert_eq!(bench.status("run").await, status);
        assert_eq!(bench.run("run").await.messages().await.unwrap().len(), 1);
        let bench = bench.restarted().await;
        bench.until("run", "waiting for code").await;
        // The code comes with a call of it.
        bench.runtime.start("another", unlinked()).await.unwrap();
        bench.until("run", "completed").await;
        assert_eq!(bench.end("run").await, json!(42));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_its_code_is_cancelled_by_its_log() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", unlinked()).await.unwrap();
        let token = bench.token("run").await;
        let bench = bench.restarted().await;
        bench.until("run", "waiting for code").await;
        let cancel = bench.runtime.cancel("run", "its code will not be back").by("ann").into_future();
        let end = Status::Cancelled { reason: "its code will not be back".into() };
        assert_eq!(in_time("the cancel", cancel).await.unwrap(), end);
        assert_eq!(bench.names("run").await.last(), Some(&"run.cancelled"));
        refused(bench.runtime.answer(&token, Reply::granted(&40)).await, Code::QuestionClosed);
        // With its code back it is as it was.
        bench.runtime.start("another", unlinked()).await.unwrap();
        let bench = bench.restarted().await;
        assert_eq!(bench.status("run").await, end);
    }
}
