//! The test binary run once more, to be killed.
//!
//! The child runs the test [`as_a_child`] alone, which looks into the environment for what to do, and says on standard error
//! what it did, a line each.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use durable::store::sled::{SledOptions, SledStore};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tempfile::TempDir;

use crate::{
    common::{
        check::{Runs, Shown},
        frames,
        ledger::{FileLedger, Ledger as _, Line},
        replay,
        tape::Tape,
    },
    stops::{Broken, Stop},
    work,
};

const TASK: &str = "CRASH_TEST_TASK";
/// A child that lives longer ends itself, so that nothing hangs and none outlives its parent for long.
const LIFE_MAX: Duration = Duration::from_secs(120);

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) place: PathBuf,
    pub(crate) what: What,
    pub(crate) stop: Stop,
    pub(crate) broken: Broken,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    /// Starts the run with one effect of this contract, or goes on with it, and reports how it ended or that it is held.
    One { contract: String },
    /// As `One`, and says this about the step in doubt.
    Resolve { contract: String, how: How },
    /// Starts a run that waits for others, or goes on with it, and reports when all runs have ended.
    Company { fails: bool, cancelled: bool },
    /// Keeps eight runs going, of everything and of companies; begins no run with this number or a later one.
    Load { runs: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Succeeded,
    Failed,
    RunAgain,
}

/// What a child says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// It has stopped itself.
    Stopped,
    /// `start` returned.
    Started(String),
    /// `output` returned.
    Output(String, Result<String, String>),
    /// What somebody outside has come to know of runs.
    Known(BTreeMap<String, Shown>),
    Report(work::Report),
    /// Every run of a load has ended.
    Done,
}

/// Says something in one write, so that it is whole or not there.
pub(crate) fn say(said: &Said) {
    let line = format!("{}\n", serde_json::to_string(said).unwrap());
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Does nothing but in a child.
#[test]
fn as_a_child() {
    let Ok(task) = env::var(TASK) else { return };
    thread::spawn(|| {
        thread::sleep(LIFE_MAX);
        std::process::exit(3);
    });
    work::work(decode(&task));
}

fn decode<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A child under way. It is killed when it is dropped.
pub(crate) struct Talking {
    child: Child,
    lines: BufReader<ChildStderr>,
    /// What it said that is none of our words: a panic.
    pub(crate) noise: String,
}

impl Talking {
    pub(crate) fn start(task: &Task) -> Talking {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "child::as_a_child", "--nocapture", "--test-threads=1"]);
        command.env(TASK, serde_json::to_string(task).unwrap()).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Talking { child, lines, noise: String::new() }
    }

    /// The next thing it says; `None` when it has ended.
    pub(crate) fn next(&mut self) -> Option<Said> {
        loop {
            let mut line = String::new();
            // A line that a kill cut off was not said.
            if self.lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return None;
            }
            match serde_json::from_str(&line) {
                Ok(said) => return Some(said),
                Err(_) => self.noise.push_str(&line),
            }
        }
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Listens until it has stopped itself.
    pub(crate) fn until_stopped(&mut self) {
        loop {
            match self.next() {
                Some(Said::Stopped) => return,
                Some(Said::Report(report)) => panic!("it went past its point: {report:?}"),
                Some(_) => {}
                None => panic!("it ended before its point: {}", self.noise),
            }
        }
    }

    /// Listens until it reports.
    pub(crate) fn report(&mut self) -> work::Report {
        loop {
            match self.next() {
                Some(Said::Report(report)) => return report,
                Some(_) => {}
                None => panic!("it ended without a report: {}", self.noise),
            }
        }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with a store and a ledger, and the processes that work there one after the other.
pub(crate) struct Place {
    dir: TempDir,
    pub(crate) kills: u32,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap(), kills: 0 }
    }

    pub(crate) fn task(&self, what: What) -> Task {
        Task { place: self.dir.path().to_owned(), what, stop: Stop::Never, broken: Broken::No }
    }

    /// A process that stops itself there, and is killed.
    pub(crate) fn killed_at(&mut self, what: What, stop: Stop, broken: Broken) {
        let mut child = Talking::start(&Task { stop, broken, ..self.task(what) });
        child.until_stopped();
        child.kill();
        self.kills += 1;
    }

    /// A process that reports, and is killed then.
    pub(crate) fn report(&mut self, what: What) -> work::Report {
        self.report_on(what, Broken::No)
    }

    pub(crate) fn report_on(&mut self, what: What, broken: Broken) -> work::Report {
        let mut child = Talking::start(&Task { broken, ..self.task(what) });
        let report = child.report();
        child.kill();
        self.kills += 1;
        report
    }

    pub(crate) fn ledger(&self) -> Vec<Line> {
        FileLedger::open(&ledger_path(self.dir.path())).lines()
    }

    /// How many bodies were begun of the first call of an effect.
    pub(crate) fn bodies(&self, effect: &str) -> usize {
        let path = format!("{effect}[0]");
        self.ledger().iter().filter(|line| line.path == path).count()
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        store_path(self.dir.path())
    }

    /// The store, while no child has it.
    fn store(&self) -> SledStore {
        SledStore::open(self.store_path(), SledOptions::new()).unwrap()
    }

    /// The kinds of entries of a run, as they are on disk.
    pub(crate) fn names(&self, run: &str) -> Vec<&'static str> {
        let tape = Tape::of(&self.store(), run);
        tape.map(|tape| tape.frames(0).iter().map(frames::name).collect()).unwrap_or_default()
    }

    /// All runs, as the library shows them.
    pub(crate) fn runs(&self) -> Runs {
        let store = Arc::new(self.store());
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        threads.block_on(replay::runs_in(store))
    }

    /// The replay check of all these runs.
    pub(crate) fn replays<'a>(&self, runs: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let store = self.store();
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runs.into_iter().filter_map(|run| threads.block_on(replay::replays(&store, run)).err()).collect()
    }
}

pub(crate) fn store_path(place: &Path) -> PathBuf {
    place.join("store")
}

pub(crate) fn ledger_path(place: &Path) -> PathBuf {
    place.join("ledger")
}
