//! O-AG-3: a loop of tool calls that is interrupted at each of its calls.

use std::{path::Path, sync::Mutex, thread};

use durable::{EffectContext, Failure, Resolution, Runtime, TestClock, store::Write};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Backend, Bench, open_sled, secs, until},
    child, frames,
    odd_store::{Fuse, stopping},
    world::World,
};

/// Rounds with tool calls; the model's last answer has none.
const ROUNDS: usize = 4;
const TOOLS: usize = 3;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Call {
    tool: usize,
    arguments: String,
}

/// Too long is too long, however often it is asked.
fn may_be_asked_again(failure: &Failure) -> bool {
    !failure.message().contains("context too long")
}

#[durable::effect(key, timeout = "60s", retry(attempts = 3, first = "1s", if = may_be_asked_again))]
async fn llm(cx: &EffectContext, #[resource] world: &World, history: &[String]) -> durable::Result<Vec<Call>> {
    let round = history.len() / TOOLS;
    reached(cx, world, &format!("llm {round}")).await;
    if history.first().is_some_and(|first| first == "a whole library") {
        return Err(Failure::new("context too long"));
    }
    let call = |tool| Call { tool, arguments: format!("round {round}, tool {tool}") };
    Ok(if round < ROUNDS { (0..TOOLS).map(call).collect() } else { Vec::new() })
}

#[durable::effect(read_only)]
async fn search(cx: &EffectContext, #[resource] world: &World, arguments: &str) -> durable::Result<String> {
    reached(cx, world, arguments).await;
    Ok(format!("searched {arguments}"))
}

#[durable::effect(idempotent)]
async fn file(cx: &EffectContext, #[resource] world: &World, arguments: &str) -> durable::Result<String> {
    reached(cx, world, arguments).await;
    Ok(format!("filed {arguments}"))
}

#[durable::effect(at_most_once)]
async fn wire(cx: &EffectContext, #[resource] world: &World, arguments: &str) -> durable::Result<String> {
    reached(cx, world, arguments).await;
    Ok(format!("wired {arguments}"))
}

/// Notes the body; and stops there, if the child is to die in it.
async fn reached(cx: &EffectContext, world: &World, what: &str) {
    world.note(cx, what);
    world.pass(what).await;
}

#[durable::part]
async fn tool(call: Call) -> durable::Result<String> {
    match call.tool {
        0 => search(&call.arguments).await,
        1 => file(&call.arguments).await,
        _ => wire(&call.arguments).await,
    }
}

#[durable::workflow]
async fn agent(mut history: Vec<String>) -> durable::Result<Vec<String>> {
    for _ in 0..=ROUNDS {
        let calls = llm(&history).await?;
        if calls.is_empty() {
            break;
        }
        for result in durable::join_all(calls.into_iter().map(tool)).await {
            history.push(result?);
        }
    }
    Ok(history)
}

fn history() -> Vec<String> {
    let did = ["searched", "filed", "wired"];
    (0..ROUNDS)
        .flat_map(|round| (0..TOOLS).map(move |tool| format!("{} round {round}, tool {tool}", did[tool])))
        .collect()
}

/// One call: in which round, and which of them; `None` is the model's.
#[derive(Clone, Copy, Debug)]
struct At {
    round: usize,
    tool: Option<usize>,
    point: &'static str,
}

impl At {
    fn all() -> Vec<At> {
        let calls = (0..ROUNDS)
            .flat_map(|round| std::iter::once(None).chain((0..TOOLS).map(Some)).map(move |tool| (round, tool)));
        let calls = calls.chain([(ROUNDS, None)]);
        calls.flat_map(|(round, tool)| ["K2", "K3", "K4"].map(|point| At { round, tool, point })).collect()
    }

    /// The call's input.
    fn input(self) -> String {
        match self.tool {
            None => format!("llm {}", self.round),
            Some(tool) => format!("round {}, tool {tool}", self.round),
        }
    }

    fn effect(self) -> &'static str {
        self.tool.map_or("llm", |tool| ["search", "file", "wire"][tool])
    }

    fn word(self) -> String {
        format!("{}|{}", self.point, self.input())
    }
}

/// Plays the agent until its point. The other tools of the round are through by then.
pub(crate) async fn child(dir: &Path, word: &str) {
    let (point, input) = word.split_once('|').unwrap();
    let world = World::in_file(dir.join("ledger"));
    world.close(input);
    let (before, after) = (point == "K3", point == "K4");
    // The outcome that is about this call is the one that comes when its gate has opened.
    let opened = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let open = opened.clone();
    let counts = move |write: &Write| {
        open.load(std::sync::atomic::Ordering::SeqCst) && frames::names(write).contains(&"effect.result")
    };
    let fuse = if before { Fuse::Before(1) } else { Fuse::After(1) };
    let store = stopping(open_sled(dir.join("store")).await.unwrap(), counts, fuse);
    let builder = Runtime::builder().resource(world.clone()).clock(TestClock::at(BEGINNING));
    let runtime = builder.open_store(store).await.unwrap();
    let run = runtime.start("run", agent(Vec::new())).await.unwrap();
    until("the body", async || world.ledger().iter().any(|line| line.input == input)).await;
    if let Some(round) = input.strip_prefix("round ") {
        // Its siblings are through, and what they gave is on disk.
        let round: usize = round.split_once(',').unwrap().0.parse().unwrap();
        let results = round * (1 + TOOLS) + 1 + TOOLS - 1;
        let count = async || run.log().await.unwrap().iter().filter(|entry| entry.name == "effect.result").count();
        until("its siblings", async || count().await == results).await;
    }
    if !before && !after {
        child::stop();
    }
    opened.store(true, std::sync::atomic::Ordering::SeqCst);
    world.open(input);
    std::future::pending::<()>().await;
}

/// Kills a process there, lets the next one go on, and checks what it does.
async fn interrupted(at: At) {
    let dir = tempfile::tempdir().unwrap();
    let (path, word) = (dir.path().to_owned(), at.word());
    tokio::task::spawn_blocking(move || child::killed("ag_3", &path, &word)).await.unwrap();
    let bench = Bench::at(dir.path(), &TestClock::at(BEGINNING + secs(1))).await;
    // What may run once stops the run, with its arguments shown; its siblings are not called again. It is in doubt too if it was called
    // with the batch that holds the model's answer.
    let called = at.tool.is_none() && at.point == "K4" && at.round < ROUNDS;
    let in_doubt = at.tool == Some(2) && at.point != "K4";
    if in_doubt || called {
        let hold = bench.held("run").await;
        let arguments = format!("round {}, tool 2", at.round);
        assert_eq!((hold.effect.as_str(), &hold.args["arguments"]), ("wire", &json!(arguments)), "{at:?}");
        assert_eq!(bench.world.lines("llm").len(), at.round + 1, "{at:?}: the model is not asked meanwhile");
        bench.stands("run").await;
        let word = match in_doubt {
            true => Resolution::succeeded(format!("wired {arguments}")),
            false => Resolution::run_again(),
        };
        bench.runtime.resolve("run", hold.step, hold.attempt, word).await.unwrap();
    }
    assert_eq!(bench.end("run").await, json!({ "Ok": history() }), "{at:?}: results in the order of the calls");
    let twice = at.point != "K4" && !in_doubt;
    let ledger = bench.world.ledger();
    for of in At::all().into_iter().step_by(3) {
        let bodies: Vec<_> =
            ledger.iter().filter(|line| line.effect == of.effect() && line.input == of.input()).collect();
        let expected = match of.tool {
            // Nobody outside can tell, so nothing holds its body back until its call is on disk.
            Some(0) if called && of.round == at.round => 1..=2,
            _ if twice && of.input() == at.input() => 2..=2,
            _ => 1..=1,
        };
        assert!(expected.contains(&bodies.len()), "{at:?}: bodies of {of:?}: {bodies:?}");
        assert!(bodies.iter().all(|body| body.key == bodies[0].key), "{at:?}: with one key: {bodies:?}");
    }
    bench.replays_some("run").await;
}

#[test]
fn a_kill_in_any_call_of_any_round_repeats_that_call_at_most() {
    let points = Mutex::new(At::all().into_iter());
    assert_eq!(points.lock().unwrap().len(), 3 * (ROUNDS * (1 + TOOLS) + 1));
    thread::scope(|scope| {
        let work = || {
            let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            loop {
                let Some(at) = points.lock().unwrap().next() else { return };
                threads.block_on(interrupted(at));
            }
        };
        let all: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_finish_in_any_order_are_appended_in_the_order_of_the_calls() {
    let bench = Bench::on(Backend::Memory).await;
    for round in 0..ROUNDS {
        for tool in 0..TOOLS {
            bench.world.close(format!("round {round}, tool {tool}"));
        }
    }
    let run = bench.runtime.start("run", agent(Vec::new())).await.unwrap();
    for round in 0..ROUNDS {
        bench.world.until_noted("wire", round + 1).await;
        // Another order each time.
        for n in 0..TOOLS {
            bench.world.open(&format!("round {round}, tool {}", (round + 2 * n) % TOOLS));
            until("its outcome", async || bench.count("run", "effect.result").await > round * (TOOLS + 1) + 1 + n)
                .await;
        }
    }
    assert_eq!(run.output().await.unwrap(), history());
    bench.replays("run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_that_is_too_long_is_not_sent_again() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("run", agent(vec!["a whole library".into()])).await.unwrap();
    assert!(run.output().await.unwrap_err().to_string().contains("context too long"));
    assert_eq!(bench.world.bodies("llm"), 1);
    bench.replays("run").await;
}
