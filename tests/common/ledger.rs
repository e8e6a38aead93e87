//! The ledger: what the world saw. Bodies write it, and the library never touches it.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use durable::EffectContext;
use serde::{Deserialize, Serialize};

/// A body that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) run: String,
    pub(crate) path: String,
    pub(crate) effect: String,
    pub(crate) input: String,
    pub(crate) key: String,
    pub(crate) attempt: u32,
}

pub(crate) trait Ledger: Send + Sync {
    /// Durable when it returns.
    fn append(&self, line: &Line);
    fn lines(&self) -> Vec<Line>;
}

/// One JSON line per body.
pub(crate) struct FileLedger {
    path: PathBuf,
    file: File,
}

impl FileLedger {
    pub(crate) fn open(path: &Path) -> FileLedger {
        let file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        FileLedger { path: path.to_owned(), file }
    }
}

impl Ledger for FileLedger {
    fn append(&self, line: &Line) {
        let mut text = serde_json::to_string(line).unwrap();
        text.push('\n');
        // One write, so that no two bodies mix; a kill leaves it whole or not there.
        (&self.file).write_all(text.as_bytes()).unwrap();
        self.file.sync_data().unwrap();
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The world of a simulated machine, which outlives its processes.
#[derive(Clone, Default)]
pub(crate) struct MemoryLedger(Arc<Mutex<Vec<Line>>>);

impl MemoryLedger {
    /// The ledger as one process reaches it, until it dies.
    pub(crate) fn of_a_process(&self) -> (ProcessLedger, Arc<AtomicBool>) {
        let dead = Arc::new(AtomicBool::new(false));
        (ProcessLedger { ledger: self.clone(), dead: dead.clone() }, dead)
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) struct ProcessLedger {
    ledger: MemoryLedger,
    dead: Arc<AtomicBool>,
}

impl Ledger for ProcessLedger {
    fn append(&self, line: &Line) {
        if !self.dead.load(Ordering::SeqCst) {
            self.ledger.0.lock().unwrap().push(line.clone());
        }
    }

    fn lines(&self) -> Vec<Line> {
        self.ledger.lines()
    }
}

/// What the effects of one process can reach: a resource. Clones are one world.
#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    ledger: Box<dyn Ledger>,
    after_line: Box<dyn Fn(&Line) + Send + Sync>,
    pace: Duration,
}

impl World {
    pub(crate) fn new(ledger: impl Ledger + 'static) -> World {
        World::slow(ledger, Duration::ZERO, |_| {})
    }

    /// Each body calls `after_line` once its line is written, and then takes `pace`.
    pub(crate) fn slow(
        ledger: impl Ledger + 'static,
        pace: Duration,
        after_line: impl Fn(&Line) + Send + Sync + 'static,
    ) -> World {
        World(Arc::new(Inner { ledger: Box::new(ledger), after_line: Box::new(after_line), pace }))
    }

    /// The first thing that each body does.
    pub(crate) async fn enter(&self, cx: &EffectContext, input: &str) {
        let line = Line {
            run: cx.run_id().to_string(),
            path: cx.path().to_owned(),
            effect: cx.effect().to_owned(),
            input: input.to_owned(),
            key: cx.idempotency_key().to_owned(),
            attempt: cx.attempt(),
        };
        self.0.ledger.append(&line);
        (self.0.after_line)(&line);
        match self.0.pace.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(self.0.pace).await,
        }
    }

    /// What the world knows of a step.
    pub(crate) fn bodies(&self, run: &str, path: &str) -> Vec<Line> {
        let mut lines = self.0.ledger.lines();
        lines.retain(|line| line.run == run && line.path == path);
        lines
    }

    /// A provider's memory: the first request with a key decides, and every other one is answered with its receipt.
    pub(crate) fn receipt(&self, key: &str) -> String {
        let first = self.0.ledger.lines().into_iter().find(|line| line.key == key);
        format!("attempt {}", first.map_or(0, |line| line.attempt))
    }
}
