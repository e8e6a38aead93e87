//! What the effects of one process can reach: a ledger that the library never touches, gates that hold bodies back, and words
//! that tell bodies what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs,
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex},
};

use durable::EffectContext;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::bench::until;

/// Clones are one world.
#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    ledger: Ledger,
    closed: watch::Sender<BTreeSet<String>>,
    /// Gates that are closed in every process to come.
    lasting: Mutex<BTreeSet<String>>,
    words: Mutex<BTreeMap<String, String>>,
    /// For bodies that block their thread.
    stopped: (Mutex<bool>, Condvar),
}

/// It outlives the process, or what stands for one.
#[derive(Clone)]
enum Ledger {
    Memory(Arc<Mutex<Vec<Line>>>),
    File(PathBuf),
}

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

impl World {
    pub(crate) fn new() -> World {
        World::with(Ledger::Memory(Arc::default()))
    }

    /// A world whose ledger is a file.
    pub(crate) fn in_file(path: PathBuf) -> World {
        World::with(Ledger::File(path))
    }

    fn with(ledger: Ledger) -> World {
        let (closed, words) = (watch::Sender::new(BTreeSet::new()), Mutex::default());
        let (lasting, stopped) = (Mutex::default(), (Mutex::new(true), Condvar::new()));
        World(Arc::new(Inner { ledger, closed, lasting, words, stopped }))
    }

    /// The next process's world: the ledger is the same, all gates are open but those that last.
    pub(crate) fn next(&self) -> World {
        let next = World::with(self.0.ledger.clone());
        self.0.lasting.lock().unwrap().iter().for_each(|gate| next.close_for_good(gate));
        next
    }

    /// A world in which this has happened.
    pub(crate) fn after(lines: Vec<Line>) -> World {
        World::with(Ledger::Memory(Arc::new(Mutex::new(lines))))
    }

    /// The first thing that each body does.
    pub(crate) fn note(&self, cx: &EffectContext, input: impl Display) {
        let line = Line {
            run: cx.run_id().as_str().to_owned(),
            path: cx.path().to_owned(),
            effect: cx.effect().to_owned(),
            input: input.to_string(),
            key: cx.idempotency_key().to_owned(),
            attempt: cx.attempt(),
        };
        match &self.0.ledger {
            Ledger::Memory(lines) => lines.lock().unwrap().push(line),
            Ledger::File(path) => {
                let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
                // In one write, so that it is whole or not there.
                file.write_all(format!("{}\n", serde_json::to_string(&line).unwrap()).as_bytes()).unwrap();
            }
        }
    }

    pub(crate) fn ledger(&self) -> Vec<Line> {
        match &self.0.ledger {
            Ledger::Memory(lines) => lines.lock().unwrap().clone(),
            Ledger::File(path) => {
                let text = fs::read_to_string(path).unwrap_or_default();
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            }
        }
    }

    pub(crate) fn lines(&self, effect: &str) -> Vec<Line> {
        self.ledger().into_iter().filter(|line| line.effect == effect).collect()
    }

    /// How many bodies of that effect were begun.
    pub(crate) fn bodies(&self, effect: &str) -> usize {
        self.lines(effect).len()
    }

    pub(crate) async fn until_noted(&self, effect: &str, bodies: usize) {
        until(&format!("{bodies} bodies of {effect}"), async || self.bodies(effect) >= bodies).await;
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

    pub(crate) fn close_for_good(&self, gate: &str) {
        self.0.lasting.lock().unwrap().insert(gate.to_owned());
        self.close(gate);
    }

    pub(crate) fn open(&self, gate: &str) {
        self.0.closed.send_modify(|closed| {
            closed.remove(gate);
        });
    }

    /// Blocks the thread of a body until [`World::go`].
    pub(crate) fn block(&self) {
        let (stopped, changed) = &self.0.stopped;
        drop(changed.wait_while(stopped.lock().unwrap(), |stopped| *stopped).unwrap());
    }

    pub(crate) fn go(&self) {
        *self.0.stopped.0.lock().unwrap() = false;
        self.0.stopped.1.notify_all();
    }

    /// Tells bodies something.
    pub(crate) fn say(&self, about: &str, word: impl Into<String>) {
        self.0.words.lock().unwrap().insert(about.to_owned(), word.into());
    }

    pub(crate) fn word(&self, about: &str) -> String {
        self.0.words.lock().unwrap().get(about).cloned().unwrap_or_default()
    }
}
