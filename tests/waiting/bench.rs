//! A runtime on a store, the clock of its process, and what its effects do outside.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use durable::{
    AnyRun, Builder, Clock, Code, EffectContext, Error, LogEntry, OpenQuestion, Runtime, Status, TestClock,
    store::{
        Store,
        memory::MemoryStore,
        sled::{SledOptions, SledStore},
    },
};
use serde_json::Value as Json;
use tokio::sync::watch;

use crate::counting::Counting;

/// No scenario takes that long, unless it hangs.
const DEADLINE: Duration = Duration::from_secs(120);
/// When every scenario begins.
pub(crate) const BEGINNING: Duration = Duration::from_secs(1_700_000_000);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
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

/// What fails if it takes too long.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(out) => out,
        Err(_) => panic!("waited in vain for: {what}"),
    }
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Error>, code: Code) -> Error {
    let error = result.expect_err("it is refused");
    assert_eq!(error.code(), code, "{error}");
    error
}

// ---- outside ----

/// What effects have done, and what they wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    done: Arc<Mutex<Vec<String>>>,
    open: watch::Sender<bool>,
    /// What cannot be undone.
    broken: Arc<Mutex<BTreeSet<String>>>,
}

impl Outside {
    pub(crate) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.done().iter().filter(|done| *done == what).count()
    }

    fn note(&self, what: impl Into<String>) {
        self.done.lock().unwrap().push(what.into());
    }

    /// Makes undoing it fail, or not any more.
    pub(crate) fn breaks(&self, what: &str, breaks: bool) {
        let mut broken = self.broken.lock().unwrap();
        if breaks {
            broken.insert(what.to_owned())
        } else {
            broken.remove(what)
        };
    }

    /// Notes what is begun, and waits until bodies are let go on.
    pub(crate) async fn pass(&self, what: &str) {
        self.note(format!("begin {what}"));
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Lets bodies that wait, or will, go on.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) async fn until_done(&self, what: &str) {
        until(&format!("{what:?} to be done"), async || self.count(what) > 0).await;
    }
}

/// Does something that others can notice.
#[durable::effect(idempotent)]
pub(crate) async fn act(#[resource] outside: &Outside, what: &str) -> durable::Result<String> {
    outside.note(what);
    Ok(format!("did {what}"))
}

/// Looks, which nobody notices.
#[durable::effect(read_only)]
pub(crate) async fn look(#[resource] outside: &Outside, what: &str) -> durable::Result<u64> {
    outside.note(format!("look at {what}"));
    Ok(what.len() as u64)
}

/// Does something, and returns once it is let go on: whoever cancels it has no influence.
#[durable::effect(idempotent)]
pub(crate) async fn stubborn(#[resource] outside: &Outside, what: &str) -> durable::Result<String> {
    outside.pass(what).await;
    outside.note(format!("end {what}"));
    Ok(format!("did {what}"))
}

/// Does what must not be done twice, and returns once it is let go on.
#[durable::effect(at_most_once)]
pub(crate) async fn once(#[resource] outside: &Outside, what: &str) -> durable::Result<u64> {
    outside.pass(what).await;
    Ok(7)
}

/// Does something, and stops when it is told that nobody wants it any more.
#[durable::effect(idempotent)]
pub(crate) async fn yielding(cx: &EffectContext, #[resource] outside: &Outside, what: &str) -> durable::Result<String> {
    outside.note(format!("begin {what}"));
    cx.cancelled().await;
    outside.note(format!("stop {what}"));
    Ok(format!("stopped {what}"))
}

/// Undoes what [`act`] did; fails while it is broken.
#[durable::effect(key = "{what}:revert")]
pub(crate) async fn revert(cx: &EffectContext, #[resource] outside: &Outside, what: &str) -> durable::Result<()> {
    assert!(cx.idempotency_key().ends_with(":revert"));
    if outside.broken.lock().unwrap().contains(what) {
        return Err(durable::Failure::new(format!("{what} cannot be undone now")));
    }
    outside.note(format!("undo {what}"));
    Ok(())
}

/// Does not know itself what it did.
#[durable::effect(at_most_once)]
pub(crate) async fn doubtful(cx: &EffectContext, #[resource] outside: &Outside, what: &str) -> durable::Result<u64> {
    outside.note(format!("attempt {}", cx.attempt()));
    outside.note(what);
    if cx.attempt() == 1 { Err(cx.in_doubt("no answer"))? } else { Ok(7) }
}

// ---- the bench ----

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sled,
}

/// Where a scenario plays that plays alike in every store.
pub(crate) const BOTH: [Backend; 2] = [Backend::Memory, Backend::Sled];

#[derive(Clone)]
enum Place {
    Memory(Arc<MemoryStore>),
    Sled(PathBuf),
}

pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) clock: TestClock,
    pub(crate) outside: Outside,
    /// What the runtime works on.
    pub(crate) store: Counting,
    place: Place,
    /// Removed at the end.
    dir: Option<Arc<tempfile::TempDir>>,
}

impl Bench {
    pub(crate) async fn on(backend: Backend) -> Bench {
        Bench::built(backend, |builder| builder).await
    }

    /// One whose runs leave memory as soon as they wait.
    pub(crate) async fn forgetful(backend: Backend) -> Bench {
        Bench::built(backend, |builder| builder.evict_after(Duration::ZERO)).await
    }

    pub(crate) async fn built(backend: Backend, build: impl FnOnce(Builder) -> Builder) -> Bench {
        let (place, dir) = match backend {
            Backend::Memory => (Place::Memory(Arc::default()), None),
            Backend::Sled => {
                let dir = Arc::new(tempfile::tempdir().unwrap());
                (Place::Sled(dir.path().join("store")), Some(dir))
            }
        };
        Bench::open(place, dir, TestClock::at(BEGINNING), Outside::default(), build).await
    }

    /// On a store of the scenario's own; the next process would find an empty one.
    pub(crate) async fn over(store: impl Store) -> Bench {
        let (clock, outside, store) = (TestClock::at(BEGINNING), Outside::default(), Counting::new(store));
        let builder = Runtime::builder().clock(clock.clone()).resource(outside.clone()).evict_after(Duration::ZERO);
        let runtime = builder.open_store(store.clone()).await.unwrap();
        Bench { runtime, clock, outside, store, place: Place::Memory(Arc::default()), dir: None }
    }

    async fn open(
        place: Place,
        dir: Option<Arc<tempfile::TempDir>>,
        clock: TestClock,
        outside: Outside,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Bench {
        let store = match &place {
            Place::Memory(memory) => Counting::new(memory.clone()),
            Place::Sled(path) => Counting::new(SledStore::open(path, SledOptions::new()).unwrap()),
        };
        let builder = Runtime::builder().clock(clock.clone()).resource(outside.clone());
        let runtime = build(builder).open_store(store.clone()).await.unwrap();
        Bench { runtime, clock, outside, store, place, dir }
    }

    /// Stops the process, and starts the next one.
    pub(crate) async fn restarted(self) -> Bench {
        self.restarted_built(Duration::ZERO, |builder| builder).await
    }

    /// The same, and time passes in between.
    pub(crate) async fn restarted_built(self, meanwhile: Duration, build: impl FnOnce(Builder) -> Builder) -> Bench {
        let (place, dir, clock, outside) = self.stopped().await;
        clock.advance(meanwhile);
        Bench::open(place, dir, clock, outside, build).await
    }

    async fn stopped(self) -> (Place, Option<Arc<tempfile::TempDir>>, TestClock, Outside) {
        self.runtime.shutdown(Duration::ZERO).await.unwrap();
        let place = match &self.place {
            Place::Memory(memory) => Place::Memory(Arc::new(memory.reopened())),
            sled => sled.clone(),
        };
        (place, self.dir.clone(), self.clock.clone(), self.outside.clone())
    }

    /// Stops the process; then somebody looks at the store with a runtime that runs nothing, and the next process starts.
    pub(crate) async fn observed(self, look: impl AsyncFnOnce(&Runtime)) -> Bench {
        let (place, dir, clock, outside) = self.stopped().await;
        let Place::Sled(path) = &place else { panic!("only a directory is observed") };
        let observer = Runtime::builder().clock(clock.clone()).observe(path).await.unwrap();
        look(&observer).await;
        observer.shutdown(Duration::ZERO).await.unwrap();
        Bench::open(place, dir, clock, outside, |builder| builder).await
    }

    pub(crate) async fn run(&self, id: &str) -> AnyRun {
        self.runtime.run(id).await.unwrap()
    }

    pub(crate) async fn status(&self, id: &str) -> Status {
        self.run(id).await.status().await.unwrap()
    }

    /// Waits until a run stands where a word says.
    pub(crate) async fn until(&self, id: &str, word: &str) -> Status {
        let mut last = None;
        let wait = async {
            loop {
                let status = match self.runtime.run(id).await {
                    Ok(run) => Some(run.status().await.unwrap()),
                    Err(error) if error.is_not_found() => None,
                    Err(error) => panic!("{error}"),
                };
                match status {
                    Some(status) if status.as_str() == word => return status,
                    status => last = status,
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(status) => status,
            Err(_) => panic!("waited in vain for {id} to be {word}: it is {last:?}"),
        }
    }

    /// Waits until a run has left memory.
    pub(crate) async fn until_away(&self, id: &str) {
        let id = durable::RunId::new(id).unwrap();
        until(&format!("{id} to leave memory"), async || {
            // One whose process stopped is released as well, to go on at once.
            let now = self.clock.wall();
            let record = self.store.run(&id).unwrap();
            record.is_some_and(|record| {
                record.is_waiting() && record.wait.is_some_and(|w| w.due.is_none_or(|due| due > now))
            })
        })
        .await;
    }

    /// Waits for the open questions of a run, in the order of their paths.
    pub(crate) async fn questions(&self, id: &str, many: usize) -> Vec<OpenQuestion> {
        let mut open = Vec::new();
        until(&format!("{many} questions of {id}"), async || {
            open = self.runtime.questions().await.unwrap();
            open.retain(|question| question.run.as_str() == id);
            open.len() == many
        })
        .await;
        open.sort_by(|a, b| a.path.cmp(&b.path));
        open
    }

    /// The token of the only open question of a run, once there is one.
    pub(crate) async fn token(&self, id: &str) -> String {
        self.questions(id, 1).await.remove(0).token
    }

    /// What a run's code returned.
    pub(crate) async fn end(&self, id: &str) -> Json {
        let run = self.run(id).await;
        in_time(&format!("{id} to end"), run.returned_as::<Json>()).await.unwrap()
    }

    pub(crate) async fn log(&self, id: &str) -> Vec<LogEntry> {
        self.run(id).await.log().await.unwrap()
    }

    /// The names of a log's entries.
    pub(crate) async fn names(&self, id: &str) -> Vec<&'static str> {
        self.log(id).await.iter().map(|entry| entry.name).collect()
    }

    /// The entries of that name.
    pub(crate) async fn entries(&self, id: &str, name: &str) -> Vec<LogEntry> {
        let mut log = self.log(id).await;
        log.retain(|entry| entry.name == name);
        log
    }

    pub(crate) fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_millis(self.clock.wall())
    }

    /// Nothing is stranded.
    pub(crate) async fn sound(&self) {
        let found = self.runtime.audit().await.unwrap();
        assert!(found.is_empty(), "{found:#?}");
    }
}
