//! What a child does.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use durable::{
    Code, Filter, Resolution, Run, Runtime, Status,
    store::sled::{SledOptions, SledStore},
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    child::{How, Said, Task, What, ledger_path, say, store_path},
    common::{
        everything::{everything, one},
        ledger::{FileLedger, Ledger as _, World},
    },
    stops::{Labelled, Stop, stop_here},
};

/// The run of [`What::One`].
pub(crate) const RUN: &str = "one";
/// Runs of a load that go on at a time.
const AT_ONCE: u32 = 8;

/// How a run stands when its process reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) status: String,
    pub(crate) output: Option<Result<String, String>>,
    pub(crate) log: Vec<Json>,
    /// What the second of two resolutions was answered.
    pub(crate) twice: Option<String>,
}

pub(crate) fn work(task: Task) {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(async {
        let load = matches!(task.what, What::Load { .. });
        let ledger = FileLedger::open(&ledger_path(&task.place));
        let stop = task.stop;
        let pace = if load { Duration::from_millis(2) } else { Duration::ZERO };
        let world = World::slow(ledger, pace, move |_| {
            if stop == Stop::InBody {
                stop_here();
            }
        });
        let store = SledStore::open(store_path(&task.place), SledOptions::new()).unwrap();
        let store = Labelled::new(store, stop, task.broken);
        let builder = Runtime::builder().resource(world).unwanted_grace(Duration::from_secs(1));
        let runtime = builder.open_store(Arc::new(store)).await.unwrap();
        match task.what {
            What::One { contract } => say(&Said::Report(go_on(&runtime, contract, None).await)),
            What::Resolve { contract, how } => say(&Said::Report(go_on(&runtime, contract, Some(how)).await)),
            What::Load { runs } => load_runs(&runtime, &task.place, runs).await,
        }
    });
    // What it has said is shown, so from here a kill must lose nothing: no shutdown helps.
    loop {
        std::thread::park();
    }
}

async fn go_on(runtime: &Runtime, contract: String, how: Option<How>) -> Report {
    let run = runtime.start(RUN, one(contract)).await.unwrap();
    say(&Said::Started(RUN.to_owned()));
    let mut output = pin!(run.output());
    let mut twice = None;
    loop {
        tokio::select! {
            biased;
            output = &mut output => {
                let output = output.map_err(|e| e.to_string());
                return report(&run, run.status().await.unwrap(), Some(output), twice).await;
            }
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
        match (run.status().await.unwrap(), how) {
            (Status::Held { .. }, Some(how)) if twice.is_none() => twice = Some(resolve(runtime, how).await),
            (status @ Status::Held { .. }, None) => return report(&run, status, None, None).await,
            _ => {}
        }
    }
}

async fn report(
    run: &Run<durable::Result<String>>,
    status: Status,
    output: Option<Result<String, String>>,
    twice: Option<String>,
) -> Report {
    let log = run.log().await.unwrap_or_default().iter().map(durable::LogEntry::to_json).collect();
    Report { status: status.as_str().to_owned(), output, log, twice }
}

/// A person's word on the step in doubt, given twice; what the second was answered.
async fn resolve(runtime: &Runtime, how: How) -> String {
    let word = || match how {
        How::Succeeded => Resolution::succeeded("a person's word"),
        How::Failed => Resolution::failed("a person's no"),
        How::RunAgain => Resolution::run_again(),
    };
    let hold = runtime.holds().await.remove(0);
    runtime.resolve(RUN, hold.step, hold.attempt, word()).await.unwrap();
    match runtime.resolve(RUN, hold.step, hold.attempt, word()).await {
        Ok(()) => "accepted".to_owned(),
        Err(e) => e.code().to_string(),
    }
}

/// The run with this number in a load.
pub(crate) fn id(n: u32) -> String {
    format!("run-{n:03}")
}

/// Goes on with eight runs at a time, and plays the person who resolves what is in doubt.
async fn load_runs(runtime: &Runtime, place: &std::path::Path, runs: u32) {
    let ended = runtime.runs(Filter::finished()).await.unwrap().len();
    // Runs are begun in order, so those that ended and those under way are the first ones.
    let unfinished = runtime.runs(Filter::unfinished()).await.unwrap();
    let mut open = BTreeMap::new();
    for info in &unfinished {
        let n = info.id.as_str().trim_start_matches("run-").parse().unwrap();
        open.insert(n, start(runtime, n).await);
    }
    let mut next = u32::try_from(ended + unfinished.len()).unwrap();
    let ledger = FileLedger::open(&ledger_path(place));
    loop {
        while open.len() < AT_ONCE as usize && next < runs {
            open.insert(next, start(runtime, next).await);
            next += 1;
        }
        if open.is_empty() {
            return say(&Said::Done);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        open.retain(|_, run| !run.is_finished());
        person(runtime, &ledger).await;
    }
}

/// Starts the run, or finds it, and waits for its output.
async fn start(runtime: &Runtime, n: u32) -> tokio::task::JoinHandle<()> {
    let run = runtime.start(id(n), everything(id(n))).await.unwrap();
    say(&Said::Started(id(n)));
    let runtime = runtime.clone();
    tokio::spawn(async move {
        loop {
            match run.output().await {
                Ok(output) => return say(&Said::Output(id(n), Ok(output))),
                // So many deaths during its replays; it is none of its own doing.
                Err(e) if e.code() == Code::DiedInReplay => drop(runtime.retry(run.id().as_str()).await),
                Err(e) => return say(&Said::Output(id(n), Err(e.to_string()))),
            }
        }
    })
}

/// What a person does about steps in doubt: looks into the ledger, and says what happened.
async fn person(runtime: &Runtime, ledger: &FileLedger) {
    let holds = runtime.holds().await;
    if holds.is_empty() {
        return;
    }
    let lines = ledger.lines();
    for hold in holds {
        let line = lines.iter().find(|line| line.run == hold.run.as_str() && line.path == hold.path);
        let word = match line {
            Some(line) => Resolution::succeeded(format!("wired {}", line.input)),
            None => Resolution::run_again(),
        };
        // It may have been resolved by the life before this one.
        let _ = runtime.resolve(hold.run.as_str(), hold.step, hold.attempt, word).await;
    }
}
