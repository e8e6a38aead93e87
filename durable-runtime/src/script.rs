//! The log as a script: what was recorded, entry by entry, and whether what the code asks meets it.

use std::fmt;

use bytes::Bytes;

use crate::{
    contract::{Contract, Site},
    entry::{Call, Entry, EntryError, Kind, Path, next_frame},
    failure::shortened,
    id::{Seq, StepNo},
    store::{Record, StoreError},
    value::Value,
};

/// Reads records of one log, from the one that holds the given place on.
pub(crate) type Source = Box<dyn FnMut(Seq) -> Result<Vec<Record>, StoreError> + Send>;

/// Streams a log. Only what is being read is in memory.
pub(crate) struct Script {
    source: Option<Source>,
    records: std::collections::VecDeque<Record>,
    frames: Bytes,
    next: Seq,
    /// The frame at `next`, if it was looked at already.
    peeked: Option<Bytes>,
}

/// Why the script cannot be read on.
#[derive(Clone, Debug)]
pub(crate) enum ScriptError {
    Store(StoreError),
    Entry(Seq, EntryError),
}

impl From<(Seq, EntryError)> for ScriptError {
    fn from((seq, error): (Seq, EntryError)) -> Self {
        ScriptError::Entry(seq, error)
    }
}

impl Script {
    pub(crate) fn new(source: Source) -> Script {
        Script { source: Some(source), records: Default::default(), frames: Bytes::new(), next: Seq(0), peeked: None }
    }

    /// The next entry's bytes, without moving on; `None` at the end of the log.
    pub(crate) fn peek(&mut self) -> Result<Option<(Seq, Bytes)>, ScriptError> {
        if self.peeked.is_none() {
            while self.frames.is_empty() {
                if let Some(record) = self.records.pop_front() {
                    // The first record read may begin before the place asked for.
                    let mut frames = record.frames;
                    for seq in record.first.0..self.next.0.max(record.first.0) {
                        next_frame(&mut frames).map_err(|e| (Seq(seq), e))?;
                    }
                    self.frames = frames;
                    continue;
                }
                let Some(source) = &mut self.source else { return Ok(None) };
                self.records = source(self.next).map_err(ScriptError::Store)?.into();
                if self.records.is_empty() {
                    self.source = None;
                    return Ok(None);
                }
            }
            self.peeked = next_frame(&mut self.frames).map_err(|e| (self.next, e))?;
        }
        Ok(self.peeked.clone().map(|frame| (self.next, frame)))
    }

    /// Moves past the entry that [`Script::peek`] showed.
    pub(crate) fn advance(&mut self) {
        debug_assert!(self.peeked.is_some(), "only what was looked at is passed");
        self.peeked = None;
        self.next = self.next.plus(1);
    }
}

/// What the code asks, in the form in which it is compared with the record.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    Effect { path: &'a Path<'a>, effect: &'a str, digest: u128 },
    Timer { path: &'a Path<'a> },
    Closed { step: StepNo },
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Effect { path, effect, .. } => write!(f, "effect.called {path} of {effect}"),
            Command::Timer { path } => write!(f, "timer.set {path}"),
            Command::Closed { step } => write!(f, "step.closed of step {step}"),
        }
    }
}

/// Whether a command meets the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meet {
    /// It is what was asked then.
    Same,
    /// Something else was asked then, or nothing.
    Diverged,
    /// The record is no command and none of the code's business: look at the next one.
    Pass,
}

/// Compares a command with the entry that stands where it is asked. A sleep's length is not compared: the recorded deadline
/// rules. Nor is a contract: the recorded one rules.
pub(crate) fn meet(recorded: &Kind<'_>, asked: &Command<'_>) -> Meet {
    let same = match (recorded, asked) {
        (kind, _) if kind.is_engine() => return Meet::Pass,
        (Kind::EffectQueued(call) | Kind::EffectCalled(call), Command::Effect { path, effect, digest }) => {
            call.path == **path && call.effect() == *effect && call.digest == *digest
        }
        (Kind::TimerSet { path, .. }, Command::Timer { path: asked }) => path == *asked,
        (Kind::StepClosed { step }, Command::Closed { step: asked }) => step == asked,
        _ => false,
    };
    if same { Meet::Same } else { Meet::Diverged }
}

/// The code and the log disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// The place in the log.
    pub seq: Seq,
    /// What the log holds there, in words, arguments decoded.
    pub recorded: String,
    /// Where the code stood when that was recorded, as far as this binary knows: `src/agent.rs:17`.
    pub recorded_at: Option<String>,
    /// What the code asks there, in words; `None`: it asks for nothing, or has returned.
    pub asked: Option<String>,
    /// Where the code asks: `src/agent.rs:17`.
    pub asked_at: Option<String>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |place: &Option<String>| place.as_ref().map(|p| format!(" ({p})")).unwrap_or_default();
        write!(f, "the log holds at seq {} {}{}; the code ", self.seq, self.recorded, at(&self.recorded_at))?;
        match &self.asked {
            Some(asked) => write!(f, "asks for {asked}{}", at(&self.asked_at)),
            None => f.write_str("asks for nothing there"),
        }
    }
}

/// An entry in words, for people who compare it with code.
pub(crate) fn describe(entry: &Entry<'_>) -> String {
    match &entry.kind {
        Kind::EffectQueued(call) | Kind::EffectCalled(call) => describe_call(call),
        Kind::TimerSet { path, .. } => format!("timer.set {path}"),
        Kind::VersionChosen { path, version, .. } => format!("version.chosen {path} = {version}"),
        Kind::StepClosed { step } => format!("step.closed of step {step}"),
        Kind::EffectResult { step, .. } => format!("effect.result of step {step}"),
        Kind::TimerFired { step } => format!("timer.fired of step {step}"),
        other => other.name().to_owned(),
    }
}

pub(crate) fn describe_call(call: &Call<'_>) -> String {
    let args = Value::from_bytes(Bytes::copy_from_slice(&call.args)).to_json().to_string();
    let effect = if call.effect() == call.path.name { String::new() } else { format!(" of {}", call.effect()) };
    format!("effect.called {}{effect} [{}] {}", call.path, Contract::from(call.contract).as_str(), shortened(&args))
}

/// `src/agent.rs:17`
pub(crate) fn place(site: &Site) -> String {
    format!("{}:{}", site.file, site.line)
}
