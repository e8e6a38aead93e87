//! A store in a directory, a process that may hold it, and the command.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use durable::Runtime;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::holder::Holder;

/// No test takes that long, unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(25);

/// Waits for a condition.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    const PAUSE: Duration = Duration::from_millis(5);
    let mut left = DEADLINE;
    while !holds() {
        assert!(left > PAUSE, "waited in vain for: {what}");
        left -= PAUSE;
        std::thread::sleep(PAUSE);
    }
}

/// As [`until`], where the runtime is this process's.
pub(crate) async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, wait).await.is_err() {
        panic!("waited in vain for: {what}");
    }
}

/// What the command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Said {
        self.exits(0)
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Said {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// The one JSON document that it wrote.
    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON documents that it wrote, one a line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Json> {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.out.lines().map(line).collect()
    }

    /// The code of the error that it wrote as JSON.
    #[track_caller]
    pub(crate) fn error_code(&self) -> String {
        let error: Json = serde_json::from_str(self.err.trim()).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
        error["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// The command, not run yet, as a person of the name `tester` starts it, with no terminal.
pub(crate) fn command(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_durable"));
    command.env("DURABLE_STORE", store).env("USER", "tester").stdin(Stdio::null());
    for variable in ["NO_COLOR", "CLICOLOR_FORCE", "RUST_BACKTRACE", "DURABLE_DESCRIBE"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A store, and who holds it.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    holder: Option<Holder>,
}

/// Whether a process holds the store while the command is used.
pub(crate) const BOTH: [bool; 2] = [false, true];

impl Bench {
    /// A store in which `prepare` has started runs, and which no process holds.
    pub(crate) fn new(prepare: impl AsyncFnOnce(&Runtime)) -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap(), holder: None };
        bench.here(prepare);
        bench
    }

    /// The same, held by a process if `held`.
    pub(crate) fn held(held: bool, prepare: impl AsyncFnOnce(&Runtime)) -> Bench {
        let mut bench = Bench::new(prepare);
        if held {
            bench.hold();
        }
        bench
    }

    /// Lets this process hold the store for a while, its runs going on.
    pub(crate) fn here<T>(&self, work: impl AsyncFnOnce(&Runtime) -> T) -> T {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        tokio.block_on(async {
            let runtime = Runtime::builder().open(self.store()).await.unwrap();
            let done = work(&runtime).await;
            runtime.shutdown(Duration::ZERO).await.unwrap();
            done
        })
    }

    /// The same, unless another process holds it.
    pub(crate) fn here_unless_held(&self, work: impl AsyncFnOnce(&Runtime)) {
        if !self.is_held() {
            self.here(work);
        }
    }

    /// Starts a process that holds the store, and has it replay the runs that are there.
    pub(crate) fn hold(&mut self) {
        self.hold_as_it_is();
        until("every run has been opened", || {
            let runs = self.durable(["--json", "runs"]).ok().lines();
            runs.iter().all(|run| run["state"] != "opening")
        });
    }

    /// The same of a store with a run that is never opened: its index is wrong.
    pub(crate) fn hold_as_it_is(&mut self) {
        assert!(self.holder.is_none());
        self.holder = Some(Holder::start(self.dir.path()));
    }

    pub(crate) fn holder(&mut self) -> &mut Holder {
        self.holder.as_mut().unwrap()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// Kills whoever holds the store.
    pub(crate) fn kill(&mut self) {
        self.holder = None;
    }

    /// Has whoever holds the store shut down in order.
    pub(crate) fn let_go(&mut self) {
        self.holder.take().unwrap().shut_down();
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = command(&self.store());
        command.args(args);
        command
    }

    /// Runs the command.
    pub(crate) fn durable<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Said {
        run(&mut self.command(args))
    }

    pub(crate) fn until_state(&self, run: &str, state: &str) {
        self.shown(run, |shown| shown["state"] == state);
    }

    /// State and outcome, once a process has gone on with the run.
    pub(crate) fn end_of(&self, run: &str) -> Json {
        if !self.is_held() {
            self.here(async |runtime| until_terminal(runtime, run).await);
        }
        let shown = self.shown(run, |shown| shown["ended"] == true);
        serde_json::json!({ "state": shown["state"], "outcome": shown["outcome"] })
    }

    /// What the command shows of the run, once that is so.
    pub(crate) fn shown(&self, run: &str, is: impl Fn(&Json) -> bool) -> Json {
        let escaped: String = run.escape_unicode().collect();
        let show = || self.durable(["--json", "--escaped", "show", "--", &escaped]).ok().json();
        let mut shown = show();
        until(&format!("{run:?} is as it should be"), || {
            let there = is(&shown);
            if !there {
                shown = show();
            }
            there
        });
        shown
    }

    /// The run's log, as the command says it.
    pub(crate) fn log(&self, run: &str) -> Vec<Json> {
        self.durable(["--json", "log", "--", run]).ok().lines()
    }
}

pub(crate) async fn until_state(runtime: &Runtime, run: &str, state: &str) {
    until_async(&format!("{run} is {state}"), async || {
        runtime.run(run).await.unwrap().status().await.unwrap().as_str() == state
    })
    .await;
}

pub(crate) async fn until_terminal(runtime: &Runtime, run: &str) {
    until_async(&format!("{run} has ended"), async || {
        runtime.run(run).await.unwrap().status().await.unwrap().is_terminal()
    })
    .await;
}
