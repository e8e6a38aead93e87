//! The world in which the scenarios play: a ledger that effects write and the library never touches, gates that hold
//! bodies back, a clock that stands still, and the replay check.

use std::{
    collections::BTreeSet,
    fmt::Display,
    sync::{Arc, Mutex},
    time::Duration,
};

use durable::{
    Builder, Clock, Code, EffectContext, Error, LogEntry, Reply, Runtime, Status, TestClock,
    store::{
        Store,
        memory::MemoryStore,
        sled::{SledOptions, SledStore},
    },
};
use tokio::sync::watch;

use crate::{
    image::Image,
    tape::{Heads, Tape, Taped, frames},
};

/// How often the replay check replays a log.
pub(crate) const REPLAYS: usize = 50;
/// No scenario takes that long, unless it hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// What the effects of one process can reach. Clones are one world.
#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    ledger: Mutex<Vec<Line>>,
    closed: watch::Sender<BTreeSet<String>>,
}

/// A body that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) run: String,
    pub(crate) path: String,
    pub(crate) effect: &'static str,
    pub(crate) input: String,
    pub(crate) key: String,
    pub(crate) attempt: u32,
}

impl World {
    pub(crate) fn new() -> World {
        World(Arc::new(Inner { ledger: Mutex::default(), closed: watch::Sender::new(BTreeSet::new()) }))
    }

    /// The first thing that each body does.
    pub(crate) fn note(&self, cx: &EffectContext, input: impl Display) {
        let line = Line {
            run: cx.run_id().to_string(),
            path: cx.path().to_owned(),
            effect: cx.effect(),
            input: input.to_string(),
            key: cx.idempotency_key().to_owned(),
            attempt: cx.attempt(),
        };
        self.0.ledger.lock().unwrap().push(line);
    }

    /// Waits, in a body, until nobody holds that gate closed.
    pub(crate) async fn pass(&self, gate: &str) {
        self.0.closed.subscribe().wait_for(|closed| !closed.contains(gate)).await.unwrap();
    }

    pub(crate) fn close(&self, gate: impl Into<String>) {
        let gate = gate.into();
        self.0.closed.send_modify(|closed| {
            closed.insert(gate);
        });
    }

    pub(crate) fn open(&self, gate: &str) {
        self.0.closed.send_modify(|closed| {
            closed.remove(gate);
        });
    }

    pub(crate) fn ledger(&self) -> Vec<Line> {
        self.0.ledger.lock().unwrap().clone()
    }

    /// How many bodies of that effect were begun.
    pub(crate) fn bodies(&self, effect: &str) -> usize {
        self.0.ledger.lock().unwrap().iter().filter(|line| line.effect == effect).count()
    }

    /// The inputs of that effect's bodies, in the order in which they were begun.
    pub(crate) fn inputs(&self, effect: &str) -> Vec<String> {
        let ledger = self.0.ledger.lock().unwrap();
        ledger.iter().filter(|line| line.effect == effect).map(|line| line.input.clone()).collect()
    }

    pub(crate) async fn until_noted(&self, effect: &str, bodies: usize) {
        until(&format!("{bodies} bodies of {effect}"), async || self.bodies(effect) >= bodies).await;
    }
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, wait).await.is_err() {
        panic!("waited in vain for: {what}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sled,
}

/// Where a scenario plays that plays alike in every store.
pub(crate) const BOTH: [Backend; 2] = [Backend::Memory, Backend::Sled];

/// A store, a runtime on it, and the world of its process.
pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) world: World,
    pub(crate) clock: TestClock,
    pub(crate) store: Arc<Taped>,
    memory: Option<Image>,
    heads: Arc<Heads>,
    dir: Option<tempfile::TempDir>,
}

impl Bench {
    pub(crate) async fn on(backend: Backend) -> Bench {
        Bench::built(backend, |builder| builder).await
    }

    pub(crate) async fn built(backend: Backend, build: impl FnOnce(Builder) -> Builder) -> Bench {
        let dir = (backend == Backend::Sled).then(|| tempfile::tempdir().unwrap());
        let clock = TestClock::at(Duration::from_secs(1_700_000_000));
        Bench::open(dir, Arc::default(), clock, None, World::new(), build).await
    }

    /// The next process, on a log that was cut there: what a crash would have left.
    pub(crate) async fn after(tape: &Tape, len: usize, clock: &TestClock) -> Bench {
        Bench::after_in(World::new(), tape, len, clock).await
    }

    /// The same in a world that is made ready before anything runs in it.
    pub(crate) async fn after_in(world: World, tape: &Tape, len: usize, clock: &TestClock) -> Bench {
        let heads = Arc::new(Mutex::new([(tape.run.clone(), tape.head().clone())].into()));
        Bench::open(None, heads, clock.clone(), Some(tape.store(len)), world, |builder| builder).await
    }

    /// The same under other settings.
    pub(crate) async fn after_built(
        tape: &Tape,
        len: usize,
        clock: &TestClock,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Bench {
        let heads = Arc::new(Mutex::new([(tape.run.clone(), tape.head().clone())].into()));
        Bench::open(None, heads, clock.clone(), Some(tape.store(len)), World::new(), build).await
    }

    /// Shuts down, and opens the same store as the next process would.
    pub(crate) async fn reopened(self) -> Bench {
        self.runtime.shutdown(Duration::ZERO).await.unwrap();
        let memory = self.memory.map(|memory| memory.reopened());
        Bench::open(self.dir, self.heads, self.clock, memory, World::new(), |builder| builder).await
    }

    async fn open(
        dir: Option<tempfile::TempDir>,
        heads: Arc<Heads>,
        clock: TestClock,
        memory: Option<Image>,
        world: World,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Bench {
        let (inner, memory): (Arc<dyn Store>, _) = match &dir {
            Some(dir) => {
                let path = dir.path().join("store");
                let opened = tokio::task::spawn_blocking(move || SledStore::open(path, SledOptions::new())).await;
                (Arc::new(opened.unwrap().unwrap()), None)
            }
            None => {
                let memory = memory.unwrap_or_else(|| Image::from(Arc::new(MemoryStore::new())));
                (Arc::new(memory.clone()), Some(memory))
            }
        };
        let store = Arc::new(Taped::new(inner, heads.clone()));
        let builder = Runtime::builder().resource(world.clone()).resource(crate::nd_8::Place(None));
        let builder = build(builder.clock(clock.clone()));
        let runtime = builder.open_store(store.clone()).await.unwrap();
        Bench { runtime, world, clock, store, memory, heads, dir }
    }

    pub(crate) fn tape(&self, id: &str) -> Tape {
        self.store.tape(id)
    }

    pub(crate) fn tape_of_all(&self, id: &str) -> Tape {
        self.store.tape_of_all(id)
    }

    pub(crate) async fn log(&self, id: &str) -> Vec<LogEntry> {
        self.runtime.run(id).await.unwrap().log().await.unwrap()
    }

    /// The names of a log's entries.
    pub(crate) async fn names(&self, id: &str) -> Vec<&'static str> {
        self.log(id).await.iter().map(|entry| entry.name).collect()
    }

    pub(crate) async fn status(&self, id: &str) -> Status {
        self.runtime.run(id).await.unwrap().status().await.unwrap()
    }

    /// Waits until the run stands where `is` says.
    pub(crate) async fn until_status(&self, id: &str, what: &str, is: impl Fn(&Status) -> bool) -> Status {
        until(&format!("{id} to be {what}"), async || is(&self.status(id).await)).await;
        self.status(id).await
    }

    /// Waits until the run is parked, and gives the error that says so.
    pub(crate) async fn parked(&self, id: &str) -> Error {
        let run = self.runtime.run(id).await.unwrap();
        let ended = tokio::time::timeout(DEADLINE, run.returned_as::<serde_json::Value>()).await;
        match ended.expect("neither parked nor ended") {
            Err(error) if error.parked().is_some() => error,
            other => panic!("{id} is not parked: {other:?}"),
        }
    }

    /// Lets time pass whenever the run waits for nothing else, gives it the signals and answers that it waits for (a 7), until it has
    /// ended or is parked.
    pub(crate) async fn end(&self, id: &str) -> Result<(), Error> {
        let run = self.runtime.run(id).await.unwrap();
        let returned = run.returned_as::<serde_json::Value>();
        let pass = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                match run.status().await {
                    Ok(Status::Sleeping { until: at } | Status::Retrying { at, .. }) => self.pass_time_until(at),
                    Ok(Status::AwaitingSignal { names }) => {
                        for name in names {
                            // It may have ended meanwhile.
                            let _ = run.signal(&name, &7).await;
                        }
                    }
                    Ok(Status::AwaitingAnswer { tokens }) => {
                        for token in tokens {
                            let _ = self.runtime.answer(token, Reply::granted(&7)).await;
                        }
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            ended = returned => match ended {
                // That the output is of another type is none of the scenario's business here.
                Err(error) if error.parked().is_some() || error.code() == Code::WaitingForCode => Err(error),
                _ => Ok(()),
            },
            () = pass => unreachable!("time passes for ever"),
            () = tokio::time::sleep(DEADLINE) => panic!("{id} did not end: {:?}", run.status().await),
        }
    }

    fn pass_time_until(&self, at: std::time::SystemTime) {
        let at = at.duration_since(std::time::UNIX_EPOCH).unwrap();
        self.clock.advance(at.saturating_sub(Duration::from_millis(self.clock.wall())));
    }

    /// The replay check: see [`replays`].
    pub(crate) async fn replays(&self, id: &str) {
        replays(&self.tape(id), &self.clock, REPLAYS).await.unwrap_or_else(|why| panic!("{id}: {why}"));
    }

    /// The replay check of a run that has not ended and waits: its log is opened again, nothing runs, nothing is added.
    pub(crate) async fn stands(&self, id: &str) {
        stands(&self.tape(id), &self.clock).await.unwrap_or_else(|why| panic!("{id}: {why}"));
    }
}

/// How a run ended: the terminal entry without place and time.
pub(crate) fn end_of(log: &[LogEntry]) -> serde_json::Value {
    let last = log.last().unwrap();
    let mut json = last.to_json();
    let fields = json.as_object_mut().unwrap();
    fields.remove("at");
    fields.remove("seq");
    json
}

/// Feeds a finished log to the code again and again, in a world where every body would be seen: the whole log, and the log
/// without its terminal entry, which the code must then reach again.
pub(crate) async fn replays(tape: &Tape, clock: &TestClock, times: usize) -> Result<(), String> {
    let (len, before) = (tape.frames.len(), ending(tape).await);
    for n in 0..times {
        for cut in [len, len - 1] {
            let bench = Bench::after(tape, cut, clock).await;
            let id = tape.run.as_str();
            bench.end(id).await.map_err(|e| format!("replay {n} of {cut} entries: {e}"))?;
            let ledger = bench.world.ledger();
            if !ledger.is_empty() {
                return Err(format!("replay {n} of {cut} entries ran bodies: {ledger:?}"));
            }
            let now = frames(&*bench.store, &tape.run);
            if now.len() != len || now[..len - 1] != tape.frames[..len - 1] {
                return Err(format!("replay {n} of {cut} entries made {len} entries {}", now.len()));
            }
            let after = end_of(&bench.log(id).await);
            if before != after {
                return Err(format!("replay {n} of {cut} entries ended with {after}, not with {before}"));
            }
        }
    }
    Ok(())
}

async fn ending(tape: &Tape) -> serde_json::Value {
    // Read by a runtime that lets nothing go on: the run is listed as ended as soon as it is opened.
    let clock = TestClock::at(Duration::from_secs(1_700_000_000));
    let bench = Bench::after(tape, tape.frames.len(), &clock).await;
    end_of(&bench.log(tape.run.as_str()).await)
}

pub(crate) async fn stands(tape: &Tape, clock: &TestClock) -> Result<(), String> {
    let bench = Bench::after(tape, tape.frames.len(), clock).await;
    bench.until_status(tape.run.as_str(), "replayed", |status| *status != Status::Opening).await;
    let ledger = bench.world.ledger();
    if !ledger.is_empty() {
        return Err(format!("the replay ran bodies: {ledger:?}"));
    }
    match frames(&*bench.store, &tape.run) == tape.frames {
        true => Ok(()),
        false => Err("the replay changed the log".to_owned()),
    }
}

/// Goes on from every cut of a finished log, as after a crash right there, and checks that the run ends as it did, that nothing is repeated
/// whose outcome was in the log, and that the new log replays.
pub(crate) async fn every_cut(bench: &Bench, id: &str) {
    every_cut_in(bench, id, World::new).await;
}

/// The same, each time in a world of its own.
pub(crate) async fn every_cut_in(bench: &Bench, id: &str, world: impl Fn() -> World) {
    let (tape, log) = (bench.tape(id), bench.log(id).await);
    for cut in 1..tape.frames.len() {
        let next = Bench::after_in(world(), &tape, cut, &bench.clock).await;
        next.end(id).await.unwrap_or_else(|e| panic!("{id} cut at {cut}: {e}"));
        let again = next.log(id).await;
        assert_eq!(end_of(&log), end_of(&again), "{id} cut at {cut}");
        let over = log[..cut].iter().filter(|entry| entry.name == "effect.result");
        let over: BTreeSet<_> = over.filter_map(|entry| entry.path.clone()).collect();
        for line in next.world.ledger() {
            assert!(!over.contains(&line.path), "{id} cut at {cut}: {} ran again", line.path);
        }
        replays(&next.tape(id), &bench.clock, 1).await.unwrap_or_else(|why| panic!("{id} cut at {cut}: {why}"));
    }
}

/// Goes on from every cut of a log whose end depends on what comes first, and replays what comes of it.
pub(crate) async fn every_cut_ends(bench: &Bench, id: &str) {
    let tape = bench.tape(id);
    for cut in 1..tape.frames.len() {
        let next = Bench::after(&tape, cut, &bench.clock).await;
        next.end(id).await.unwrap_or_else(|e| panic!("{id} cut at {cut}: {e}"));
        replays(&next.tape(id), &bench.clock, 1).await.unwrap_or_else(|why| panic!("{id} cut at {cut}: {why}"));
    }
}
