//! Logs as typed entries and as JSON lines.

use std::{collections::BTreeMap, fmt, time::SystemTime};

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use super::time;
use crate::{
    clock::system_time,
    contract::{Contract, site_by_id},
    entry::{Answered, Call, ChildEnd, End, Entry, EntryError, Kind, Outcome, Resolved, Undo, each_entry},
    id::{RunId, Seq, StepNo},
    script::place,
    store::{Record, StoreError},
    value::Value,
};

/// One entry of a log, for readers.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Its place.
    pub seq: Seq,
    /// When it was appended.
    pub at: SystemTime,
    /// Its name: `effect.called`, `run.completed`, ..
    pub name: &'static str,
    /// The step it is about.
    pub step: Option<StepNo>,
    /// The step's path.
    pub path: Option<String>,
    json: Map<String, Json>,
}

impl LogEntry {
    /// Everything the entry says, values decoded, as one JSON object.
    pub fn to_json(&self) -> Json {
        Json::Object(self.json.clone())
    }

    /// One field of [`LogEntry::to_json`].
    pub fn get(&self, field: &str) -> Option<&Json> {
        self.json.get(field)
    }
}

/// The entry as one line of JSON.
impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Json::Object(self.json.clone()))
    }
}

enum ReadError {
    Entry(Seq, EntryError),
}

impl From<(Seq, EntryError)> for ReadError {
    fn from((seq, e): (Seq, EntryError)) -> Self {
        ReadError::Entry(seq, e)
    }
}

/// Reads one log from its beginning on: which step an entry is about is said by the entries before it.
#[derive(Debug)]
pub(crate) struct LogReader {
    run: RunId,
    /// The store's, for messages.
    place: String,
    /// Of the engine's own keys.
    key_prefix: String,
    next: Seq,
    steps: BTreeMap<StepNo, (String, Option<Json>)>,
    next_step: u32,
    /// What undoes, by its place in the list.
    undos: Vec<Undo<'static>>,
}

impl LogReader {
    pub(crate) fn new(run: RunId, place: String, key_prefix: String) -> LogReader {
        LogReader { run, place, key_prefix, next: Seq(0), steps: BTreeMap::new(), next_step: 0, undos: Vec::new() }
    }

    /// The place of the next entry.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Reads the entries of records that follow what was read, up to the log's first `len` entries.
    pub(crate) fn read(&mut self, records: Vec<Record>, len: u64) -> Result<Vec<LogEntry>, StoreError> {
        let mut entries = Vec::new();
        for record in records {
            let read = each_entry(record.first, record.frames, |seq, _, entry| -> Result<(), ReadError> {
                if seq == self.next && seq.0 < len {
                    entries.push(self.entry(seq, entry));
                    self.next = seq.plus(1);
                }
                Ok(())
            });
            if let Err(ReadError::Entry(seq, e)) = read {
                let (place, run) = (self.place.clone(), Some(self.run.clone()));
                return Err(StoreError::Damaged { place, run, seq: Some(seq), what: e.to_string().into() });
            }
        }
        Ok(entries)
    }

    fn ask(&mut self, path: String, key: Option<Json>) -> StepNo {
        let step = StepNo(self.next_step);
        self.next_step += 1;
        self.steps.insert(step, (path, key));
        step
    }

    /// The key of an effect, if its contract has one.
    fn key(&self, contract: Contract, template: Option<&str>, path: &str) -> Option<Json> {
        let own = || format!("{}/{path}", self.key_prefix);
        (contract == Contract::Keyed).then(|| template.map_or_else(own, str::to_owned).into())
    }

    fn entry(&mut self, seq: Seq, entry: &Entry<'_>) -> LogEntry {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Json| {
            fields.insert(name.to_owned(), value);
        };
        put("seq", seq.0.into());
        put("at", time(entry.at).into());
        put("entry", entry.kind.name().into());
        let (step, rest) = self.fields(&entry.kind);
        let path = step.and_then(|s| self.steps.get(&s).map(|(path, _)| path.clone()));
        if let Some(step) = step {
            put("step", step.0.into());
        }
        if let Some(path) = &path {
            put("path", path.clone().into());
        }
        for (name, value) in rest {
            put(name, value);
        }
        LogEntry { seq, at: system_time(entry.at), name: entry.kind.name(), step, path, json: fields }
    }

    /// The step that an entry is about, and what it says beside that.
    fn fields(&mut self, kind: &Kind<'_>) -> (Option<StepNo>, Vec<(&'static str, Json)>) {
        let mut fields: Vec<(&str, Json)> = Vec::new();
        let mut say = |name: &'static str, value: Json| fields.push((name, value));
        let step = match kind {
            Kind::RunStarted(started) => {
                self.undos = started.undos.iter().cloned().map(Undo::into_owned).collect();
                say("workflow", text(&started.workflow));
                say("module", text(&started.module));
                say("args", value(&started.args));
                say("build", text(&started.build));
                if let Some(parent) = &started.parent {
                    let link = json!({ "run": parent.run, "generation": parent.generation.0, "step": parent.step.0 });
                    say("parent", link);
                }
                if !started.undos.is_empty() {
                    say("undos", started.undos.len().into());
                }
                None
            }
            Kind::RunEnding(end) => {
                say("as", end_word(end).into());
                fields.extend(end_fields(end));
                None
            }
            Kind::RunEnded(end) => {
                fields.extend(end_fields(end));
                None
            }
            Kind::EffectQueued(call) | Kind::EffectCalled(call) => {
                let path = call.path.to_string();
                let key = self.key(call.contract.into(), call.key.as_deref(), &path);
                fields.extend(call_fields(call));
                if let Kind::EffectCalled(_) = kind {
                    fields.push(("attempt", 1.into()));
                }
                fields.extend(key.clone().map(|key| ("key", key)));
                Some(self.ask(path, key))
            }
            Kind::TimerSet { path, site, deadline, .. } => {
                say("deadline", time(*deadline).into());
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::VersionChosen { path, site, version } => {
                say("version", (*version).into());
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::StepClosed { step } | Kind::TimerFired { step } => Some(*step),
            Kind::SignalAwaited { path, site, signal, drain } => {
                say("signal", text(signal));
                if *drain {
                    say("drain", true.into());
                }
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::QuestionAsked { path, site, question } => {
                say("title", text(&question.title));
                if !question.about.is_empty() {
                    say("about", value(&question.about));
                }
                if !question.by.is_empty() {
                    say("by", question.by.iter().map(|by| text(by)).collect::<Vec<_>>().into());
                }
                if let Some(deadline) = question.deadline {
                    say("deadline", time(deadline).into());
                }
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::ChildSpawned { path, site, child } => {
                say("run", text(&child.run));
                say("workflow", text(&child.workflow));
                if child.detached {
                    say("detached", true.into());
                }
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::MessageSent { path, site, to, signal, value: v, .. } => {
                say("to", text(to));
                say("signal", text(signal));
                say("value", value(v));
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::ValuePublished { path, site, name, value: v, .. } => {
                say("name", text(name));
                say("value", value(v));
                fields.extend(site_field(*site));
                Some(self.ask(path.to_string(), None))
            }
            Kind::UndoAdded { path, site, undo } => {
                say("undo", self.undos.len().into());
                fields.extend(undo_fields(undo));
                fields.extend(site_field(*site));
                self.undos.push(undo.clone().into_owned());
                Some(self.ask(path.to_string(), None))
            }
            Kind::SignalReceived { step, messages } => {
                say("messages", messages.iter().map(|message| value(&message.value)).collect::<Vec<_>>().into());
                Some(*step)
            }
            Kind::QuestionAnswered { step, answer, by } => {
                match answer {
                    Answered::Granted(v) => {
                        say("answer", "granted".into());
                        say("value", value(v));
                    }
                    Answered::Refused(reason) => {
                        say("answer", "refused".into());
                        say("reason", text(reason));
                    }
                    Answered::Expired => say("answer", "expired".into()),
                }
                if !by.is_empty() {
                    say("by", text(by));
                }
                Some(*step)
            }
            Kind::ChildEnded { step, run, end } => {
                say("run", text(run));
                match end {
                    ChildEnd::Completed { value: v } => {
                        say("end", "completed".into());
                        say("value", value(v));
                    }
                    ChildEnd::Failed { value: v, message } => {
                        say("end", "failed".into());
                        say("error", text(message));
                        say("value", value(v));
                    }
                    ChildEnd::Cancelled { reason } => {
                        say("end", "cancelled".into());
                        say("reason", text(reason));
                    }
                    ChildEnd::IdTaken => say("end", "id taken".into()),
                }
                Some(*step)
            }
            Kind::CancelRequested { reason, by } => {
                say("reason", text(reason));
                say("by", text(by));
                None
            }
            Kind::SignalSetAside { step, signal, reason } => {
                say("value", value(&signal.value));
                say("reason", text(reason));
                Some(*step)
            }
            Kind::UndoCalled { undo } => {
                let path = format!("undo[{undo}]");
                say("undo", (*undo).into());
                let called = self.undos.get(*undo as usize);
                if let Some(called) = called {
                    fields.extend(undo_fields(called));
                }
                fields.push(("attempt", 1.into()));
                let key = called.and_then(|u| self.key(u.contract.into(), u.key.as_deref(), &path));
                fields.extend(key.clone().map(|key| ("key", key)));
                Some(self.ask(path, key))
            }
            Kind::EffectResult { step, attempt, outcome, unsure } => {
                say("attempt", attempt.0.into());
                fields.push(outcome_field(outcome));
                if *unsure {
                    fields.push(("unsure", true.into()));
                }
                Some(*step)
            }
            Kind::EffectCalledAgain { step, attempt } => {
                say("attempt", attempt.0.into());
                fields.extend(self.steps.get(step).and_then(|(_, key)| key.clone()).map(|key| ("key", key)));
                Some(*step)
            }
            Kind::EffectFailed { step, attempt, error, retry_at, unsure } => {
                say("attempt", attempt.0.into());
                fields.push(outcome_field(error));
                fields.push(("retry_at", time(*retry_at).into()));
                if *unsure {
                    fields.push(("unsure", true.into()));
                }
                Some(*step)
            }
            Kind::EffectNotStarted { step, attempt } => {
                say("attempt", attempt.0.into());
                Some(*step)
            }
            Kind::EffectInDoubt { step, attempt, reason } => {
                say("attempt", attempt.0.into());
                say("reason", text(reason));
                Some(*step)
            }
            Kind::EffectResolved { step, attempt, how, by } => {
                say("attempt", attempt.0.into());
                say("how", resolved_word(*how).into());
                say("by", text(by));
                Some(*step)
            }
            Kind::ResolutionSetAside { step, attempt, how, value: v, by, reason } => {
                say("attempt", attempt.0.into());
                say("how", resolved_word(*how).into());
                if !v.is_empty() {
                    say("value", value(v));
                }
                say("by", text(by));
                say("reason", text(reason));
                Some(*step)
            }
        };
        (step, fields)
    }
}

fn resolved_word(how: Resolved) -> &'static str {
    match how {
        Resolved::Succeeded => "succeeded",
        Resolved::Failed => "failed",
        Resolved::RunAgain => "run again",
    }
}

fn end_word(end: &End<'_>) -> &'static str {
    match end {
        End::Completed { .. } => "completed",
        End::Failed { .. } => "failed",
        End::Cancelled { .. } => "cancelled",
        End::Restarted { .. } => "restarted",
    }
}

fn end_fields(end: &End<'_>) -> Vec<(&'static str, Json)> {
    match end {
        End::Completed { value: v } => vec![("value", value(v))],
        End::Failed { value: v, message } => vec![("error", text(message)), ("value", value(v))],
        End::Cancelled { reason, by } => vec![("reason", text(reason)), ("by", text(by))],
        End::Restarted { workflow, args, .. } => vec![("workflow", text(workflow)), ("args", value(args))],
    }
}

fn call_fields(call: &Call<'_>) -> Vec<(&'static str, Json)> {
    let mut fields = vec![
        ("effect", Json::from(call.effect())),
        ("contract", Contract::from(call.contract).as_str().into()),
        ("args", value(&call.args)),
    ];
    fields.extend(site_field(call.site));
    fields
}

fn undo_fields(undo: &Undo<'_>) -> [(&'static str, Json); 3] {
    [
        ("effect", text(&undo.effect)),
        ("contract", Contract::from(undo.contract).as_str().into()),
        ("args", value(&undo.args)),
    ]
}

fn site_field(site: u128) -> Option<(&'static str, Json)> {
    site_by_id(site).map(|site| ("site", place(site).into()))
}

fn outcome_field(outcome: &Outcome<'_>) -> (&'static str, Json) {
    match outcome {
        Outcome::Ok(v) | Outcome::Err(v) => ("value", value(v)),
        Outcome::Fault(fault) => ("fault", json!({ "text": fault.0.to_string(), "fault": fault.0 })),
    }
}

fn text(text: &str) -> Json {
    Json::from(text)
}

pub(super) fn value(bytes: &[u8]) -> Json {
    Value::from_bytes(Bytes::copy_from_slice(bytes)).to_json()
}
