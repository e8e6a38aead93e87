//! Says what happens, and checks it.

use std::fmt::{Debug, Display};

use anyhow::{Result, ensure};
use durable::LogEntry;
use serde_json::{Map, Value};

use super::{paint::Paint, process::Process};

/// The fields of an entry that stories are about; the others are its place in the source and the like.
const SHOWN: [&str; 7] = ["seq", "at", "entry", "path", "attempt", "key", "value"];

/// Tells a story.
#[derive(Clone, Copy)]
pub(crate) struct Teller {
    pub(crate) paint: Paint,
}

impl Teller {
    pub(crate) fn new() -> Teller {
        Teller { paint: Paint::new() }
    }

    /// What comes next.
    pub(crate) fn heading(self, text: impl Display) {
        println!("\n{}", self.paint.title(text));
    }

    /// What somebody says or does.
    pub(crate) fn say(self, who: &str, lines: impl IntoIterator<Item = impl AsRef<str>>) {
        for line in lines {
            println!("  {} {}", self.paint.dim(format!("{who:<9}")), line.as_ref());
        }
    }

    /// What a process says next, and should.
    pub(crate) fn hear(self, who: &str, process: &Process, expected: &[impl AsRef<str>]) -> Result<()> {
        for expected in expected.iter().map(AsRef::as_ref) {
            let line = process.line()?;
            self.say(who, [&line]);
            check("what a process says", &*line, expected)?;
        }
        Ok(())
    }

    /// The last line of a story that went as it should.
    pub(crate) fn held(self) {
        println!("\n{}", self.paint.good("all of this was checked, and held"));
    }
}

pub(crate) fn check<A: PartialEq<B> + Debug, B: Debug>(what: &str, found: A, expected: B) -> Result<()> {
    ensure!(found == expected, "{what}: there should be {expected:?}, and there is {found:?}");
    Ok(())
}

/// A log as stories compare it.
pub(crate) fn shape(log: &[LogEntry]) -> Vec<String> {
    let word = |entry: &LogEntry| {
        let mut words = vec![entry.name.to_owned()];
        words.extend(entry.path.clone());
        words.extend(entry.get("attempt").map(|attempt| format!("attempt {attempt}")));
        words.join(" ")
    };
    log.iter().map(word).collect()
}

/// An entry as a line of JSON, without what does not belong to a story.
pub(crate) fn shown(entry: &LogEntry) -> Value {
    let field = |name: &&str| Some(((*name).to_owned(), entry.get(name)?.clone()));
    Value::Object(SHOWN.iter().filter_map(field).collect::<Map<_, _>>())
}
