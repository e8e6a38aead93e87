//! The runner: plays a row on a store, and checks what came of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
    time::{Duration, UNIX_EPOCH},
};

use durable::{
    AnyRun, Clock, Filter, LogEntry, Runtime, Status, TestClock,
    store::{
        Store,
        memory::MemoryStore,
        sled::{SledOptions, SledStore},
    },
};
use serde_json::Value as Json;

use crate::{
    common::{
        ledger::{FileLedger, Ledger, Line, MemoryLedger, World},
        replay,
    },
    dying, effects,
    lines::{self, shown},
    row::{Do, End, Hand, Played, Row, When},
};

/// How often each final log is replayed.
const REPLAYS: usize = 50;
/// No case takes that long, unless it hangs.
const DEADLINE: Duration = Duration::from_secs(120);
/// When every case begins.
const BEGINNING: Duration = Duration::from_secs(1_700_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sled,
}

pub(crate) const BOTH: [Backend; 2] = [Backend::Memory, Backend::Sled];

/// Plays a row and checks all that it says; then the replay check, again and again.
pub(crate) async fn check(row: &Row, backend: Backend) -> Result<(), String> {
    if row.na.is_some() {
        return Ok(());
    }
    let (stage, played) = staged(row, backend).await?;
    compare(row, &played)?;
    for run in played.others.keys().chain([&played.id]) {
        for n in 0..REPLAYS {
            let replayed = replay::replays(&*stage.process.store, run).await;
            replayed.map_err(|why| format!("replay {n} of {run}: {why}\n{}", shown(&played.log)))?;
        }
    }
    stage.process.end().await;
    Ok(())
}

/// Plays a row, and checks nothing.
pub(crate) async fn play(row: &Row, backend: Backend) -> Result<Played, String> {
    let (stage, played) = staged(row, backend).await?;
    stage.process.end().await;
    Ok(played)
}

async fn staged(row: &Row, backend: Backend) -> Result<(Stage<'_>, Played), String> {
    let mut stage = Stage::new(row, backend).await?;
    match tokio::time::timeout(DEADLINE, stage.play()).await {
        Ok(played) => played.map(|played| (stage, played)),
        Err(_) => Err(format!("it does not end: {}", stage.stands().await)),
    }
}

/// Compares what came of a row with what it says.
pub(crate) fn compare(row: &Row, played: &Played) -> Result<(), String> {
    let (status, returned) = match row.end {
        End::Completed(json) => ("completed", json),
        End::Failed(json) => ("failed", json),
    };
    let log = &played.log;
    if (played.status, &played.returned) != (status, &lines::json(returned)) {
        let (is, gave) = (played.status, &played.returned);
        return Err(format!("wanted {status} {returned}\nfound {is} {gave}\n{}", shown(log)));
    }
    let [first, between @ .., last] = &log[..] else { return Err("its log has no two entries".to_owned()) };
    if first.name != "run.started"
        || last.name != format!("run.{status}")
        || last.get("value") != Some(&played.returned)
    {
        return Err(format!("it does not begin or end as a log does\n{}", shown(log)));
    }
    lines::compare(between, &row.log)?;
    for (run, log) in played.others.iter().chain([(&played.id, log)]) {
        bodies(log, played.bodies.iter().filter(|line| line.run == *run))?;
    }
    (row.also)(played)
}

/// Compares the bodies begun with the log: one for each attempt that ended, none twice, and none that was not called.
fn bodies<'a>(log: &[LogEntry], ledger: impl Iterator<Item = &'a Line>) -> Result<(), String> {
    let attempts = |names: &[&str]| -> BTreeSet<(String, u64)> {
        let entries = log.iter().filter(|entry| names.contains(&entry.name));
        entries.filter_map(|entry| Some((entry.path.clone()?, entry.get("attempt")?.as_u64()?))).collect()
    };
    let (called, ended) = (attempts(&["effect.called"]), attempts(&["effect.failed", "effect.result"]));
    let mut begun = BTreeSet::new();
    for line in ledger {
        let body = (line.path.clone(), u64::from(line.attempt));
        if !called.contains(&body) || !begun.insert(body) {
            return Err(format!("begun without a call, or twice: {line:?}\n{}", shown(log)));
        }
    }
    match ended.difference(&begun).next() {
        None => Ok(()),
        Some(body) => Err(format!("ended without a body: {body:?}\n{}", shown(log))),
    }
}

/// A row that is being played: the store's present process, and what outlives it.
struct Stage<'a> {
    row: &'a Row,
    id: String,
    clock: TestClock,
    place: Place,
    process: Process,
    lives: usize,
    acts: &'a [(When, Do)],
}

/// Where store and ledger are while no process has them.
enum Place {
    Memory(MemoryLedger),
    Dir(tempfile::TempDir),
}

/// What dies with a process.
struct Process {
    runtime: Runtime,
    store: Arc<dyn Store>,
    memory: Option<Arc<MemoryStore>>,
    /// Nothing that its bodies do counts any more.
    dead: Arc<AtomicBool>,
    /// What the store in memory held when a body was entered that the process dies in.
    died: Arc<Mutex<Option<MemoryStore>>>,
}

impl Process {
    async fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}

pub(crate) fn clock() -> TestClock {
    TestClock::at(BEGINNING)
}

pub(crate) fn open_store(place: &Path) -> SledStore {
    SledStore::open(place.join("store"), SledOptions::new()).unwrap()
}

pub(crate) fn ledger_path(place: &Path) -> PathBuf {
    place.join("ledger")
}

impl<'a> Stage<'a> {
    /// The first process, with the run begun.
    async fn new(row: &'a Row, backend: Backend) -> Result<Stage<'a>, String> {
        let (mut acts, id) = (&row.acts[..], format!("{}-{backend:?}", row.id));
        let place = match backend {
            Backend::Memory => Place::Memory(MemoryLedger::default()),
            Backend::Sled => Place::Dir(tempfile::tempdir().unwrap()),
        };
        let mut lives = 1;
        if let (Place::Dir(dir), [(When::Body(path, attempt), Do::Die), rest @ ..]) = (&place, acts) {
            // A real process, and a real kill.
            dying::killed_in_body(row.id, dir.path(), &id, path, *attempt);
            (acts, lives) = (rest, 2);
        }
        let clock = clock();
        let process = open(row, &place, None, &clock, trap(acts)).await?;
        if lives == 1 {
            (row.start.unwrap())(process.runtime.clone(), id.clone()).await.map_err(|e| format!("{e:?}"))?;
        }
        Ok(Stage { row, id, clock, place, process, lives, acts })
    }

    async fn any_run(&self) -> AnyRun {
        self.process.runtime.run(&self.id).await.unwrap()
    }

    /// Where the run stands, for messages.
    async fn stands(&self) -> String {
        let run = self.any_run().await;
        let due = self.acts.first().map(|(when, _)| when);
        format!("{:?}, next act {due:?}\n{}", run.status().await, shown(&run.log().await.unwrap_or_default()))
    }

    async fn play(&mut self) -> Result<Played, String> {
        loop {
            let run = self.any_run().await;
            let before = run.log().await.map_err(|e| format!("{e:?}"))?;
            let status = run.status().await.map_err(|e| format!("{e:?}"))?;
            let log = run.log().await.map_err(|e| format!("{e:?}"))?;
            // Else the status may be of an earlier moment than the log.
            if before.len() < log.len() || self.act(&log).await? {
                continue;
            }
            match status {
                status if status.is_terminal() => return self.played(run, status).await,
                Status::Opening | Status::Running | Status::Ending | Status::Interrupted => {}
                Status::Reconciling { .. } => self.clock.advance(Duration::from_secs(1)),
                Status::Held { .. } | Status::Parked(_) | Status::WaitingForCode { .. } => {
                    return Err(self.stands().await);
                }
                Status::AwaitingSignal { names } if self.has_message(&run, &names).await? => {}
                _ => self.pass_time(&log),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn played(&self, run: AnyRun, status: Status) -> Result<Played, String> {
        let log = run.log().await.map_err(|e| format!("{e:?}"))?;
        if let [(when, _), ..] = self.acts {
            return Err(format!("it ended before {when:?}\n{}", shown(&log)));
        }
        let returned = run.returned_as::<Json>().await.map_err(|e| format!("{e:?}"))?;
        let mut others = BTreeMap::new();
        for info in self.process.runtime.runs(Filter::all()).await.map_err(|e| format!("{e:?}"))? {
            if info.id.as_str() != self.id {
                let log =
                    self.process.runtime.run(&info.id).await.unwrap().log().await.map_err(|e| format!("{e:?}"))?;
                others.insert(info.id.to_string(), log);
            }
        }
        let (id, bodies, status) = (self.id.clone(), self.bodies(), status.as_str());
        Ok(Played { id, log, bodies, others, status, returned, lives: self.lives })
    }

    /// The bodies begun so far.
    fn bodies(&self) -> Vec<Line> {
        match &self.place {
            Place::Memory(ledger) => ledger.lines(),
            Place::Dir(dir) => FileLedger::open(&ledger_path(dir.path())).lines(),
        }
    }

    /// Does the next act, if it is due.
    async fn act(&mut self, log: &[LogEntry]) -> Result<bool, String> {
        let [(when, what), rest @ ..] = self.acts else { return Ok(false) };
        let image = match when {
            When::Log(line) if log.iter().any(|entry| lines::is(entry, line)) => None,
            When::Log(_) => return Ok(false),
            When::Body(..) => match self.process.died.lock().unwrap().take() {
                Some(image) => Some(image),
                None => return Ok(false),
            },
        };
        self.acts = rest;
        match what {
            Do::Die | Do::Resume => self.next_process(image).await?,
            Do::Open(gate) => effects::open(&self.id, gate),
            Do::Hand(hand) => {
                let (runtime, id, clock, bodies) =
                    (self.process.runtime.clone(), self.id.clone(), self.clock.clone(), self.bodies());
                hand(Hand { runtime, id, clock, bodies }).await?;
            }
        }
        Ok(true)
    }

    /// The next process goes on with the store as the last one left it.
    async fn next_process(&mut self, image: Option<MemoryStore>) -> Result<(), String> {
        let image = self.process.memory.as_ref().map(|memory| image.unwrap_or_else(|| memory.reopened()));
        self.process.end().await;
        self.process = open(self.row, &self.place, image, &self.clock, trap(self.acts)).await?;
        self.lives += 1;
        Ok(())
    }

    /// Whether a message is there that the run waits for, and takes as soon as it is woken.
    async fn has_message(&self, run: &AnyRun, names: &[String]) -> Result<bool, String> {
        let unread = run.messages().await.map_err(|e| format!("{e:?}"))?;
        Ok(unread.iter().any(|message| names.contains(&message.name)))
    }

    /// Lets time pass until the next thing is due that the log announces.
    fn pass_time(&self, log: &[LogEntry]) {
        let over = |entry: &LogEntry| log[entry.seq.0 as usize + 1..].iter().any(|later| later.step == entry.step);
        let dues = log.iter().filter(|entry| !over(entry)).filter_map(lines::due);
        if let Some(due) = dues.min() {
            let due = due.duration_since(UNIX_EPOCH).unwrap();
            self.clock.advance(due.saturating_sub(Duration::from_millis(self.clock.wall())));
        }
    }
}

/// The body in which the next process is to die.
fn trap(acts: &[(When, Do)]) -> Option<(&'static str, u32)> {
    acts.iter().find_map(|(when, _)| match when {
        When::Body(path, attempt) => Some((*path, *attempt)),
        When::Log(_) => None,
    })
}

async fn open(
    row: &Row,
    place: &Place,
    image: Option<MemoryStore>,
    clock: &TestClock,
    trap: Option<(&'static str, u32)>,
) -> Result<Process, String> {
    let died: Arc<Mutex<Option<MemoryStore>>> = Arc::default();
    let (world, dead, store, memory): (_, _, Arc<dyn Store>, _) = match place {
        Place::Memory(ledger) => {
            let (ledger, dead) = ledger.of_a_process();
            let memory = Arc::new(image.unwrap_or_default());
            let (died, dies, store) = (died.clone(), dead.clone(), memory.clone());
            let world = World::slow(ledger, Duration::ZERO, move |line: &Line| {
                if trap.is_some_and(|(path, attempt)| line.path == path && line.attempt == attempt)
                    && !dies.swap(true, Ordering::SeqCst)
                {
                    *died.lock().unwrap() = Some(store.reopened());
                }
            });
            (world, dead, memory.clone(), Some(memory))
        }
        Place::Dir(dir) => {
            let path = dir.path().to_owned();
            let world = World::new(FileLedger::open(&ledger_path(&path)));
            let store = tokio::task::spawn_blocking(move || open_store(&path)).await.unwrap();
            (world, Arc::default(), Arc::new(store), None)
        }
    };
    let builder = (row.build)(Runtime::builder().resource(world).clock(clock.clone()));
    let runtime = builder.open_store(store.clone()).await.map_err(|e| format!("{e:?}"))?;
    Ok(Process { runtime, store, memory, dead, died })
}
