//! The checkers. Each answers what is wrong, in words; nothing wrong, no words.

use std::collections::BTreeMap;

use serde_json::Value as Json;

mod company;
mod ledger;
mod log;
mod shown;

#[allow(unused_imports, reason = "each suite checks what it plays")]
pub(crate) use self::{
    company::company,
    ledger::ledger,
    log::log,
    shown::{Shown, shown},
};

/// What a store holds of a run, as the library shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The entries of each log, oldest log first.
    pub(crate) logs: Vec<Vec<Json>>,
    /// Name and value of the messages that nobody has taken.
    pub(crate) unread: Vec<(String, Json)>,
}

impl Seen {
    pub(crate) fn of(log: Vec<Json>) -> Seen {
        Seen { logs: vec![log], unread: Vec::new() }
    }

    /// All entries, one log after the other.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Json> {
        self.logs.iter().flatten()
    }

    /// The terminal entry of the last log.
    pub(crate) fn end(&self) -> Option<&Json> {
        let last = self.logs.last()?.last()?;
        matches!(text(last, "entry"), "run.completed" | "run.failed" | "run.cancelled").then_some(last)
    }

    /// What is wrong with each log; `ended`: and with the run as a whole.
    pub(crate) fn check(&self, run: &str, ended: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for (n, entries) in self.logs.iter().enumerate() {
            let last = n + 1 == self.logs.len();
            wrong.extend(log(&format!("{run}, log {n}"), entries, ended || !last));
            let restarted = entries.last().is_some_and(|entry| text(entry, "entry") == "run.restarted");
            if restarted == last {
                wrong.push(format!("{run}: {} logs, and log {n} ends with {:?}", self.logs.len(), entries.last()));
            }
        }
        wrong
    }
}

/// All runs of a store, by their ids.
pub(crate) type Runs = BTreeMap<String, Seen>;

/// A store with this run alone.
pub(crate) fn only(run: &str, log: Vec<Json>) -> Runs {
    Runs::from([(run.to_owned(), Seen::of(log))])
}

fn text<'a>(entry: &'a Json, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

pub(crate) fn named<'a>(log: impl IntoIterator<Item = &'a Json>, name: &str) -> impl Iterator<Item = &'a Json> {
    log.into_iter().filter(move |entry| text(entry, "entry") == name)
}
