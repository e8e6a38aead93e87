//! The log as a script: what was recorded, entry by entry, and whether what the code asks meets it.

use std::fmt;

use bytes::Bytes;

use crate::{
    contract::{Contract, Site},
    entry::{Call, Entry, EntryError, FRAME_HEAD, Kind, Path, frame_length, frames_from},
    failure::shortened,
    id::{Seq, StepNo},
    store::{Record, StoreError},
    value::{Value, Written},
};

#[cfg(test)]
use crate::sim::{Broken, is_broken};

/// Reads records of one log, from the one that holds the given place on.
pub(crate) type Source = Box<dyn FnMut(Seq) -> Result<Vec<Record>, StoreError> + Send>;

/// Streams a log. Only what is being read is in memory.
pub(crate) struct Script {
    source: Option<Source>,
    records: std::collections::VecDeque<Record>,
    /// The record that is being read.
    frames: Bytes,
    /// Where in it the entry at `next` begins.
    at: usize,
    next: Seq,
    /// The length of the frame there, if it was looked at already.
    peeked: Option<usize>,
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
        Script {
            source: Some(source),
            records: Default::default(),
            frames: Bytes::new(),
            at: 0,
            next: Seq(0),
            peeked: None,
        }
    }

    /// Looks at the next entry, without moving on; false at the end of the log.
    pub(crate) fn peek(&mut self) -> Result<bool, ScriptError> {
        while self.peeked.is_none() {
            self.peeked = frame_length(&self.frames[self.at..]).map_err(|e| (self.next, e))?;
            if self.peeked.is_some() {
                break;
            }
            (self.frames, self.at) = (Bytes::new(), 0);
            while self.frames.is_empty() {
                if let Some(record) = self.records.pop_front() {
                    self.frames = frames_from(record.first, record.frames, self.next)?;
                    continue;
                }
                let Some(source) = &mut self.source else { return Ok(false) };
                self.records = source(self.next).map_err(ScriptError::Store)?.into();
                if self.records.is_empty() {
                    self.source = None;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The place and the bytes of the entry that [`Script::peek`] has found.
    pub(crate) fn shown(&self) -> (Seq, &[u8]) {
        debug_assert!(self.peeked.is_some(), "only what was looked at is shown");
        let end = self.at + self.peeked.unwrap_or_default();
        (self.next, self.frames.get(self.at + FRAME_HEAD..end).unwrap_or_default())
    }

    /// A part of what is shown, to be kept.
    pub(crate) fn keep(&self, part: &[u8]) -> Bytes {
        self.frames.slice_ref(part)
    }

    /// Moves past the entry that is shown.
    pub(crate) fn advance(&mut self) {
        debug_assert!(self.peeked.is_some(), "only what was looked at is passed");
        self.at += self.peeked.take().unwrap_or_default();
        self.next = self.next.plus(1);
    }
}

/// What the code asks, in the form in which it is compared with the record.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    Effect {
        path: &'a Path<'a>,
        effect: &'a str,
        args: AskedArgs<'a>,
    },
    Timer {
        path: &'a Path<'a>,
    },
    Signal {
        path: &'a Path<'a>,
        signal: &'a str,
        drain: bool,
    },
    Question {
        path: &'a Path<'a>,
        title: &'a str,
        digest: u128,
    },
    /// `given`: the code says which run it is, where it is compared; else the record does.
    Child {
        path: &'a Path<'a>,
        run: &'a str,
        given: bool,
        workflow: &'a str,
        digest: u128,
        detached: bool,
    },
    Message {
        path: &'a Path<'a>,
        to: &'a str,
        signal: &'a str,
        digest: u128,
    },
    Publish {
        path: &'a Path<'a>,
        name: &'a str,
        digest: u128,
    },
    Undo {
        path: &'a Path<'a>,
        effect: &'a str,
        digest: u128,
    },
    Closed {
        step: StepNo,
    },
}

/// The arguments of a call that is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskedArgs<'a> {
    Written(&'a Written),
    /// They cannot be recorded, and this is all that is known of them.
    Digest(u128),
}

impl AskedArgs<'_> {
    pub(crate) fn digest(self) -> u128 {
        match self {
            AskedArgs::Written(args) => args.digest(),
            AskedArgs::Digest(digest) => digest,
        }
    }

    /// Whether they are those of a recorded call. Mostly they are written alike, which is cheaper to see than a digest is to make.
    fn are_of(self, call: &Call<'_>) -> bool {
        matches!(self, AskedArgs::Written(args) if *args.as_bytes() == *call.args) || self.digest() == call.digest
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Effect { path, effect, .. } => write!(f, "effect.called {path} of {effect}"),
            Command::Timer { path } => write!(f, "timer.set {path}"),
            Command::Signal { path, signal, drain } => f.write_str(&describe_wait(path, signal, *drain)),
            Command::Question { path, title, .. } => write!(f, "question.asked {path}: {title}"),
            Command::Child { path, run, workflow, detached, .. } => {
                let detached = if *detached { ", detached" } else { "" };
                write!(f, "child.spawned {path}: run {run} of {workflow}{detached}")
            }
            Command::Message { path, to, signal, .. } => write!(f, "message.sent {path}: {signal} to run {to}"),
            Command::Publish { path, name, .. } => write!(f, "value.published {path}: {name}"),
            Command::Undo { path, effect, .. } => write!(f, "undo.added {path} of {effect}"),
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
        #[cfg(test)]
        (kind, _) if kind.is_engine() && is_broken(Broken::StrictPeek) => false,
        (kind, _) if kind.is_engine() => return Meet::Pass,
        (Kind::EffectQueued(call) | Kind::EffectCalled(call), Command::Effect { path, effect, args }) => {
            call.path == **path && call.effect() == *effect && args.are_of(call)
        }
        (Kind::TimerSet { path, .. }, Command::Timer { path: asked }) => path == *asked,
        (
            Kind::SignalAwaited { path, signal, drain, .. },
            Command::Signal { path: asked, signal: other, drain: drains },
        ) => path == *asked && signal == other && drain == drains,
        (Kind::QuestionAsked { path, question, .. }, Command::Question { path: asked, digest, .. }) => {
            path == *asked && question.digest == *digest
        }
        (
            Kind::ChildSpawned { path, child, .. },
            Command::Child { path: asked, run, given, workflow, digest, detached },
        ) => {
            path == *asked
                && (!given || child.run == *run)
                && child.workflow == *workflow
                && child.digest == *digest
                && child.detached == *detached
        }
        (
            Kind::MessageSent { path, to, signal, digest, .. },
            Command::Message { path: asked, to: addressee, signal: name, digest: given },
        ) => path == *asked && to == addressee && signal == name && digest == given,
        (
            Kind::ValuePublished { path, name, digest, .. },
            Command::Publish { path: asked, name: other, digest: given },
        ) => path == *asked && name == other && digest == given,
        (Kind::UndoAdded { path, undo, .. }, Command::Undo { path: asked, effect, digest }) => {
            path == *asked && undo.effect == *effect && undo.digest == *digest
        }
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
        Kind::SignalAwaited { path, signal, drain, .. } => describe_wait(path, signal, *drain),
        Kind::QuestionAsked { path, question, .. } => {
            let about = described(&question.about);
            format!("question.asked {path}: {} {about}", question.title)
        }
        Kind::ChildSpawned { path, child, .. } => {
            let detached = if child.detached { ", detached" } else { "" };
            format!("child.spawned {path}: run {} of {}{detached}", child.run, child.workflow)
        }
        Kind::MessageSent { path, to, signal, value, .. } => {
            format!("message.sent {path}: {signal} to run {to} {}", described(value))
        }
        Kind::ValuePublished { path, name, value, .. } => {
            format!("value.published {path}: {name} {}", described(value))
        }
        Kind::UndoAdded { path, undo, .. } => format!("undo.added {path} of {} {}", undo.effect, described(&undo.args)),
        Kind::EffectResult { step, .. } => format!("effect.result of step {step}"),
        Kind::SignalReceived { step, .. } => format!("signal.received of step {step}"),
        Kind::QuestionAnswered { step, .. } => format!("question.answered of step {step}"),
        Kind::ChildEnded { step, .. } => format!("child.result of step {step}"),
        Kind::TimerFired { step } => format!("timer.fired of step {step}"),
        other => other.name().to_owned(),
    }
}

fn describe_wait(path: &Path<'_>, signal: &str, drain: bool) -> String {
    let all = if drain { "all that are there of " } else { "" };
    format!("signal.awaited {path}: {all}{signal}")
}

/// A value in words; nothing if there is none.
fn described(value: &[u8]) -> String {
    match value.is_empty() {
        true => String::new(),
        false => shortened(&Value::from_bytes(Bytes::copy_from_slice(value)).to_json().to_string()).into_owned(),
    }
}

pub(crate) fn describe_call(call: &Call<'_>) -> String {
    let args = described(&call.args);
    let effect = if call.effect() == call.path.name { String::new() } else { format!(" of {}", call.effect()) };
    format!("effect.called {}{effect} [{}] {}", call.path, Contract::from(call.contract).as_str(), args)
}

/// `src/agent.rs:17`
pub(crate) fn place(site: &Site) -> String {
    format!("{}:{}", site.file, site.line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Child, Question, RecordedContract, Signal, Undo},
        id::{Attempt, Seq},
        value::ArgsWriter,
    };

    fn path(name: &'static str, n: u32) -> Path<'static> {
        Path { scope: "join[0]/1".into(), name: name.into(), n }
    }

    fn call(contract: RecordedContract) -> Call<'static> {
        let args = b"\x01\x80"[..].into();
        Call { path: path("pay", 0), effect: None, contract, args, digest: 7, key: None, site: 3 }
    }

    fn asked<'a>(path: &'a Path<'a>, effect: &'a str, digest: u128) -> Command<'a> {
        Command::Effect { path, effect, args: AskedArgs::Digest(digest) }
    }

    #[track_caller]
    fn check(recorded: &Kind<'_>, asked: &Command<'_>, expected: Meet) {
        assert_eq!(meet(recorded, asked), expected, "{recorded:?} {asked:?}");
    }

    #[test]
    fn a_call_meets_its_record_whether_it_was_queued_or_called_and_whatever_its_contract_was() {
        let at = path("pay", 0);
        for contract in [RecordedContract::Keyed, RecordedContract::AtMostOnce] {
            check(&Kind::EffectCalled(call(contract)), &asked(&at, "pay", 7), Meet::Same);
            check(&Kind::EffectQueued(call(contract)), &asked(&at, "pay", 7), Meet::Same);
        }
    }

    #[test]
    fn arguments_are_the_recorded_ones_if_they_are_written_alike_or_have_one_digest() {
        let written = |names: [&'static str; 2]| {
            let mut args = ArgsWriter::new(2);
            args.arg(names[0], &names[0]).arg(names[1], &names[1]);
            args.written().unwrap()
        };
        let (one, swapped, other) = (written(["a", "b"]), written(["b", "a"]), written(["a", "c"]));
        let recorded = |args: &Written, digest| {
            let args = args.as_bytes().to_vec().into();
            Kind::EffectCalled(Call { args, digest, ..call(RecordedContract::Keyed) })
        };
        let at = path("pay", 0);
        let asked = |args| Command::Effect { path: &at, effect: "pay", args: AskedArgs::Written(args) };
        check(&recorded(&one, one.digest()), &asked(&one), Meet::Same);
        check(&recorded(&swapped, one.digest()), &asked(&one), Meet::Same);
        check(&recorded(&other, other.digest()), &asked(&one), Meet::Diverged);
        // Recorded as too long, under a limit that is larger now.
        let unrecorded =
            Kind::EffectCalled(Call { args: b""[..].into(), digest: one.digest(), ..call(RecordedContract::Keyed) });
        check(&unrecorded, &asked(&one), Meet::Same);
        check(&unrecorded, &asked(&other), Meet::Diverged);
    }

    #[test]
    fn another_place_name_or_argument_diverges() {
        let called = Kind::EffectCalled(call(RecordedContract::Keyed));
        check(&called, &asked(&path("pay", 1), "pay", 7), Meet::Diverged);
        check(&called, &asked(&path("refund", 0), "refund", 7), Meet::Diverged);
        check(&called, &asked(&path("pay", 0), "refund", 7), Meet::Diverged);
        check(&called, &asked(&path("pay", 0), "pay", 8), Meet::Diverged);
        let elsewhere = Path { scope: "join[0]/2".into(), ..path("pay", 0) };
        check(&called, &asked(&elsewhere, "pay", 7), Meet::Diverged);
    }

    #[test]
    fn a_sleep_is_compared_by_its_place_and_not_by_its_length() {
        let set = Kind::TimerSet { path: path("sleep", 0), site: 1, deadline: 99, absolute: false };
        check(&set, &Command::Timer { path: &path("sleep", 0) }, Meet::Same);
        check(&set, &Command::Timer { path: &path("sleep", 1) }, Meet::Diverged);
        check(&set, &asked(&path("sleep", 0), "sleep", 0), Meet::Diverged);
    }

    #[test]
    fn a_wait_is_compared_by_its_place_its_signal_and_whether_it_drains() {
        let at = path("signal:s", 0);
        let awaited = Kind::SignalAwaited { path: at.clone(), site: 1, signal: "s".into(), drain: false };
        check(&awaited, &Command::Signal { path: &at, signal: "s", drain: false }, Meet::Same);
        check(&awaited, &Command::Signal { path: &at, signal: "s", drain: true }, Meet::Diverged);
        check(&awaited, &Command::Signal { path: &at, signal: "t", drain: false }, Meet::Diverged);
        check(&awaited, &Command::Signal { path: &path("signal:s", 1), signal: "s", drain: false }, Meet::Diverged);
    }

    #[test]
    fn a_question_is_compared_by_what_is_asked_and_not_by_its_deadline() {
        let at = path("ask", 0);
        let question =
            Question { title: "?".into(), about: b""[..].into(), by: Vec::new(), digest: 7, deadline: Some(9) };
        let asked = Kind::QuestionAsked { path: at.clone(), site: 1, question };
        check(&asked, &Command::Question { path: &at, title: "?", digest: 7 }, Meet::Same);
        check(&asked, &Command::Question { path: &at, title: "?", digest: 8 }, Meet::Diverged);
    }

    #[test]
    fn a_child_is_compared_by_its_id_workflow_arguments_and_whether_it_is_detached() {
        let at = path("spawn:w", 0);
        let child = Child { run: "c".into(), detached: true, workflow: "w".into(), digest: 7 };
        let spawned = Kind::ChildSpawned { path: at.clone(), site: 1, child };
        let asked = |run, workflow, digest, detached| Command::Child {
            path: &at,
            run,
            given: run != "made",
            workflow,
            digest,
            detached,
        };
        check(&spawned, &asked("c", "w", 7, true), Meet::Same);
        check(&spawned, &asked("made", "w", 7, true), Meet::Same);
        for other in
            [asked("d", "w", 7, true), asked("c", "v", 7, true), asked("c", "w", 8, true), asked("c", "w", 7, false)]
        {
            check(&spawned, &other, Meet::Diverged);
        }
    }

    #[test]
    fn what_is_said_is_compared_by_to_whom_under_which_name_and_by_its_value() {
        let at = path("say", 0);
        let value = || b"v"[..].into();
        let sent = Kind::MessageSent {
            path: at.clone(),
            site: 1,
            to: "r".into(),
            signal: "s".into(),
            value: value(),
            digest: 7,
        };
        let message = |to, signal, digest| Command::Message { path: &at, to, signal, digest };
        check(&sent, &message("r", "s", 7), Meet::Same);
        for other in [message("q", "s", 7), message("r", "t", 7), message("r", "s", 8)] {
            check(&sent, &other, Meet::Diverged);
        }
        let published = Kind::ValuePublished { path: at.clone(), site: 1, name: "p".into(), value: value(), digest: 7 };
        check(&published, &Command::Publish { path: &at, name: "p", digest: 7 }, Meet::Same);
        check(&published, &Command::Publish { path: &at, name: "q", digest: 7 }, Meet::Diverged);
        check(&published, &Command::Publish { path: &at, name: "p", digest: 8 }, Meet::Diverged);
        check(&published, &message("r", "p", 7), Meet::Diverged);
    }

    #[test]
    fn what_undoes_is_compared_by_its_effect_and_arguments() {
        let at = path("undo:unpay", 0);
        let undo = Undo {
            effect: "unpay".into(),
            module: "m".into(),
            contract: RecordedContract::Keyed,
            args: b""[..].into(),
            digest: 7,
            key: None,
        };
        let added = Kind::UndoAdded { path: at.clone(), site: 1, undo };
        check(&added, &Command::Undo { path: &at, effect: "unpay", digest: 7 }, Meet::Same);
        check(&added, &Command::Undo { path: &at, effect: "unset", digest: 7 }, Meet::Diverged);
        check(&added, &Command::Undo { path: &at, effect: "unpay", digest: 8 }, Meet::Diverged);
    }

    #[test]
    fn a_drop_is_compared_by_its_step() {
        let closed = Kind::StepClosed { step: StepNo(2) };
        check(&closed, &Command::Closed { step: StepNo(2) }, Meet::Same);
        check(&closed, &Command::Closed { step: StepNo(3) }, Meet::Diverged);
        check(&closed, &asked(&path("pay", 0), "pay", 7), Meet::Diverged);
    }

    #[test]
    fn engine_entries_are_looked_past_and_completions_are_not() {
        let (step, attempt, at) = (StepNo(0), Attempt(1), path("pay", 0));
        check(&Kind::EffectCalledAgain { step, attempt }, &asked(&at, "pay", 7), Meet::Pass);
        check(&Kind::EffectNotStarted { step, attempt }, &asked(&at, "pay", 7), Meet::Pass);
        check(&Kind::UndoCalled { undo: 0 }, &asked(&at, "pay", 7), Meet::Pass);
        let signal = Signal { id: 1, value: b"v"[..].into() };
        check(&Kind::SignalSetAside { step, signal, reason: "?".into() }, &asked(&at, "pay", 7), Meet::Pass);
        let (how, value) = (crate::entry::Resolved::Failed, (&[][..]).into());
        let aside = Kind::ResolutionSetAside { step, attempt, how, value, by: "ann".into(), reason: "?".into() };
        check(&aside, &asked(&at, "pay", 7), Meet::Pass);
        let cancel = Kind::CancelRequested { reason: "?".into(), by: "ann".into() };
        check(&cancel, &asked(&at, "pay", 7), Meet::Diverged);
        check(&Kind::TimerFired { step }, &asked(&at, "pay", 7), Meet::Diverged);
    }

    fn frames(steps: std::ops::Range<u32>) -> Bytes {
        let mut frames = bytes::BytesMut::new();
        for step in steps {
            Entry { at: 1, kind: Kind::TimerFired { step: StepNo(step) } }.write(&mut frames).unwrap();
        }
        frames.freeze()
    }

    #[test]
    fn a_script_is_read_over_the_borders_of_records_which_may_begin_early() {
        let source = |from: Seq| {
            Ok(match from.0 {
                0 => vec![Record { first: Seq(0), count: 2, frames: frames(0..2) }],
                // Asked from 2 on, the store answers with the record that holds it.
                2 => vec![Record { first: Seq(1), count: 3, frames: frames(1..4) }],
                _ => Vec::new(),
            })
        };
        let mut script = Script::new(Box::new(source));
        for seq in 0..4 {
            assert!(script.peek().unwrap());
            let (at, frame) = script.shown();
            let step = StepNo(seq as u32);
            assert_eq!((at, crate::entry::decode(frame).unwrap().kind), (Seq(seq), Kind::TimerFired { step }));
            assert!(script.peek().unwrap());
            assert_eq!(script.shown().0, Seq(seq), "looking does not move on");
            script.advance();
        }
        assert!(!script.peek().unwrap());
    }
}
