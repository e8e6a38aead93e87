//! Opening a runtime.

use std::{
    collections::HashMap,
    fmt,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value as Json, json};

use crate::{
    clock::{Clock, SystemClock},
    contract::Registered,
    effect::Resources,
    error::{Error, Kind},
    runtime::Runtime,
    store::{
        Store, StoreError,
        memory::MemoryStore,
        sled::{SledOptions, SledStore},
    },
    worker::{Limits, Shared},
};

/// In the environment: the process is to describe its workflows and end.
const DESCRIBE: &str = "DURABLE_DESCRIBE";

/// Longest argument, result or other recorded value, by default: 1 MiB.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Length of a log, in entries, at which the runtime warns, by default.
pub const LOG_ENTRIES_WARN: u64 = 50_000;
/// Bodies of effects under way at a time, by default.
pub const BODIES_AT_ONCE: usize = 1_000;
/// The longest that a value limit can be: what fits into one entry with room to spare.
const VALUE_BYTES_LIMIT: usize = 32 * 1024 * 1024;

/// Prepares a [`Runtime`]: made by [`Runtime::builder`], used up by one of its `open` functions.
#[must_use = "a builder does nothing until it is opened"]
pub struct Builder {
    resources: Resources,
    clock: Arc<dyn Clock>,
    value_bytes_max: usize,
    log_entries_warn: u64,
    bodies_at_once: usize,
    runs_at_once: usize,
    cancel_grace: Duration,
    settle: Duration,
    evict_after: Duration,
    control: bool,
    sled: SledOptions,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("resources", &self.resources).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Prepares a runtime.
    ///
    /// With `DURABLE_DESCRIBE=1` in the environment the process writes [`workflows`] as JSON to standard output instead, and ends: that is
    /// how `durable workflows` gets to know what a binary has.
    pub fn builder() -> Builder {
        if std::env::var_os(DESCRIBE).is_some_and(|value| value == "1") {
            describe();
        }
        Builder::new()
    }
}

/// Writes the workflows of this binary, in a line of their own, and ends the process.
fn describe() -> ! {
    let all: Vec<Json> = workflows().iter().map(WorkflowInfo::to_json).collect();
    let mut out = std::io::stdout().lock();
    // What the process has written before may be half a line.
    let written = writeln!(out, "\n{}", Json::from(all)).and_then(|()| out.flush());
    std::process::exit(i32::from(written.is_err()));
}

impl Builder {
    fn new() -> Builder {
        Builder {
            resources: Resources::default(),
            clock: Arc::new(SystemClock::new()),
            value_bytes_max: VALUE_BYTES_MAX,
            log_entries_warn: LOG_ENTRIES_WARN,
            bodies_at_once: BODIES_AT_ONCE,
            runs_at_once: std::thread::available_parallelism().map_or(2, usize::from),
            cancel_grace: Duration::from_secs(30),
            settle: Duration::from_secs(2 * 60),
            evict_after: Duration::from_secs(1),
            control: true,
            sled: SledOptions::default(),
        }
    }

    /// Gives a value to the effects that take its type by `#[resource]`. A second one of a type replaces the first.
    pub fn resource<T: Send + Sync + 'static>(mut self, value: T) -> Builder {
        self.resources.insert(value);
        self
    }

    /// Reads time from this clock; for tests, see [`crate::TestClock`].
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.clock = Arc::new(clock);
        self
    }

    /// The longest argument, result or other recorded value, in bytes as recorded. Default 1 MiB, at most 32 MiB. What is longer is refused
    /// when it would be recorded the first time; what is in a log already stays readable.
    pub fn value_bytes_max(mut self, bytes: usize) -> Builder {
        self.value_bytes_max = bytes.min(VALUE_BYTES_LIMIT);
        self
    }

    /// Warns once a run's log has more entries than this. Default 50,000.
    pub fn log_entries_warn(mut self, entries: u64) -> Builder {
        self.log_entries_warn = entries;
        self
    }

    /// How many bodies of effects may be under way at a time, over all runs; at least 1. Default 1,000. Calls above it
    /// wait, and are not in doubt after a crash.
    pub fn bodies_at_once(mut self, bodies: usize) -> Builder {
        self.bodies_at_once = bodies.max(1);
        self
    }

    /// How many runs may be replayed at a time; at least 1. Default: the number of processors.
    pub fn runs_at_once(mut self, runs: usize) -> Builder {
        self.runs_at_once = runs.max(1);
        self
    }

    /// How long a body may go on that nobody waits for any more (the run was cancelled, its branch was dropped, or the run's
    /// code is over), before its step counts as in doubt. Default 30 seconds.
    pub fn cancel_grace(mut self, grace: Duration) -> Builder {
        self.cancel_grace = grace;
        self
    }

    /// How long a request of an effect may still be under way after its outcome has become unknown, for effects that do not
    /// say so themselves by `settle`: nothing is undone before. Default 2 minutes.
    pub fn settle(mut self, settle: Duration) -> Builder {
        self.settle = settle;
        self
    }

    /// How long a run stays in memory when all it does is wait: for a time, a message, a person, or another run. Then it leaves
    /// memory, and is replayed when what it waits for has come. Default 1 second.
    pub fn evict_after(mut self, grace: Duration) -> Builder {
        self.evict_after = grace;
        self
    }

    /// Whether [`Builder::open`] offers a control socket in the store's directory, by which the `durable` command works on a
    /// store that this process holds. Default: it does. Only the same user may use it.
    pub fn control(mut self, control: bool) -> Builder {
        self.control = control;
        self
    }

    /// Refuses to open a store whose place cannot make writes survive a loss of power ([`crate::Durability::Full`]).
    pub fn require_full_durability(mut self) -> Builder {
        self.sled = self.sled.require_full(true);
        self
    }

    /// Opens a store although its newest commits are missing, and goes on without them: runs may repeat what the
    /// lost entries recorded. For a store that was damaged and has no better backup.
    pub fn accept_loss(mut self) -> Builder {
        self.sled = self.sled.accept_loss(true);
        self
    }

    /// Opens the store in the directory `path`, which is made if it is not there; its unfinished runs go on by themselves.
    ///
    /// # Errors
    ///
    /// The store is in use, damaged, no store, or cannot be written; resources are missing; a name is given twice.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Runtime, Error> {
        self.check()?;
        let (path, control) = (path.as_ref().to_owned(), self.control);
        let store = open_sled(path.clone(), self.sled.clone()).await?;
        let runtime = self.begin(store, false).await?;
        #[cfg(unix)]
        if control {
            crate::control::serve(&runtime, &path);
        }
        Ok(runtime)
    }

    /// Opens a store in memory: gone with the process.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub async fn open_in_memory(self) -> Result<Runtime, Error> {
        self.open_store(MemoryStore::new()).await
    }

    /// Opens the store in the directory `path` without going on with any of its runs: to look at them, and to leave word for
    /// them. What is sent, answered, resolved or cancelled is taken when a process with their code has the store open.
    ///
    /// # Errors
    ///
    /// The store is in use, damaged, no store, or not there; it is not made.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Filter, Runtime};
    /// # #[durable::workflow]
    /// # async fn waits() -> durable::Result<String> { Ok(durable::signal("go").await) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("durable-observe-{}", std::process::id()));
    /// # let runtime = Runtime::builder().open(&dir).await?;
    /// # runtime.start("order-17", waits()).await?;
    /// # runtime.shutdown(std::time::Duration::ZERO).await?;
    /// let observer = Runtime::builder().observe(&dir).await?;
    /// for run in observer.runs(Filter::unfinished()).await? {
    ///     println!("{} is {}", run.id, run.status.as_str());
    /// }
    /// observer.signal("order-17", "go", "now").await?; // taken by the next process that opens the store
    /// # observer.shutdown(std::time::Duration::ZERO).await?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn observe(self, path: impl AsRef<Path>) -> Result<Runtime, Error> {
        let (path, options) = (path.as_ref().to_owned(), self.sled.clone().existing(true));
        self.begin(open_sled(path, options).await?, true).await
    }

    /// Opens a runtime on any store.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub async fn open_store(self, store: impl Store) -> Result<Runtime, Error> {
        self.check()?;
        self.begin(store, false).await
    }

    async fn begin(self, store: impl Store, observing: bool) -> Result<Runtime, Error> {
        let limits = Limits {
            value_bytes_max: self.value_bytes_max,
            log_entries_warn: self.log_entries_warn,
            cancel_grace: self.cancel_grace,
            settle: self.settle,
            evict_after: self.evict_after,
        };
        let (store, slots, replays) = (Arc::new(store), self.bodies_at_once, self.runs_at_once);
        Runtime::begin(|code| Shared::new(store, self.clock, self.resources, slots, replays, limits, code, observing))
            .await
    }

    /// What link-time registration shows to be wrong.
    fn check(&self) -> Result<(), Error> {
        let mut missing = Vec::new();
        let mut names: HashMap<(&str, &str), Vec<Named>> = HashMap::new();
        for registered in inventory::iter::<Registered> {
            let (sort, name, explicit, module, at) = match registered {
                Registered::Effect(m) => {
                    for resource in m.resources {
                        if !self.resources.has((resource.type_id)()) {
                            let name = (resource.type_name)();
                            missing.push(format!("{name} for effect {} ({}:{})", m.name, m.file, m.line));
                        }
                    }
                    ("effect", m.name, m.explicit_name, m.module, format!("{}:{}", m.file, m.line))
                }
                Registered::Workflow(m) => {
                    ("workflow", m.name, m.explicit_name, m.module, format!("{}:{}", m.file, m.line))
                }
                Registered::Part(_) => continue,
            };
            // A stored run finds its workflow by name and module, or by an explicit name alone: two must not answer.
            let named = names.entry((sort, name)).or_default();
            let twin = named.iter().find(|(_, was_explicit, its_module)| match sort {
                "workflow" => explicit || *was_explicit || *its_module == module,
                _ => explicit && *was_explicit,
            });
            if let Some((first, ..)) = twin {
                let (name, first) = (name.to_owned(), first.clone());
                return Err(Kind::NameTwice { name, first, second: at }.into());
            }
            named.push((at, explicit, module));
        }
        missing.sort();
        missing.dedup();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Kind::MissingResources(missing).into()),
        }
    }
}

async fn open_sled(path: PathBuf, options: SledOptions) -> Result<SledStore, StoreError> {
    let opened = tokio::task::spawn_blocking(move || SledStore::open(path, options)).await;
    opened.unwrap_or_else(|e| Err(StoreError::Io { doing: "open the store".into(), error: e.to_string().into() }))
}

/// Where something of a name is, whether the name is explicit, and its module.
type Named = (String, bool, &'static str);

/// A workflow of this binary, with its numbered steps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkflowInfo {
    /// Recorded name.
    pub name: &'static str,
    /// Module.
    pub module: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Source line.
    pub line: u32,
    /// Every `.await` of its body, in source order.
    pub steps: Vec<StepInfo>,
}

impl WorkflowInfo {
    /// The same as JSON: what `durable workflows` reads.
    pub(crate) fn to_json(&self) -> Json {
        let WorkflowInfo { name, module, file, line, steps } = self;
        let steps: Vec<Json> = steps.iter().map(StepInfo::to_json).collect();
        json!({ "name": name, "module": module, "file": file, "line": line, "steps": steps })
    }
}

impl StepInfo {
    fn to_json(&self) -> Json {
        let StepInfo { number, id, callee, contract, file, line } = self;
        let id = format!("{id:032x}");
        json!({ "number": number, "id": id, "callee": callee, "contract": contract, "file": file, "line": line })
    }
}

/// One numbered step of a [`WorkflowInfo`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepInfo {
    /// Its number in the function, from 0.
    pub number: u32,
    /// The call site's id.
    pub id: u128,
    /// What is awaited, as written.
    pub callee: &'static str,
    /// The contract, if the callee is an effect of this binary whose name tells it apart.
    pub contract: Option<&'static str>,
    /// Source file.
    pub file: &'static str,
    /// Source line.
    pub line: u32,
}

/// Every workflow of this binary, by name, with its numbered steps.
pub fn workflows() -> Vec<WorkflowInfo> {
    let effects: Vec<_> = inventory::iter::<Registered>
        .into_iter()
        .filter_map(|r| match r {
            Registered::Effect(meta) => Some(*meta),
            _ => None,
        })
        .collect();
    let contract = |module: &str, callee: &str| {
        let function = callee.rsplit("::").next().unwrap_or(callee);
        let mut found = effects.iter().filter(|e| e.function == function);
        let (first, second) = (found.next()?, found.next());
        match second {
            None => Some(first.contract.as_str()),
            // Which of them a path means is not known here, and a wrong contract is worse than none.
            Some(_) if callee.contains("::") => None,
            Some(_) => {
                effects.iter().find(|e| e.function == function && e.module == module).map(|e| e.contract.as_str())
            }
        }
    };
    let mut all: Vec<_> = inventory::iter::<Registered>
        .into_iter()
        .filter_map(|r| match r {
            Registered::Workflow(meta) => Some(*meta),
            _ => None,
        })
        .map(|meta| WorkflowInfo {
            name: meta.name,
            module: meta.module,
            file: meta.file,
            line: meta.line,
            steps: meta
                .sites
                .iter()
                .map(|site| StepInfo {
                    number: site.number,
                    id: site.id,
                    callee: site.callee,
                    contract: contract(meta.module, site.callee),
                    file: site.file,
                    line: site.line,
                })
                .collect(),
        })
        .collect();
    all.sort_by_key(|w| (w.name, w.module));
    all
}
