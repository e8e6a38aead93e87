//! What a child does.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use durable::{
    Code, Error, Filter, Resolution, Run, Runtime, Status, WorkflowCall,
    store::sled::{SledOptions, SledStore},
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    child::{How, Said, Task, What, ledger_path, say, store_path},
    common::{
        check::Shown,
        company::{company, company_of, doomed},
        everything::{everything, everything_of, one},
        ledger::{FileLedger, World},
        outside::{self, Known},
    },
    stops::{Labelled, Stop, stop_here},
};

/// The run of [`What::One`] and of [`What::Company`].
pub(crate) const RUN: &str = "one";
/// Runs of a load that go on at a time.
const AT_ONCE: usize = 8;

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
        let builder = Runtime::builder().resource(world.clone()).cancel_grace(Duration::from_secs(1));
        // A request of a body that a kill ended is on its way for no longer than it takes to write a line.
        let builder = builder.settle(Duration::from_millis(20)).evict_after(Duration::from_millis(5));
        let runtime = builder.open_store(Arc::new(store)).await.unwrap();
        match task.what {
            What::One { contract } => say(&Said::Report(go_on(&runtime, contract, None).await)),
            What::Resolve { contract, how } => say(&Said::Report(go_on(&runtime, contract, Some(how)).await)),
            What::Company { fails, cancelled } => keep_company(&runtime, world, fails, cancelled).await.unwrap(),
            What::Load { runs } => load_runs(&runtime, world, runs).await.unwrap(),
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
    let hold = runtime.holds().await.unwrap().remove(0);
    runtime.resolve(RUN, hold.step, hold.attempt, word()).await.unwrap();
    match runtime.resolve(RUN, hold.step, hold.attempt, word()).await {
        Ok(_) => "accepted".to_owned(),
        Err(e) => e.code().to_string(),
    }
}

/// What the world outside does for all runs, and what it has said of that.
struct Outside {
    runtime: Runtime,
    world: World,
    known: Known,
    said: BTreeMap<String, Shown>,
    /// Runs that somebody has cancelled in this life.
    cancelled: BTreeSet<String>,
}

impl Outside {
    fn new(runtime: &Runtime, world: World) -> Outside {
        let (known, said, cancelled) = Default::default();
        Outside { runtime: runtime.clone(), world, known, said, cancelled }
    }

    /// Does what there is to do now.
    async fn act(&mut self) -> Result<(), Error> {
        outside::answer(&self.runtime, &self.known).await?;
        outside::resolve(&self.runtime, &self.world, &self.known).await;
        self.tell();
        Ok(())
    }

    fn cancel(&mut self, run: String) {
        if self.cancelled.insert(run.clone()) {
            tokio::spawn(outside::cancel(self.runtime.clone(), run, self.known.clone()));
        }
    }

    /// Says what it knows and has not said.
    fn tell(&mut self) {
        let known = self.known.all().clone();
        let news: BTreeMap<_, _> = known.iter().filter(|(run, shown)| self.said.get(*run) != Some(*shown)).collect();
        if !news.is_empty() {
            say(&Said::Known(news.into_iter().map(|(run, shown)| (run.clone(), shown.clone())).collect()));
            self.said = known;
        }
    }
}

/// One run and those that it spawns; the run, or the child that is there for that, is cancelled.
async fn keep_company(runtime: &Runtime, world: World, fails: bool, cancelled: bool) -> Result<(), Error> {
    let mut outside = Outside::new(runtime, world);
    runtime.start(RUN, company(RUN.to_owned(), fails)).await?;
    say(&Said::Started(RUN.to_owned()));
    outside.known.of(RUN, |shown| shown.started = true);
    outside::speak(runtime, RUN, &outside.known).await?;
    loop {
        outside.act().await?;
        if outside::is_doomed(runtime, RUN).await? {
            outside.cancel(if cancelled { RUN.to_owned() } else { doomed(RUN) });
        }
        // Looked at before the list: what it has made by its end is in that.
        let status = outside::look(runtime, RUN, &outside.known).await?;
        outside::read(runtime, RUN, &outside.known).await?;
        let unfinished = outside::unfinished(runtime).await?;
        if let Some((run, status)) = unfinished.iter().find(|(_, status)| matches!(status, Status::Parked(_))) {
            let status = format!("{run}: {status:?}");
            say(&Said::Report(Report { status, ..Report::default() }));
            return Ok(());
        }
        if unfinished.is_empty() && status.is_terminal() {
            outside.tell();
            say(&Said::Report(Report { status: status.as_str().to_owned(), ..Report::default() }));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The run with this number in a load.
pub(crate) fn id(n: u32) -> String {
    format!("run-{n:03}")
}

/// What the run with this number does, and what it returns; every third waits for others, and some of those fail.
fn call(n: u32) -> WorkflowCall<durable::Result<String>> {
    match n % 3 {
        2 => company(id(n), n % 6 == 5),
        _ => everything(id(n)),
    }
}

pub(crate) fn output(n: u32) -> Result<String, String> {
    match n % 3 {
        2 => company_of(&id(n), n % 6 == 5),
        _ => Ok(everything_of(&id(n))),
    }
}

/// Whether the run with this number is cancelled on its way.
pub(crate) fn is_cancelled(n: u32) -> bool {
    n % 9 == 8
}

/// Goes on with eight runs at a time, and plays the world outside.
async fn load_runs(runtime: &Runtime, world: World, runs: u32) -> Result<(), Error> {
    let mut outside = Outside::new(runtime, world);
    // Runs are begun in order, so those that ended and those under way are the first ones. Their children have other ids.
    let number = |id: &str| id.strip_prefix("run-").and_then(|n| n.parse::<u32>().ok());
    let all = runtime.runs(Filter::all()).await?;
    let mut next = all.iter().filter_map(|info| number(info.id.as_str())).max().map_or(0, |n| n + 1);
    let mut open = BTreeMap::new();
    for n in all.iter().filter(|info| !info.status.is_terminal()).filter_map(|info| number(info.id.as_str())) {
        open.insert(n, start(&outside, n).await?);
    }
    loop {
        while open.len() < AT_ONCE && next < runs {
            open.insert(next, start(&outside, next).await?);
            next += 1;
        }
        if open.is_empty() && outside::unfinished(runtime).await?.is_empty() {
            outside.tell();
            say(&Said::Done);
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        open.retain(|_, run| !run.is_finished());
        outside.act().await?;
        for n in open.keys().filter(|n| **n % 3 == 2) {
            if outside::is_doomed(runtime, &id(*n)).await? {
                outside.cancel(if is_cancelled(*n) { id(*n) } else { doomed(&id(*n)) });
            }
        }
    }
}

/// Starts the run, or finds it, and waits for its output.
async fn start(outside: &Outside, n: u32) -> Result<tokio::task::JoinHandle<()>, Error> {
    let run = outside.runtime.start(id(n), call(n)).await?;
    say(&Said::Started(id(n)));
    let (runtime, known) = (outside.runtime.clone(), outside.known.clone());
    Ok(tokio::spawn(async move {
        if n % 3 == 2 {
            outside::speak(&runtime, &id(n), &known).await.unwrap();
        }
        loop {
            match run.output().await {
                Ok(output) => return say(&Said::Output(id(n), Ok(output))),
                // So many deaths during its replays; it is none of its own doing.
                Err(e) if e.code() == Code::DiedInReplay => drop(runtime.retry(run.id().as_str()).await),
                Err(e) if e.is_run_cancelled() => return,
                Err(e) => {
                    let text = e.failure().and_then(|failure| failure["message"].as_str().map(str::to_owned));
                    return say(&Said::Output(id(n), Err(text.unwrap_or_else(|| e.to_string()))));
                }
            }
        }
    }))
}
