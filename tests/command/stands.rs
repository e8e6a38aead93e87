//! O-OB-2 with the command: a run that cannot go on says in which state it is, since when, and what is to be done; in a list and by
//! itself, beside the process that holds the store, and with no process.

use durable::__rt;
use serde_json::{Value as Json, json};

use crate::{
    bench::{Bench, until, until_state},
    holder::is_holder,
    work::look,
};

/// The code after a deploy is that of the process that holds the store.
fn changed() -> bool {
    is_holder()
}

/// A type that does not take any more what it once gave.
#[derive(serde::Serialize)]
struct Picky(u32);

impl<'de> serde::Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Picky, D::Error> {
        match changed() {
            true => Err(serde::de::Error::custom("an amount needs a currency")),
            false => u32::deserialize(deserializer).map(Picky),
        }
    }
}

#[durable::effect(read_only)]
async fn pick() -> Picky {
    Picky(5)
}

#[durable::workflow]
async fn picks() -> Option<u32> {
    let picked = pick().await.0;
    durable::ask::<u32>("is that enough?").await.granted().map(|more| more + picked)
}

#[durable::workflow]
async fn diverges() -> Option<u32> {
    look(if changed() { "what is new" } else { "what was there" }).await;
    durable::ask::<u32>("ok?").await.granted()
}

#[durable::effect(idempotent, retry(attempts = 100000, first = "1ms", max = "200ms"))]
async fn unlucky(cx: &durable::EffectContext) -> durable::Result<()> {
    Err(durable::Failure::new(format!("no route at {}", cx.attempt())))
}

#[durable::workflow]
async fn insists() -> durable::Result<()> {
    unlucky().await
}

/// A workflow that link-time registration does not know: whoever has not called it does not have it.
fn unlinked() -> durable::WorkflowCall<u64> {
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
                let told = __rt::step(durable::signal::<u64>("go"), &SITES[0]).await;
                __rt::Returned { ok: true, value: durable::Value::encode(&told), message: String::new() }
            }))
        },
    };
    static SITES: [__rt::Site; 1] = __rt::sites(module_path!(), "unlinked", file!(), [("durable::signal", line!())]);
    __rt::WorkflowArgs::new(&META).call()
}

/// What a run says in `runs` and `show`, for programs and for people.
struct Told {
    row: Json,
    table: String,
    shown: String,
}

/// A run as both commands tell it; they agree.
#[track_caller]
fn told(bench: &Bench, run: &str) -> Told {
    let rows = bench.durable(["--json", "runs"]).ok().lines();
    let row = rows.into_iter().find(|row| row["run"] == run).unwrap();
    let show = bench.durable(["--json", "show", run]).ok().json();
    for field in ["state", "since", "code", "next"] {
        assert_eq!(row[field], show[field], "{field}");
    }
    let since = humantime::parse_rfc3339(row["since"].as_str().unwrap()).unwrap();
    let started = humantime::parse_rfc3339(row["started_at"].as_str().unwrap()).unwrap();
    assert!(since >= started, "{row}");
    let table = bench.durable(["runs"]).ok().out;
    let table = table.lines().find(|line| line.starts_with(run)).unwrap().to_owned();
    let shown = bench.durable(["show", run]).ok().out;
    assert!(shown.contains("since") && shown.contains(row["state"].as_str().unwrap()), "{shown}");
    Told { row, table, shown }
}

impl Told {
    #[track_caller]
    fn says(&self, state: &str, next: &str) {
        assert_eq!(self.row["state"], state, "{}", self.row);
        assert!(self.row["next"].as_str().unwrap().contains(next), "{}", self.row);
        assert!(self.table.contains(state) && self.table.contains(next), "{}", self.table);
        let mut nexts = self.shown.lines().filter(|line| line.starts_with("next:"));
        assert!(nexts.next().unwrap().contains(next), "{}", self.shown);
        assert_eq!(nexts.next(), None, "nothing else gets it going: {}", self.shown);
    }
}

#[test]
fn a_run_whose_code_is_missing_says_which_code_it_wants() {
    let mut bench = Bench::new(async |runtime| {
        runtime.start("orphan", unlinked()).await.unwrap();
        until_state(runtime, "orphan", "awaiting signal").await;
    });
    bench.hold();
    bench.until_state("orphan", "waiting for code");
    let code = format!("{}::unlinked", module_path!());
    let live = told(&bench, "orphan");
    live.says("waiting for code", &format!("open the store with a process that has {code}"));
    assert_eq!(live.row["detail"], code);
    assert!(!live.shown.contains("durable signal"), "a signal does not get it going: {}", live.shown);
    bench.let_go();
    // Nobody knows here what code there is; that it waits for a message is so whoever has it.
    told(&bench, "orphan").says("awaiting signal", "durable signal");
    bench.durable(["signal", "orphan", "go", "7"]).ok();
    told(&bench, "orphan").says("interrupted", "open the store with a process that has its code");
    bench.hold();
    bench.until_state("orphan", "waiting for code");
}

#[test]
fn a_run_whose_recorded_value_does_not_decode_says_so_and_not_what_it_would_ask() {
    let mut bench = Bench::new(async |runtime| {
        for (run, call) in [("picky", picks()), ("changed", diverges())] {
            runtime.start(run, call).await.unwrap();
            until_state(runtime, run, "awaiting answer").await;
        }
    });
    bench.hold();
    let mut since = Vec::new();
    for held in [true, false] {
        for (run, code, why, next) in [
            ("picky", "DUR-0013", "an amount needs a currency", "make the type take the recorded form"),
            ("changed", "DUR-0011", "the code and the log disagree", "put the old code back"),
        ] {
            bench.until_state(run, "parked");
            let told = told(&bench, run);
            told.says("parked", next);
            assert_eq!(told.row["code"], code);
            assert!(told.row["detail"].as_str().unwrap().contains(why), "{}", told.row);
            assert!(told.shown.contains(&format!("durable explain {code}")), "{}", told.shown);
            assert!(!told.shown.contains("durable answer"), "an answer does not get it going: {}", told.shown);
            since.push(told.row["since"].clone());
        }
        if held {
            bench.let_go();
        }
    }
    assert_eq!(since[..2], since[2..], "since it was parked, whoever is asked");
    // The old code finds all as it was.
    bench.durable(["answer", "picky:0:ask@0", "--grant", "3"]).ok();
    bench.durable(["answer", "changed:0:ask@0", "--grant", "3"]).ok();
    for (run, answer) in [("picky", 3), ("changed", 3)] {
        let left = &told(&bench, run).row["left"];
        assert_eq!(*left, json!([format!("the answer to ask[0]: {answer} by tester")]), "a parked run keeps it too");
    }
    assert_eq!(bench.end_of("picky")["outcome"], 8);
    assert_eq!(bench.end_of("changed")["outcome"], 3);
}

/// The number of the last attempt at the first step that was begun.
fn tries(bench: &Bench) -> u64 {
    bench.durable(["--json", "show", "unlucky"]).ok().json()["steps"][0]["attempts"].as_u64().unwrap()
}

#[test]
fn a_run_that_is_retried_for_the_fortieth_time_says_so() {
    let mut bench = Bench::held(true, async |runtime| {
        runtime.start("unlucky", insists()).await.unwrap();
    });
    until("it was tried forty times", || tries(&bench) >= 40);
    let shown = bench.shown("unlucky", |shown| shown["state"] == "retrying");
    let step = &shown["steps"][0];
    assert_eq!(step["state"], "retrying");
    // An attempt that a shutdown kept from beginning has a number too.
    let attempt = step["outcome"]["message"].as_str().unwrap().strip_prefix("no route at ").unwrap();
    assert!(step["attempts"].as_u64().unwrap() >= 40 && attempt.parse::<u64>().unwrap() >= 40, "{shown}");
    let detail = shown["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("attempt {attempt} failed, the next one is due")), "{shown}");
    assert!(shown["next"].is_null(), "it goes on by itself: {shown}");
    assert!(shown["since"].is_string());
    // Killed between two attempts, which is most of the time.
    until("it rests between two attempts", || {
        bench.kill();
        until("the store is free", || bench.durable(["runs"]).code == Some(0));
        let rests = told(&bench, "unlucky").row["state"] == "retrying";
        if !rests {
            bench.hold();
        }
        rests
    });
    let told = told(&bench, "unlucky");
    told.says("retrying", "open the store with a process that has its code");
    assert!(told.row["detail"].as_str().unwrap().contains("failed"), "{}", told.row);
    assert!(tries(&bench) >= 40);
}
