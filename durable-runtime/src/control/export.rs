//! A run as lines of text: all that a store holds of it, each line a JSON object.
//!
//! First `{"durable":"run",..}` with what stands beside the log, then a line for each entry with its frame, byte for byte as in
//! the store and, for readers, in words; then the mailbox and what was published; last `{"end":..}` with a checksum over all
//! lines before it. The words are for people and programs that read: an import takes the frames.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    entry::{EntryError, next_frame},
    id::{Generation, RunId, Seq, StoreId},
    store::{Dump, Head, Published, Record, Row, RunRecord, Wait},
    view::LogEntry,
};

/// The only layout that this version knows.
const FORMAT: u32 = 1;
/// Ids in one line.
const TAKEN_PER_LINE: usize = 1_000;

/// Bytes in a line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base64(Bytes);

impl Serialize for Base64 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(|bytes| Base64(bytes.into())).map_err(serde::de::Error::custom)
    }
}

/// A number of 128 bits, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hex(u128);

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Hex).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct First {
    /// What the file is.
    durable: String,
    format: u32,
    run: String,
    /// The store that it comes from.
    store: Hex,
    live: bool,
    head: Base64,
    aside: Option<Base64>,
    wait: Option<FirstWait>,
    /// Number of the last row ever put.
    version: u64,
    owner: Hex,
    /// Per log the number of entries of each record.
    logs: Vec<Vec<u32>>,
}

#[derive(Serialize, Deserialize)]
struct FirstWait {
    due: Option<u64>,
    seen: u64,
    code: Hex,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    words: Map<String, Json>,
    frame: Base64,
}

#[derive(Serialize, Deserialize)]
struct RowLine {
    row: u64,
    id: Hex,
    kind: u8,
    bytes: Base64,
}

#[derive(Serialize, Deserialize)]
struct Taken {
    taken: Vec<Hex>,
}

#[derive(Serialize, Deserialize)]
struct PublishedLine {
    published: String,
    generation: u32,
    len: u64,
    value: Base64,
}

#[derive(Serialize, Deserialize)]
struct Last {
    end: End,
}

#[derive(Serialize, Deserialize)]
struct End {
    entries: u64,
    rows: u64,
    sum: String,
}

/// Any line but the first.
#[derive(Deserialize)]
#[serde(untagged)]
enum Other {
    Entry { frame: Base64 },
    Row(RowLine),
    Taken(Taken),
    Published(PublishedLine),
    Last(Last),
}

/// Why lines are no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// The text does not begin as an exported run does.
    NoExport(String),
    /// A later version of this library wrote it.
    Later(u32),
    /// A line is none, counted from 1.
    Line(u64, String),
    /// The last line is missing.
    CutOff,
    /// The text was changed.
    Sum,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::NoExport(why) => write!(f, "this is no exported run: {why}"),
            ExportError::Later(format) => {
                write!(f, "the export has format {format}, and this version knows up to {FORMAT}")
            }
            ExportError::Line(number, why) => write!(f, "line {number} of the export is damaged: {why}"),
            ExportError::CutOff => f.write_str("the export is cut off: its last line is missing"),
            ExportError::Sum => f.write_str("the export was changed after it was written: its checksum does not fit"),
        }
    }
}

impl std::error::Error for ExportError {}

/// Makes lines.
struct Writer<'a> {
    sum: Xxh3,
    line: &'a mut dyn FnMut(String),
}

impl Writer<'_> {
    fn put(&mut self, line: &impl Serialize) {
        let line = match serde_json::to_string(line) {
            Ok(line) => line,
            Err(e) => unreachable!("a struct of texts, numbers and JSON is no JSON: {e}"),
        };
        self.sum.update(line.as_bytes());
        self.sum.update(b"\n");
        (self.line)(line);
    }
}

/// All that a store holds of a run, line by line. `words`: of each entry, in the same order.
///
/// # Errors
///
/// A frame that is damaged: such a run is not exported.
pub(super) fn write(
    run: &RunId,
    store: StoreId,
    dump: &Dump,
    words: Option<&[LogEntry]>,
    line: &mut dyn FnMut(String),
) -> Result<(), (Generation, Seq, EntryError)> {
    let mut writer = Writer { sum: Xxh3::new(), line };
    writer.put(&First {
        durable: "run".into(),
        format: FORMAT,
        run: run.as_str().to_owned(),
        store: Hex(store.0),
        live: dump.record.head.live,
        head: Base64(dump.record.head.bytes.clone()),
        aside: dump.record.aside.clone().map(Base64),
        wait: dump.record.wait.map(|wait| FirstWait { due: wait.due, seen: wait.seen, code: Hex(wait.code.into()) }),
        version: dump.record.version,
        owner: Hex(dump.owner),
        logs: dump.logs.iter().map(|(_, records)| records.iter().map(|record| record.count).collect()).collect(),
    });
    let (mut entries, mut words) = (0, words.into_iter().flatten());
    for (generation, records) in &dump.logs {
        for record in records {
            let mut rest = record.frames.clone();
            let mut seq = record.first;
            loop {
                let before = rest.clone();
                match next_frame(&mut rest) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => return Err((*generation, seq, error)),
                }
                let frame = Base64(before.slice(..before.len() - rest.len()));
                let words = words.next().map(LogEntry::to_json);
                let words = match words {
                    Some(Json::Object(mut words)) => {
                        // Where the call stands is known to some processes only, and an export is the same whoever makes it.
                        words.remove("site");
                        words
                    }
                    _ => Map::new(),
                };
                writer.put(&Line { words, frame });
                seq = seq.plus(1);
                entries += 1;
            }
        }
    }
    for (number, row) in &dump.rows {
        writer.put(&RowLine { row: *number, id: Hex(row.id), kind: row.kind, bytes: Base64(row.bytes.clone()) });
    }
    for taken in dump.taken.chunks(TAKEN_PER_LINE) {
        writer.put(&Taken { taken: taken.iter().copied().map(Hex).collect() });
    }
    for (name, published) in &dump.published {
        writer.put(&PublishedLine {
            published: name.to_string(),
            generation: published.generation.0,
            len: published.len.0,
            value: Base64(published.value.clone()),
        });
    }
    let sum = format!("{:016x}", writer.sum.digest());
    writer.put(&Last { end: End { entries, rows: dump.rows.len() as u64, sum } });
    Ok(())
}

/// Reads lines, one after the other.
pub struct Reader {
    sum: Xxh3,
    lines: u64,
    exported: Option<Exported>,
    /// Per log the entries of its records that are still to come, last record first, and where the current one began.
    missing: Vec<Vec<u32>>,
    frames: BytesMut,
    entries: u64,
    /// Entries of the record that is being read.
    got: u32,
    over: bool,
}

/// A run as it was in the store that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its id.
    pub run: RunId,
    /// The store.
    pub store: StoreId,
    /// All of it.
    pub dump: Dump,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

impl Reader {
    /// Before the first line.
    pub fn new() -> Reader {
        Reader {
            sum: Xxh3::new(),
            lines: 0,
            exported: None,
            missing: Vec::new(),
            frames: BytesMut::new(),
            entries: 0,
            got: 0,
            over: false,
        }
    }

    /// Whether the last line has been read.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes the next line, without its end.
    ///
    /// # Errors
    ///
    /// [`ExportError`]; then the rest is of no use.
    pub fn take(&mut self, line: &str) -> Result<(), ExportError> {
        self.lines += 1;
        let number = self.lines;
        let wrong = |why: &dyn fmt::Display| ExportError::Line(number, why.to_string());
        if self.over {
            return Err(wrong(&"it stands after the last line"));
        }
        let Some(exported) = &mut self.exported else {
            let first: First = serde_json::from_str(line).map_err(|e| {
                let format = serde_json::from_str::<Json>(line).ok().and_then(|line| line.get("format")?.as_u64());
                match format {
                    Some(format) if format > FORMAT.into() => ExportError::Later(format as u32),
                    _ => ExportError::NoExport(e.to_string()),
                }
            })?;
            self.sum(line);
            return self.begin(first);
        };
        let other = serde_json::from_str(line).map_err(|e| wrong(&e))?;
        if let Other::Last(last) = other {
            let digest = format!("{:016x}", self.sum.digest());
            let rows = exported.dump.rows.len() as u64;
            if self.missing.iter().any(|log| !log.is_empty())
                || last.end.entries != self.entries
                || last.end.rows != rows
            {
                return Err(ExportError::CutOff);
            }
            if last.end.sum != digest {
                return Err(ExportError::Sum);
            }
            self.over = true;
            return Ok(());
        }
        match other {
            Other::Entry { frame } => {
                let log = self.missing.iter().position(|log| !log.is_empty());
                let Some(log) = log else { return Err(wrong(&"there are more entries than announced")) };
                self.frames.extend_from_slice(&frame.0);
                self.entries += 1;
                self.got += 1;
                let count = self.missing[log].last().copied().unwrap_or_default();
                if self.got == count {
                    self.missing[log].pop();
                    self.got = 0;
                    let records = &mut exported.dump.logs[log].1;
                    let first = records.last().map_or(Seq(0), |last: &Record| last.first.plus(last.count.into()));
                    records.push(Record { first, count, frames: self.frames.split().freeze() });
                }
            }
            Other::Row(RowLine { row, id, kind, bytes }) => {
                exported.dump.rows.push((row, Row { id: id.0, kind, bytes: bytes.0 }));
            }
            Other::Taken(Taken { taken }) => exported.dump.taken.extend(taken.into_iter().map(|id| id.0)),
            Other::Published(PublishedLine { published, generation, len, value }) => {
                let value = Published { generation: Generation(generation), len: Seq(len), value: value.0 };
                exported.dump.published.push((published.into(), value));
            }
            Other::Last(_) => {}
        }
        self.sum(line);
        Ok(())
    }

    fn sum(&mut self, line: &str) {
        self.sum.update(line.as_bytes());
        self.sum.update(b"\n");
    }

    fn begin(&mut self, first: First) -> Result<(), ExportError> {
        if first.durable != "run" {
            return Err(ExportError::NoExport(format!("it is a {:?}", first.durable)));
        }
        if first.format > FORMAT {
            return Err(ExportError::Later(first.format));
        }
        let run = RunId::new(&first.run).map_err(|e| ExportError::Line(1, e.to_string()))?;
        let code = |code: Hex| u64::try_from(code.0).map_err(|e| ExportError::Line(1, e.to_string()));
        let wait = match first.wait {
            Some(FirstWait { due, seen, code: hex }) => Some(Wait { due, seen, code: code(hex)? }),
            None => None,
        };
        let newest = first.logs.len().saturating_sub(1) as u32;
        let head = Head { generation: Generation(newest), live: first.live, bytes: first.head.0 };
        if first.logs.iter().flatten().any(|count| *count == 0) {
            return Err(ExportError::Line(1, "a record without entries".into()));
        }
        let logs = (0..first.logs.len()).map(|log| (Generation(log as u32), Vec::new())).collect();
        self.missing = first.logs;
        self.missing.iter_mut().for_each(|log| log.reverse());
        let record = RunRecord { head, aside: first.aside.map(|aside| aside.0), wait, version: first.version };
        let dump =
            Dump { record, owner: first.owner.0, logs, rows: Vec::new(), taken: Vec::new(), published: Vec::new() };
        self.exported = Some(Exported { run, store: StoreId(first.store.0), dump });
        Ok(())
    }

    /// The run, once all lines have been read.
    ///
    /// # Errors
    ///
    /// [`ExportError::CutOff`].
    pub fn finish(self) -> Result<Exported, ExportError> {
        match self.exported {
            Some(exported) if self.over => Ok(exported),
            Some(_) => Err(ExportError::CutOff),
            None => Err(ExportError::NoExport("it is empty".into())),
        }
    }
}

impl Exported {
    /// The same as lines without words, as they are sent to a process that is to import them.
    ///
    /// # Errors
    ///
    /// [`ExportError::Line`] if an entry's bytes are damaged.
    pub fn bare_lines(&self, line: &mut dyn FnMut(String)) -> Result<(), ExportError> {
        write(&self.run, self.store, &self.dump, None, line).map_err(|(generation, seq, error)| {
            let what = format!("log {generation}, seq {seq}: {error}");
            ExportError::NoExport(what)
        })
    }
}
