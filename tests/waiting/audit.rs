//! No run stands still for ever without anybody knowing; and those that are made to, are found.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use durable::{
    Finding, FindingKind, RunId, Runtime, StoreError,
    store::{Dump, Store, Wait, Write, Written},
};

use crate::{
    bench::{BOTH, Backend, Bench, act, doubtful, secs, stubborn, until},
    counting::Counting,
};

#[durable::workflow]
async fn waits(how: String) -> durable::Result<String> {
    act("begin").await?;
    match how.as_str() {
        "signal" => Ok(durable::signal("go").await),
        "sleep" => {
            durable::sleep(secs(3_600)).await;
            Ok(String::new())
        }
        "question" => {
            let question = durable::Question::new("go?").within(secs(3_600));
            Ok(durable::ask::<String>(question).await.granted().unwrap_or_default())
        }
        "child" => durable::spawn(waits("signal".into())).id("the child").await.await,
        "brood" => {
            let child = durable::spawn(waits("signal".into())).id("a chick").await;
            durable::timeout(secs(3_600), child).await.unwrap_or(Ok(String::new()))
        }
        "hold" => Ok(doubtful("wire").await?.to_string()),
        "cancel" => {
            durable::cancelled().await;
            Ok(String::new())
        }
        "busy" => stubborn("work").await,
        "parked" => {
            assert!(!durable::untracked(|| PANICS.load(Ordering::SeqCst)), "out of cheese");
            Ok(String::new())
        }
        _ => Ok("done".into()),
    }
}

static PANICS: AtomicBool = AtomicBool::new(true);

const WAITING: [&str; 8] = ["signal", "sleep", "question", "child", "hold", "the child", "brood", "a chick"];

async fn populated(backend: Backend) -> Bench {
    let bench = Bench::forgetful(backend).await;
    for how in ["signal", "sleep", "question", "child", "brood", "hold", "cancel", "busy", "parked", "done"] {
        bench.runtime.start(how, waits(how.into())).await.unwrap();
    }
    for id in WAITING {
        bench.until_away(id).await;
    }
    for (id, word) in [("cancel", "awaiting cancel"), ("busy", "running"), ("parked", "parked"), ("done", "completed")]
    {
        bench.until(id, word).await;
    }
    bench.outside.until_done("begin work").await;
    bench
}

async fn write(store: &Counting, write: Write) -> Result<Written, StoreError> {
    let (done, wait) = tokio::sync::oneshot::channel();
    store.submit(
        write,
        Box::new(move |result| {
            let _ = done.send(result);
        }),
    );
    wait.await.unwrap()
}

/// Puts a changed copy of a run into the store, behind the runtime's back.
async fn plant(bench: &Bench, of: &str, id: &str, change: impl FnOnce(&mut Dump)) {
    let mut dump = bench.store.dump(&RunId::new(of).unwrap()).unwrap().unwrap();
    change(&mut dump);
    let run = RunId::new(id).unwrap();
    assert_eq!(write(&bench.store, Write::Restore { run, dump: Box::new(dump) }).await, Ok(Written::Created));
}

async fn found(runtime: &Runtime) -> BTreeMap<String, Finding> {
    let found = runtime.audit().await.unwrap();
    found.into_iter().map(|finding| (finding.run.as_str().to_owned(), finding)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_stranded_wherever_it_waits_and_in_whatever_process() {
    for backend in BOTH {
        let bench = populated(backend).await;
        bench.sound().await;
        bench.outside.open();
        let bench = bench.restarted_built(Duration::ZERO, |builder| builder.evict_after(Duration::ZERO)).await;
        bench.sound().await;
        // Also while everything moves.
        let runtime = bench.runtime.clone();
        let audits = tokio::spawn(async move {
            for _ in 0..20 {
                assert_eq!(runtime.audit().await.unwrap(), []);
            }
        });
        for n in 0..200 {
            let id = format!("run {n}");
            bench.runtime.signal_or_start(&id, waits("signal".into()), "go", "gone").await.unwrap();
        }
        audits.await.unwrap();
        for n in 0..200 {
            bench.until(&format!("run {n}"), "completed").await;
        }
        bench.sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_made_to_stand_still_is_found() {
    for backend in BOTH {
        let bench = populated(backend).await;
        let wait = |dump: &mut Dump, due: Option<u64>| {
            let version = dump.record.version;
            dump.record.wait = Some(Wait { due, seen: version, code: 0 });
        };
        let begun_only = |dump: &mut Dump| {
            dump.logs[0].1.truncate(1);
            assert_eq!(dump.logs[0].1[0].count, 1, "run.started alone");
        };
        // None that anybody would wake; each a copy of one that is well.
        plant(&bench, "signal", "1 nobody has it", |dump| dump.record.wait = None).await;
        plant(&bench, "signal", "2 waits for nothing", |dump| {
            begun_only(dump);
            wait(dump, None);
        })
        .await;
        plant(&bench, "sleep", "3 forgot its time", |dump| wait(dump, None)).await;
        plant(&bench, "question", "4 never expires", |dump| wait(dump, None)).await;
        plant(&bench, "sleep", "5 has no alarm", |_| {}).await;
        plant(&bench, "sleep", "6 overslept", |dump| wait(dump, Some(1))).await;
        plant(&bench, "child", "7 has no child", |_| {}).await;
        plant(&bench, "busy", "8 left its work", |dump| wait(dump, None)).await;
        plant(&bench, "signal", "9 has mail", |dump| {
            dump.record.version += 1;
        })
        .await;
        plant(&bench, "done", "a is over", |dump| dump.record.head.live = true).await;
        plant(&bench, "signal", "b is damaged", |dump| {
            let record = &mut dump.logs[0].1[0];
            let mut frames = record.frames.to_vec();
            let last = frames.len() - 1;
            frames[last] ^= 1;
            record.frames = Bytes::from(frames);
        })
        .await;
        plant(&bench, "signal", "c is unlisted", |dump| dump.record.head.bytes = Bytes::from_static(b"?")).await;
        // And one that is well, for the copy itself is no finding.
        plant(&bench, "hold", "d is held", |_| {}).await;
        let found = found(&bench.runtime).await;
        let all: Vec<_> = found.iter().map(|(id, finding)| (&**id, finding.kind, &*finding.what)).collect();
        let (stranded, index) = (FindingKind::Stranded, FindingKind::Index);
        let want = [
            ("1 nobody has it", stranded, "no process has it, and it waits for nothing"),
            ("2 waits for nothing", stranded, "it waits for nothing that could come"),
            ("3 forgot its time", stranded, "step 1 is due at a time, and nothing will wake the run then"),
            ("4 never expires", stranded, "question 1 expires, and nothing will wake the run then"),
            ("5 has no alarm", stranded, "it waits for a time, and nothing in this process will wake it then"),
            ("6 overslept", stranded, "its time has come, and nobody has woken it"),
            ("7 has no child", stranded, "step 1 (spawn:waits[0]) waits for run \"the child\", which is not its child"),
            ("8 left its work", stranded, "step 1 is to be gone on with, and no process has the run"),
            ("9 has mail", stranded, "something has come for it, and nobody has woken it"),
            ("a is over", index, "its log has its terminal entry, and it is listed as going on"),
        ];
        assert_eq!(all[..want.len()], want);
        let (id, kind, what) = all[want.len()];
        assert!(id == "b is damaged" && kind == FindingKind::Damaged, "{id}: {what}");
        assert_eq!(all[want.len() + 1].1, index, "{:?}", all[want.len() + 1]);
        assert_eq!(all.len(), want.len() + 2);
        for finding in found.values() {
            assert!(finding.next.len() > 20 && finding.to_string().contains(finding.run.as_str()), "{finding}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_only_looks_takes_none_for_stranded_that_the_next_process_goes_on_with() {
    let bench = populated(Backend::Sled).await;
    bench.outside.open();
    plant(&bench, "signal", "1 nobody has it", |dump| dump.record.wait = None).await;
    plant(&bench, "child", "7 has no child", |_| {}).await;
    // That it waits for a time as well brings its child no nearer.
    plant(&bench, "brood", "e has a time and no child", |_| {}).await;
    let childless = ["7 has no child", "e has a time and no child"];
    let bench = bench
        .observed(async |observer| {
            let found: Vec<_> = found(observer).await.into_keys().collect();
            assert_eq!(found, childless);
        })
        .await;
    bench.until("1 nobody has it", "awaiting signal").await;
    until("them to be found", async || found(&bench.runtime).await.into_keys().eq(childless)).await;
}
