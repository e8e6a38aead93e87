//! What the agents have taken from the library and given back: a file of lines. The same key is the same line.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) key: String,
    pub(crate) thing: String,
    /// 1: taken; -1: given back.
    pub(crate) change: i64,
}

/// Knows where the file is; one line at a time.
pub(crate) struct Ledger(Mutex<PathBuf>);

impl Ledger {
    pub(crate) fn at(library: &Path) -> Ledger {
        Ledger(Mutex::new(library.join("ledger.jsonl")))
    }

    /// All lines, the oldest first.
    pub(crate) fn lines(&self) -> anyhow::Result<Vec<Line>> {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a line under a new key; under a known one it is there already.
    pub(crate) fn enter(&self, key: &str, thing: &str, change: i64) -> anyhow::Result<()> {
        let path = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if read(&path)?.iter().any(|line| line.key == key) {
            return Ok(());
        }
        let line = Line { key: key.to_owned(), thing: thing.to_owned(), change };
        let mut file = OpenOptions::new().create(true).append(true).open(&*path)?;
        file.write_all((serde_json::to_string(&line)? + "\n").as_bytes())?;
        Ok(file.sync_all()?)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no entry: {line}"))).collect()
}
