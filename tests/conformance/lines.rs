//! What a row says of a log.
//!
//! A line is an entry: its name, the path of its step (`-` if it is about none), and `field=json` for the fields that the
//! case speaks of; `field=none` says that it has no such field, `field^=text` how it begins, and `in=90s` how long after the entry something is due.
//! Lines with a `|` before them that stand together may come in any order.

use std::time::Duration;

use durable::LogEntry;
use serde_json::Value as Json;

/// Compares a whole log with what is said of it.
pub(crate) fn compare(log: &[LogEntry], text: &str) -> Result<(), String> {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut at = 0;
    while at < lines.len() {
        let together = lines[at..].iter().take_while(|line| line.starts_with('|')).count().max(1);
        let mut entries: Vec<&LogEntry> = log.iter().skip(at).take(together).collect();
        for line in &lines[at..at + together] {
            let line = line.trim_start_matches('|').trim();
            let Some(n) = entries.iter().position(|entry| is(entry, line)) else {
                let found: Vec<_> = entries.iter().map(ToString::to_string).collect();
                return Err(format!("entry {}: wanted {line}\nfound {}\n{}", at + 1, found.join("\n"), shown(log)));
            };
            entries.remove(n);
        }
        at += together;
    }
    match log.get(at) {
        None => Ok(()),
        Some(more) => Err(format!("entry {}: wanted the end\nfound {more}\n{}", at + 1, shown(log))),
    }
}

/// A log for a message.
pub(crate) fn shown(log: &[LogEntry]) -> String {
    log.iter().map(|entry| format!("  {:.400}\n", entry.to_string())).collect()
}

/// Whether a line describes an entry.
pub(crate) fn is(entry: &LogEntry, line: &str) -> bool {
    let mut words = words(line).into_iter();
    let (name, path) = (words.next().unwrap(), words.next().unwrap_or("-"));
    entry.name == name && entry.path.as_deref().unwrap_or("-") == path && words.all(|word| has(entry, word))
}

fn has(entry: &LogEntry, word: &str) -> bool {
    if let Some((field, start)) = word.split_once("^=") {
        return entry.get(field).and_then(Json::as_str).is_some_and(|text| text.starts_with(start));
    }
    let (field, want) = word.split_once('=').unwrap_or_else(|| panic!("no field=json: {word}"));
    let value = match field {
        "in" => return due_in(entry) == humantime::parse_duration(want).ok(),
        _ => entry.get(field),
    };
    match want {
        "none" => value.is_none(),
        _ => value == Some(&json(want)),
    }
}

/// When something that the entry announces is due, from the entry on.
fn due_in(entry: &LogEntry) -> Option<Duration> {
    due(entry)?.duration_since(entry.at).ok()
}

/// When the sleep that the entry begins is over, or the next attempt begins.
pub(crate) fn due(entry: &LogEntry) -> Option<std::time::SystemTime> {
    let at = entry.get("deadline").or(entry.get("retry_at"))?.as_str()?;
    humantime::parse_rfc3339(at).ok()
}

pub(crate) fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Splits at blanks that are not inside quotes.
fn words(line: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    line.split(|c: char| {
        let quote = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        quoted ^= quote;
        c == ' ' && !quoted
    })
    .filter(|word| !word.is_empty())
    .collect()
}
