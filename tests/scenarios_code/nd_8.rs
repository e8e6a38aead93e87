//! O-ND-8: what an error says is the same live and on replay.
//!
//! The test runs itself twice more, as processes of their own with other settings for backtraces and in a thread of another name; the first
//! dies in the body of `report` (K2). Another build path would need another build: what is recorded of an error holds no path.

use std::{fmt, io, path::Path, process::Command, time::Duration};

use durable::{EffectContext, Failure, Fault, Runtime};
use serde::{Deserialize, Serialize};

use crate::support::{Backend, Bench, World};

#[derive(Debug)]
struct Link(&'static str, Option<Box<dyn std::error::Error + Send + Sync>>);

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Link {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|error| error as _)
    }
}

fn chain() -> Link {
    Link("cannot charge", Some(Box::new(Link("no route", Some(Box::new(io::Error::other("cable cut")))))))
}

#[durable::effect(read_only)]
async fn e1(way: &str) -> durable::Result<u32> {
    let error = anyhow::Error::new(chain()).context("while paying");
    // A captured backtrace, if the process captures any.
    let _ = format!("{error:?}");
    match way {
        "anyhow" => Err(error)?,
        "kind" => Err(Failure::from(error).with_kind("declined").with_value(&(3, "x"))),
        "panic" => panic!("in thread {:?}", "any"),
        _ => Ok(1),
    }
}

#[durable::effect(read_only, timeout = "10s")]
async fn slow(#[resource] world: &World) -> durable::Result<u32> {
    world.pass("slow").await;
    Ok(1)
}

#[durable::effect(at_most_once, in_doubt = error)]
async fn doubtful(cx: &EffectContext) -> durable::Result<u32> {
    Err(cx.in_doubt("no answer"))?
}

#[durable::effect(idempotent, retry(attempts = 2, first = "1s"))]
async fn used_up() -> Result<u32, Declined> {
    Err(Declined::Card { code: 51, text: "insufficient".into() })
}

/// An error type of the user's own, faults and all.
#[derive(Debug, Serialize, Deserialize, PartialEq, Clone)]
enum Declined {
    Card { code: u32, text: String },
    Engine(Fault),
}

impl From<Fault> for Declined {
    fn from(fault: Fault) -> Declined {
        Declined::Engine(fault)
    }
}

#[durable::effect(idempotent)]
async fn report(cx: &EffectContext, #[resource] world: &World, #[resource] place: &Place, text: &str) -> u64 {
    world.note(cx, text);
    place.arrive(text);
    text.len() as u64
}

/// Where a process of its own writes what `report` was given, and whether it dies there.
#[derive(Clone)]
pub(crate) struct Place(pub(crate) Option<(std::path::PathBuf, bool)>);

impl Place {
    fn arrive(&self, text: &str) {
        if let Some((ledger, dies)) = &self.0 {
            use std::io::Write;
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(ledger).unwrap();
            writeln!(file, "{text:?}").unwrap();
            if *dies {
                std::process::abort();
            }
        }
    }
}

#[durable::workflow]
async fn reports(way: String) -> u64 {
    match way.as_str() {
        "slow" => match slow().await {
            Err(e) => report(&format!("{e:?} {e} {:?} {:?}", e.kind(), e.fault())).await,
            Ok(_) => 0,
        },
        "in doubt" => match doubtful().await {
            Err(e) => report(&format!("{e:?} {e} {:?} {:?}", e.kind(), e.fault())).await,
            Ok(_) => 0,
        },
        "used up" => match used_up().await {
            Err(e) => report(&format!("{e:?}")).await,
            Ok(_) => 0,
        },
        "elapsed" => match durable::timeout(Duration::from_secs(5), slow()).await {
            Err(e) => {
                let failure = Failure::from(e);
                report(&format!("{failure:?} {failure} {:?}", failure.kind())).await
            }
            Ok(_) => 0,
        },
        way => match e1(way).await {
            Err(e) => report(&format!("{e:?} {e} {:?} {:?}", e.kind(), e.causes())).await,
            Ok(_) => 0,
        },
    }
}

const WAYS: [(&str, &[&str]); 7] = [
    (
        "anyhow",
        &["while paying: cannot charge: no route: cable cut", "[\"cannot charge\", \"no route\", \"cable cut\"]"],
    ),
    ("kind", &["Some(\"declined\")", "cable cut"]),
    ("panic", &["Some(\"panicked\")", "attempt 1 of `e1` panicked: in thread"]),
    ("slow", &["Some(\"timed_out\")", "TimedOut { effect: \"slow\", attempt: 1, timeout_ms: 10000 }"]),
    ("in doubt", &["Some(\"in_doubt\")", "no answer"]),
    ("used up", &["Card { code: 51, text: \"insufficient\" }"]),
    ("elapsed", &["Some(\"elapsed\")", "not ready within 5s"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_seen_live_is_the_recorded_one_and_its_kind_and_causes_survive() {
    for (way, parts) in WAYS {
        let bench = Bench::on(Backend::Memory).await;
        bench.world.close("slow");
        bench.runtime.start("reports", reports(way.into())).await.unwrap();
        let time = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                bench.clock.advance(Duration::from_millis(500));
            }
        };
        tokio::select! {
            ended = bench.end("reports") => ended.unwrap(),
            () = time => unreachable!("time passes for ever"),
        }
        let inputs = bench.world.inputs("report");
        assert_eq!(inputs.len(), 1, "{way}");
        for part in parts {
            assert!(inputs[0].contains(part), "{part} is not in {}", inputs[0]);
        }
        assert!(!inputs[0].contains("backtrace") && !inputs[0].contains(".rs:"), "{}", inputs[0]);
        bench.replays("reports").await;
        // K2 in `report`: the cut behind its call.
        let (tape, log) = (bench.tape("reports"), bench.log("reports").await);
        let called = log.iter().position(|e| e.path.as_deref() == Some("report[0]")).unwrap() + 1;
        let next = Bench::after(&tape, called, &bench.clock).await;
        next.end("reports").await.unwrap();
        assert_eq!(next.world.inputs("report"), inputs, "{way}");
    }
}

const CHILD: &str = "DURABLE_TEST_ND_8";

#[test]
fn backtraces_and_thread_names_make_no_difference_across_processes() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return child(Path::new(&dir), std::env::var_os("DURABLE_TEST_ND_8_DIES").is_some());
    }
    let dir = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let again = |backtrace: &str, dies: bool| {
        let mut command = Command::new(&me);
        command.args(["--exact", "nd_8::backtraces_and_thread_names_make_no_difference_across_processes"]);
        command.env(CHILD, dir.path()).env("RUST_BACKTRACE", backtrace);
        if dies {
            command.env("DURABLE_TEST_ND_8_DIES", "1");
        }
        command.output().unwrap()
    };
    assert!(!again("1", true).status.success(), "it dies in the body of report");
    let second = again("0", false);
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    let ledger = std::fs::read_to_string(dir.path().join("ledger")).unwrap();
    let lines: Vec<_> = ledger.lines().collect();
    assert_eq!(lines.len(), 2, "{ledger}");
    assert_eq!(lines[0], lines[1]);
    assert!(lines[0].contains("cable cut"));
}

/// One life of the run, in a thread of a name of its own.
fn child(dir: &Path, dies: bool) {
    let ledger = dir.join("ledger");
    let store = dir.join("store");
    let life = move || {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let builder = Runtime::builder().resource(World::new()).resource(Place(Some((ledger, dies))));
            let runtime = builder.open(store).await.unwrap();
            let run = runtime.start("reports", reports("anyhow".into())).await.unwrap();
            run.returned().await.unwrap();
            runtime.shutdown(Duration::ZERO).await.unwrap();
        });
    };
    std::thread::Builder::new().name(format!("life of {}", std::process::id())).spawn(life).unwrap().join().unwrap();
}
