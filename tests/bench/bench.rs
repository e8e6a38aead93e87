//! A store, a runtime on it, and the world of its process.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use durable::{
    Builder, Error, Filter, Hold, LogEntry, Parked, Runtime, Status, TestClock,
    store::{
        Store,
        memory::MemoryStore,
        sled::{SledOptions, SledStore},
    },
};

use crate::{replay, tape::Image, world::World};

/// No scenario takes that long, unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);
/// When every scenario begins.
pub(crate) const BEGINNING: Duration = Duration::from_secs(1_700_000_000);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(millis(1)).await;
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

/// Where the store is.
#[derive(Clone)]
enum Place {
    Memory(Image),
    Sled(PathBuf),
    /// Whoever made it has it.
    Elsewhere,
}

pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) world: World,
    pub(crate) clock: TestClock,
    /// What the runtime works on, for looking into it.
    pub(crate) store: Arc<dyn Store>,
    place: Place,
    canaries: AtomicU64,
    /// Removed at the end.
    dir: Option<Arc<tempfile::TempDir>>,
}

/// Takes its time: proves that whoever was due by then has been woken.
#[durable::workflow]
async fn canary(wait: Duration) {
    durable::sleep(wait).await;
}

impl Bench {
    pub(crate) async fn on(backend: Backend) -> Bench {
        Bench::built(backend, |builder| builder).await
    }

    pub(crate) async fn built(backend: Backend, build: impl FnOnce(Builder) -> Builder) -> Bench {
        let clock = TestClock::at(BEGINNING);
        match backend {
            Backend::Memory => {
                let place = Place::Memory(Image::from(Arc::new(MemoryStore::new())));
                Bench::open(place, None, World::new(), clock, build).await
            }
            Backend::Sled => {
                let dir = Arc::new(tempfile::tempdir().unwrap());
                let world = World::in_file(dir.path().join("ledger"));
                Bench::open(Place::Sled(dir.path().join("store")), Some(dir), world, clock, build).await
            }
        }
    }

    /// The process that finds this store in memory.
    pub(crate) async fn of(memory: impl Into<Image>, world: World, clock: &TestClock) -> Bench {
        Bench::open(Place::Memory(memory.into()), None, world, clock.clone(), |builder| builder).await
    }

    /// The process that finds the store and the ledger of a child in this directory.
    pub(crate) async fn at(dir: &Path, clock: &TestClock) -> Bench {
        let world = World::in_file(dir.join("ledger"));
        Bench::open(Place::Sled(dir.join("store")), None, world, clock.clone(), |builder| builder).await
    }

    /// On a store that looks at what goes through.
    pub(crate) async fn through(
        store: impl Store,
        world: World,
        clock: &TestClock,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Bench {
        Bench::open_on(Arc::new(store), Place::Elsewhere, None, world, clock.clone(), build).await
    }

    async fn open(
        place: Place,
        dir: Option<Arc<tempfile::TempDir>>,
        world: World,
        clock: TestClock,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Bench {
        let store: Arc<dyn Store> = match &place {
            Place::Memory(memory) => Arc::new(memory.clone()),
            Place::Sled(path) => Arc::new(open_sled(path.clone()).await.unwrap()),
            Place::Elsewhere => panic!("only whoever made the store can open it"),
        };
        Bench::open_on(store, place, dir, world, clock, build).await
    }

    async fn open_on(
        store: Arc<dyn Store>,
        place: Place,
        dir: Option<Arc<tempfile::TempDir>>,
        world: World,
        clock: TestClock,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Bench {
        let builder = build(Runtime::builder().resource(world.clone()).clock(clock.clone()));
        let runtime = builder.open_store(store.clone()).await.unwrap();
        Bench { runtime, world, clock, store, place, canaries: AtomicU64::new(0), dir }
    }

    /// The process dies now, and the next one opens what it left: only in memory, where what was written can be copied at one moment.
    pub(crate) async fn crashed(self) -> Bench {
        self.crashed_built(|builder| builder).await
    }

    pub(crate) async fn crashed_built(self, build: impl FnOnce(Builder) -> Builder) -> Bench {
        let Place::Memory(memory) = &self.place else { panic!("only a store in memory can be copied") };
        let image = Place::Memory(memory.reopened());
        let (world, clock) = (self.world.next(), self.clock.clone());
        drop(self);
        Bench::open(image, None, world, clock, build).await
    }

    /// Shuts down without grace, and opens the same store as the next process would.
    pub(crate) async fn restarted(self) -> Bench {
        self.restarted_after(Duration::ZERO).await
    }

    /// The same, and time passes in between.
    pub(crate) async fn restarted_after(self, meanwhile: Duration) -> Bench {
        self.restarted_built(meanwhile, |builder| builder).await
    }

    pub(crate) async fn restarted_built(self, meanwhile: Duration, build: impl FnOnce(Builder) -> Builder) -> Bench {
        self.runtime.shutdown(Duration::ZERO).await.unwrap();
        self.clock.advance(meanwhile);
        let place = match &self.place {
            Place::Memory(memory) => Place::Memory(memory.reopened()),
            sled => sled.clone(),
        };
        let (world, clock, dir) = (self.world.next(), self.clock.clone(), self.dir.clone());
        drop(self);
        Bench::open(place, dir, world, clock, build).await
    }

    /// Lets time pass, and returns when every run that was due has acted on it.
    pub(crate) async fn advance(&self, by: Duration) {
        let id = format!(
            "canary {} at {}",
            self.canaries.fetch_add(1, Ordering::Relaxed),
            durable::Clock::monotonic(&self.clock)
        );
        let run = self.runtime.start(&id, canary(by)).await.unwrap();
        self.until_status(&id, "asleep", |status| matches!(status, Status::Sleeping { .. })).await;
        self.clock.advance(by);
        run.returned().await.unwrap();
        self.looked().await;
    }

    /// Returns when every run has done what it had been woken for before.
    pub(crate) async fn looked(&self) {
        // A run answers before it looks at the clock: the second answer comes after that.
        for _ in 0..2 {
            self.runtime.runs(Filter::unfinished()).await.unwrap();
        }
    }

    pub(crate) async fn log(&self, id: &str) -> Vec<LogEntry> {
        self.runtime.run(id).await.unwrap().log().await.unwrap()
    }

    /// The names of a log's entries.
    pub(crate) async fn names(&self, id: &str) -> Vec<&'static str> {
        self.log(id).await.iter().map(|entry| entry.name).collect()
    }

    /// How many entries of that name a log has.
    pub(crate) async fn count(&self, id: &str, name: &str) -> usize {
        self.names(id).await.iter().filter(|entry| **entry == name).count()
    }

    pub(crate) async fn status(&self, id: &str) -> Status {
        self.runtime.run(id).await.unwrap().status().await.unwrap()
    }

    /// Waits until the run stands where `is` says.
    pub(crate) async fn until_status(&self, id: &str, what: &str, is: impl Fn(&Status) -> bool) -> Status {
        let mut status = self.status(id).await;
        until(&format!("{id} to be {what}"), async || {
            status = self.status(id).await;
            is(&status)
        })
        .await;
        status
    }

    pub(crate) async fn until_word(&self, id: &str, word: &str) -> Status {
        self.until_status(id, word, |status| status.as_str() == word).await
    }

    /// Waits until the run is held, and gives its only hold.
    pub(crate) async fn held(&self, id: &str) -> Hold {
        self.until_word(id, "held").await;
        let holds = self.runtime.holds().await.unwrap();
        let mut holds = holds.into_iter().filter(|hold| hold.run.as_str() == id);
        let (first, second) = (holds.next(), holds.next());
        assert!(second.is_none(), "{id} has more than one hold");
        first.unwrap()
    }

    /// Waits until the run is parked, and says why.
    pub(crate) async fn parked(&self, id: &str) -> Parked {
        match self.until_word(id, "parked").await {
            Status::Parked(parked) => parked,
            other => panic!("{id} is {other:?}"),
        }
    }

    /// Waits until the run has ended, and gives what its workflow returned.
    pub(crate) async fn end(&self, id: &str) -> serde_json::Value {
        let run = self.runtime.run(id).await.unwrap();
        let ended = tokio::time::timeout(DEADLINE, run.returned_as()).await;
        match ended {
            Ok(ended) => ended.unwrap_or_else(|e| panic!("{id}: {e}")),
            Err(_) => panic!("{id} did not end: {:?}, {:?}", run.status().await, self.names(id).await),
        }
    }

    /// The replay check of a run that has ended: see [`replay::check`].
    pub(crate) async fn replays(&self, id: &str) {
        replay::check(&replay::Tape::of(&*self.store, id), &self.clock)
            .await
            .unwrap_or_else(|why| panic!("{id}: {why}"));
    }

    /// The same, a few times only: for what is checked after every crash.
    pub(crate) async fn replays_some(&self, id: &str) {
        replay::check_times(&replay::Tape::of(&*self.store, id), &self.clock, 3)
            .await
            .unwrap_or_else(|why| panic!("{id}: {why}"));
    }

    /// The replay check of a run that waits: see [`replay::stands`].
    pub(crate) async fn stands(&self, id: &str) {
        replay::stands(&replay::Tape::of(&*self.store, id), &self.clock)
            .await
            .unwrap_or_else(|why| panic!("{id}: {why}"));
    }
}

pub(crate) async fn open_sled(path: PathBuf) -> Result<SledStore, durable::StoreError> {
    tokio::task::spawn_blocking(move || SledStore::open(path, SledOptions::new())).await.unwrap()
}

/// The text of an error that must be one.
pub(crate) fn refused<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(e) => e,
    }
}
