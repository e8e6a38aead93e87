//! A bank: a file of payments. The same key is the same payment, as with real ones.

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
pub(crate) struct Payment {
    pub(crate) key: String,
    pub(crate) order: String,
    pub(crate) cents: u64,
}

/// Knows where the file is; one payment at a time.
pub(crate) struct Bank(Mutex<PathBuf>);

impl Bank {
    pub(crate) fn at(desk: &Path) -> Bank {
        Bank(Mutex::new(desk.join("payments.jsonl")))
    }

    /// All payments, the oldest first.
    pub(crate) fn payments(&self) -> anyhow::Result<Vec<Payment>> {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Pays under a new key; for a known one the money has moved already.
    pub(crate) fn pay(&self, key: &str, order: &str, cents: u64) -> anyhow::Result<()> {
        let path = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if read(&path)?.iter().any(|payment| payment.key == key) {
            return Ok(());
        }
        let payment = Payment { key: key.to_owned(), order: order.to_owned(), cents };
        let mut file = OpenOptions::new().create(true).append(true).open(&*path)?;
        file.write_all((serde_json::to_string(&payment)? + "\n").as_bytes())?;
        Ok(file.sync_all()?)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Payment>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no payment: {line}"))).collect()
}
