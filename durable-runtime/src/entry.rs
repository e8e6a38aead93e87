//! The entries of a run's log and their bytes.
//!
//! An entry is a frame: length (u32), `xxh3_64` of what follows (u64), format version (u8), then the entry in `bincode`
//! with a limit. Variants and fields are only ever added at the end; the golden-bytes test at the foot of this file
//! holds the format still. User values are opaque bytes here.

use std::{borrow::Cow, fmt};

use bincode::{BorrowDecode, Encode, config};
use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::{
    clock::Millis,
    contract::Contract,
    failure::Fault,
    id::{Attempt, Generation, RunId, Seq, StepNo, StoreId},
};

mod quick;

/// Longest entry, in bytes: more than any value limit that can be set.
pub(crate) const ENTRY_BYTES_MAX: usize = 64 * 1024 * 1024;
const VERSION: u8 = 1;
/// What stands before an entry's bytes: length, checksum and version.
pub(crate) const FRAME_HEAD: usize = 4 + 8 + 1;

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Entry<'a> {
    /// When it was appended; never earlier than the entry before it.
    pub at: Millis,
    /// What happened.
    pub kind: Kind<'a>,
}

/// What an entry says. Frame, commands (asked by the code), completions (from outside), engine (only folded).
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) enum Kind<'a> {
    /// Frame: the first entry.
    RunStarted(RunStarted<'a>),
    /// Frame: the code is over, and something is left to do: from here the fold drives.
    RunEnding(End<'a>),
    /// Frame, last: how the run ended.
    RunEnded(End<'a>),
    /// Command: an effect was asked, and no slot was free, or its arguments cannot be recorded.
    EffectQueued(Call<'a>),
    /// Command: an effect was asked; its first attempt may begin.
    EffectCalled(Call<'a>),
    /// Command: a sleep.
    TimerSet {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// When it is due.
        deadline: Millis,
        /// Whether it follows the wall clock (`sleep_until`) and not the time that passes (`sleep`).
        absolute: bool,
    },
    /// Command: the first `version(name, n)` of that name that was not a replay.
    VersionChosen {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// The version that the code had then.
        version: u32,
    },
    /// Command: a step was dropped before it was over.
    StepClosed {
        /// Which.
        step: StepNo,
    },
    /// Command: the code waits for a signal, or drains those that are there.
    SignalAwaited {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// The signal's name.
        signal: Cow<'a, str>,
        /// Whether it takes all that are there, possibly none, and waits for none.
        drain: bool,
    },
    /// Command: a person is asked.
    QuestionAsked {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// What is asked.
        question: Question<'a>,
    },
    /// Command: a child run was made, in the same batch.
    ChildSpawned {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// What was made.
        child: Child<'a>,
    },
    /// Command: a message was put into another run's mailbox, in the same batch.
    MessageSent {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// To which run.
        to: Cow<'a, str>,
        /// The signal's name.
        signal: Cow<'a, str>,
        /// The value.
        value: Cow<'a, [u8]>,
        /// Digest of the value.
        digest: u128,
    },
    /// Command: a value was published, in the same batch.
    ValuePublished {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// The name that readers ask for.
        name: Cow<'a, str>,
        /// The value.
        value: Cow<'a, [u8]>,
        /// Digest of the value.
        digest: u128,
    },
    /// Command: a compensation was registered.
    UndoAdded {
        /// Where in the run.
        path: Path<'a>,
        /// The call site.
        site: u128,
        /// What is to be called if the run fails or is cancelled.
        undo: Undo<'a>,
    },
    /// Completion: an effect is over.
    EffectResult {
        /// Which step.
        step: StepNo,
        /// Which attempt; 0 if none was begun.
        attempt: Attempt,
        /// How it ended.
        outcome: Outcome<'a>,
        /// Whether what this attempt did is unknown.
        unsure: bool,
    },
    /// Completion: a sleep is over.
    TimerFired {
        /// Which step.
        step: StepNo,
    },
    /// Completion: a wait for a signal is over; the rows were removed from the mailbox in the same batch.
    SignalReceived {
        /// Which step.
        step: StepNo,
        /// The messages, oldest first: one, or those that a drain has found.
        messages: Vec<Signal<'a>>,
    },
    /// Completion: a question is over.
    QuestionAnswered {
        /// Which step.
        step: StepNo,
        /// How.
        answer: Answered<'a>,
        /// Who answered; empty if nobody did.
        by: Cow<'a, str>,
    },
    /// Completion: a child run has ended, or could not be made.
    ChildEnded {
        /// Which step.
        step: StepNo,
        /// The child's id.
        run: Cow<'a, str>,
        /// How it ended.
        end: ChildEnd<'a>,
    },
    /// Completion: the run is to be cancelled.
    CancelRequested {
        /// Why.
        reason: Cow<'a, str>,
        /// Who asked.
        by: Cow<'a, str>,
    },
    /// Engine: a later attempt, or the first of a queued call, may begin.
    EffectCalledAgain {
        /// Which step.
        step: StepNo,
        /// Which attempt.
        attempt: Attempt,
    },
    /// Engine: an attempt failed, and another one follows.
    EffectFailed {
        /// Which step.
        step: StepNo,
        /// Which attempt.
        attempt: Attempt,
        /// How it failed.
        error: Outcome<'a>,
        /// When the next attempt is due.
        retry_at: Millis,
        /// Whether what this attempt did is unknown.
        unsure: bool,
    },
    /// Engine: an attempt was called, and its body never began.
    EffectNotStarted {
        /// Which step.
        step: StepNo,
        /// Which attempt.
        attempt: Attempt,
    },
    /// Engine: nobody knows what an attempt did.
    EffectInDoubt {
        /// Which step.
        step: StepNo,
        /// Which attempt.
        attempt: Attempt,
        /// Why.
        reason: Cow<'a, str>,
    },
    /// Engine: the doubt was removed; an outcome follows unless it is to run again.
    EffectResolved {
        /// Which step.
        step: StepNo,
        /// Which attempt.
        attempt: Attempt,
        /// How.
        how: Resolved,
        /// By whom: a person's words, or `reconcile`.
        by: Cow<'a, str>,
    },
    /// Engine: a message, or an answer, does not decode as what the step waits for. It is out of the mailbox, and the wait
    /// goes on.
    SignalSetAside {
        /// Which step.
        step: StepNo,
        /// What came.
        signal: Signal<'a>,
        /// Why it is of no use.
        reason: Cow<'a, str>,
    },
    /// Engine: a compensation is called, as a step of its own.
    UndoCalled {
        /// Its place in the list, from 0, in the order of registration.
        undo: u32,
    },
    /// Engine: a person's word on a doubt is of no use. It is out of the mailbox, and the step is in doubt still.
    ResolutionSetAside {
        /// Which step.
        step: StepNo,
        /// Which attempt.
        attempt: Attempt,
        /// What was said.
        how: Resolved,
        /// The value or the reason that was given; empty if none was.
        value: Cow<'a, [u8]>,
        /// Who said so.
        by: Cow<'a, str>,
        /// Why it is of no use.
        reason: Cow<'a, str>,
    },
}

/// What is asked of a person.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Question<'a> {
    /// In one line.
    pub title: Cow<'a, str>,
    /// What is to be approved; empty if nothing was given.
    pub about: Cow<'a, [u8]>,
    /// Who may answer; empty: anybody.
    pub by: Vec<Cow<'a, str>>,
    /// Digest of title, subject and who may answer.
    pub digest: u128,
    /// When nobody can answer any more.
    pub deadline: Option<Millis>,
}

/// A child run.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Child<'a> {
    /// Its id.
    pub run: Cow<'a, str>,
    /// Whether it goes on when the parent ends.
    pub detached: bool,
    /// Recorded name of its workflow.
    pub workflow: Cow<'a, str>,
    /// Digest of its arguments, which its own log holds.
    pub digest: u128,
}

/// A call as data: what undoes something.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Undo<'a> {
    /// Recorded name of the effect.
    pub effect: Cow<'a, str>,
    /// The module it was defined in.
    pub module: Cow<'a, str>,
    /// The contract it had then.
    pub contract: RecordedContract,
    /// The arguments.
    pub args: Cow<'a, [u8]>,
    /// Digest of the arguments.
    pub digest: u128,
    /// The key rendered from `key = ".."`; `None`: the engine's own.
    pub key: Option<Cow<'a, str>>,
}

impl Undo<'_> {
    /// The same, owning its bytes.
    pub(crate) fn into_owned(self) -> Undo<'static> {
        Undo {
            effect: Cow::Owned(self.effect.into_owned()),
            module: Cow::Owned(self.module.into_owned()),
            contract: self.contract,
            args: Cow::Owned(self.args.into_owned()),
            digest: self.digest,
            key: self.key.map(|key| Cow::Owned(key.into_owned())),
        }
    }
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Signal<'a> {
    /// The id of its row.
    pub id: u128,
    /// The value.
    pub value: Cow<'a, [u8]>,
}

/// How a question was answered.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) enum Answered<'a> {
    /// Yes, with a value.
    Granted(Cow<'a, [u8]>),
    /// No, and why.
    Refused(Cow<'a, str>),
    /// Nobody answered in time.
    Expired,
}

/// How a child run ended.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) enum ChildEnd<'a> {
    /// Its code returned; an `Ok` if it returns a `Result`.
    Completed {
        /// The whole returned value.
        value: Cow<'a, [u8]>,
    },
    /// Its code returned an `Err`.
    Failed {
        /// The whole returned value.
        value: Cow<'a, [u8]>,
        /// The error in words.
        message: Cow<'a, str>,
    },
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: Cow<'a, str>,
    },
    /// The id names a run that is not this step's child.
    IdTaken,
}

/// Whose child a run is.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Parent<'a> {
    /// The parent's id.
    pub run: Cow<'a, str>,
    /// The log of the parent that spawned it.
    pub generation: Generation,
    /// The step that spawned it.
    pub step: StepNo,
    /// The random bits of that log: a run that is removed leaves its id to another one, which has others.
    pub seed: u128,
}

impl Parent<'_> {
    /// The same, owning its text.
    pub(crate) fn into_owned(self) -> Parent<'static> {
        let Parent { run, generation, step, seed } = self;
        Parent { run: Cow::Owned(run.into_owned()), generation, step, seed }
    }

    /// The link as a number: never 0, which is nobody's.
    pub(crate) fn id(&self) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(b"P");
        hash.update(&self.generation.0.to_le_bytes());
        hash.update(&self.step.0.to_le_bytes());
        hash.update(&self.seed.to_le_bytes());
        hash.update(self.run.as_bytes());
        hash.digest128().max(1)
    }
}

/// How a run began.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct RunStarted<'a> {
    /// Recorded name of the workflow.
    pub workflow: Cow<'a, str>,
    /// The module it was defined in.
    pub module: Cow<'a, str>,
    /// Whether the name was given by `name = ".."`: then the module does not count.
    pub explicit_name: bool,
    /// The arguments.
    pub args: Cow<'a, [u8]>,
    /// Digest of the arguments.
    pub digest: u128,
    /// Version of this library.
    pub build: Cow<'a, str>,
    /// 128 random bits that `random()` and `uuid()` derive from.
    pub seed: u128,
    /// When the first log of the run began.
    pub born: Millis,
    /// Whose child it is.
    pub parent: Option<Parent<'a>>,
    /// Compensations that earlier logs of the run have registered.
    pub undos: Vec<Undo<'a>>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) enum End<'a> {
    /// The code returned; an `Ok` if it returns a `Result`.
    Completed {
        /// The whole returned value.
        value: Cow<'a, [u8]>,
    },
    /// The code returned an `Err`.
    Failed {
        /// The whole returned value.
        value: Cow<'a, [u8]>,
        /// The error in words.
        message: Cow<'a, str>,
    },
    /// It was cancelled before the code returned.
    Cancelled {
        /// Why.
        reason: Cow<'a, str>,
        /// Who asked.
        by: Cow<'a, str>,
    },
    /// It goes on in a fresh log.
    Restarted {
        /// Recorded name of the workflow that it goes on with.
        workflow: Cow<'a, str>,
        /// The module it was defined in.
        module: Cow<'a, str>,
        /// Whether the name was given by `name = ".."`.
        explicit_name: bool,
        /// The arguments.
        args: Cow<'a, [u8]>,
        /// Digest of the arguments.
        digest: u128,
    },
}

impl End<'_> {
    /// Whether what was registered with `undo` is called.
    pub(crate) fn undoes(&self) -> bool {
        matches!(self, End::Failed { .. } | End::Cancelled { .. })
    }

    /// The same, owning its bytes.
    pub(crate) fn into_owned(self) -> End<'static> {
        match self {
            End::Cancelled { reason, by } => {
                End::Cancelled { reason: Cow::Owned(reason.into_owned()), by: Cow::Owned(by.into_owned()) }
            }
            End::Restarted { workflow, module, explicit_name, args, digest } => End::Restarted {
                workflow: Cow::Owned(workflow.into_owned()),
                module: Cow::Owned(module.into_owned()),
                explicit_name,
                args: Cow::Owned(args.into_owned()),
                digest,
            },
            End::Completed { value } => End::Completed { value: Cow::Owned(value.into_owned()) },
            End::Failed { value, message } => {
                End::Failed { value: Cow::Owned(value.into_owned()), message: Cow::Owned(message.into_owned()) }
            }
        }
    }
}

/// A name in a scope, and how often the scope had asked for that name before.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Path<'a> {
    /// The scope, as text; empty for the workflow's own body.
    pub scope: Cow<'a, str>,
    /// The name.
    pub name: Cow<'a, str>,
    /// Its number in the scope, from 0.
    pub n: u32,
}

impl Path<'_> {
    /// The path as text: what `to_string` gives, in one allocation of just that size where nothing has to be escaped. Made for
    /// every step, so not by way of [`fmt`].
    pub(crate) fn text(&self) -> String {
        let slash = usize::from(!self.scope.is_empty());
        let mut text = String::with_capacity(self.scope.len() + slash + self.name.len() + "[]".len() + digits(self.n));
        if !self.scope.is_empty() {
            text.push_str(&self.scope);
            text.push('/');
        }
        push_place(&mut text, &self.name, self.n);
        text
    }
}

/// Appends the `n`th of that name: `pay[0]`.
pub(crate) fn push_place(text: &mut String, name: &str, n: u32) {
    // Nearly every name is written as it is.
    match name.bytes().all(|byte| byte.is_ascii_graphic() && !is_escaped(byte.into())) {
        true => text.push_str(name),
        false => text.push_str(&EscapedName(name).to_string()),
    }
    text.push('[');
    push_number(text, n);
    text.push(']');
}

pub(crate) fn push_number(text: &mut String, mut n: u32) {
    let mut number = [b'0'; 10];
    let len = digits(n);
    for digit in number[..len].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    text.push_str(str::from_utf8(&number[..len]).unwrap_or_default());
}

/// How many digits a number has.
pub(crate) fn digits(n: u32) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scope.is_empty() {
            write!(f, "{}/", self.scope)?;
        }
        write!(f, "{}[{}]", EscapedName(&self.name), self.n)
    }
}

/// Writes a name such that no two paths have one text: `/`, `[`, `]`, `%` and control characters escaped.
pub(crate) struct EscapedName<'a>(pub(crate) &'a str);

impl fmt::Display for EscapedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nearly every name is written as it is, in one piece.
        let mut rest = self.0;
        while let Some(at) = rest.find(is_escaped) {
            let (before, after) = rest.split_at(at);
            f.write_str(before)?;
            let mut chars = after.chars();
            if let Some(c) = chars.next() {
                write!(f, "%{:02X}", u32::from(c))?;
            }
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

fn is_escaped(c: char) -> bool {
    matches!(c, '/' | '[' | ']' | '%') || c.is_control()
}

/// What the engine's own keys of a run begin with: store, run and generation, each escaped so that `/` stands only between them.
pub(crate) fn key_prefix(store: StoreId, run: &RunId, generation: Generation) -> String {
    format!("{store}/{}/{generation}", EscapedName(run.as_str()))
}

/// A call of an effect, as recorded.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) struct Call<'a> {
    /// Where in the run.
    pub path: Path<'a>,
    /// Recorded name of the effect, if the step was given another name by `.named(..)`.
    pub effect: Option<Cow<'a, str>>,
    /// The contract it had then; it rules for this step whatever the code says later.
    pub contract: RecordedContract,
    /// The arguments; empty if they cannot be recorded.
    pub args: Cow<'a, [u8]>,
    /// Digest of the arguments.
    pub digest: u128,
    /// The key rendered from `key = ".."`; `None`: the engine's own.
    pub key: Option<Cow<'a, str>>,
    /// The call site.
    pub site: u128,
}

impl Call<'_> {
    /// Recorded name of the effect.
    pub(crate) fn effect(&self) -> &str {
        self.effect.as_deref().unwrap_or(&self.path.name)
    }
}

/// A [`Contract`] in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum RecordedContract {
    /// See [`Contract::ReadOnly`].
    ReadOnly,
    /// See [`Contract::Idempotent`].
    Idempotent,
    /// See [`Contract::Keyed`].
    Keyed,
    /// See [`Contract::AtMostOnce`].
    AtMostOnce,
}

impl From<Contract> for RecordedContract {
    fn from(contract: Contract) -> Self {
        match contract {
            Contract::ReadOnly => RecordedContract::ReadOnly,
            Contract::Idempotent => RecordedContract::Idempotent,
            Contract::Keyed => RecordedContract::Keyed,
            Contract::AtMostOnce => RecordedContract::AtMostOnce,
        }
    }
}

impl From<RecordedContract> for Contract {
    fn from(contract: RecordedContract) -> Self {
        match contract {
            RecordedContract::ReadOnly => Contract::ReadOnly,
            RecordedContract::Idempotent => Contract::Idempotent,
            RecordedContract::Keyed => Contract::Keyed,
            RecordedContract::AtMostOnce => Contract::AtMostOnce,
        }
    }
}

/// How an attempt or a step ended.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub(crate) enum Outcome<'a> {
    /// The body returned; an `Ok` if it returns a `Result`. The whole value.
    Ok(Cow<'a, [u8]>),
    /// The body returned an `Err`. The whole value.
    Err(Cow<'a, [u8]>),
    /// The engine found something.
    Fault(RecordedFault),
}

/// A [`Fault`] in the log, as a user value, so that it can grow fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedFault(pub Fault);

impl Encode for RecordedFault {
    fn encode<E: bincode::enc::Encoder>(&self, encoder: &mut E) -> Result<(), bincode::error::EncodeError> {
        let bytes =
            rmp_serde::to_vec_named(&self.0).map_err(|e| bincode::error::EncodeError::OtherString(e.to_string()))?;
        bytes.encode(encoder)
    }
}

impl<'de, C> BorrowDecode<'de, C> for RecordedFault {
    fn borrow_decode<D: bincode::de::BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<Self, bincode::error::DecodeError> {
        let bytes = <&[u8]>::borrow_decode(decoder)?;
        rmp_serde::from_slice(bytes)
            .map(RecordedFault)
            .map_err(|e| bincode::error::DecodeError::OtherString(e.to_string()))
    }
}

/// How a doubt was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub(crate) enum Resolved {
    /// It happened; the value is in the outcome that follows.
    Succeeded,
    /// It did not work; the error is in the outcome that follows.
    Failed,
    /// It did not happen: the body may run.
    RunAgain,
}

macro_rules! newtype_codec {
    ($name:ident) => {
        impl Encode for $name {
            fn encode<E: bincode::enc::Encoder>(&self, encoder: &mut E) -> Result<(), bincode::error::EncodeError> {
                self.0.encode(encoder)
            }
        }
        impl<'de, C> BorrowDecode<'de, C> for $name {
            fn borrow_decode<D: bincode::de::BorrowDecoder<'de, Context = C>>(
                decoder: &mut D,
            ) -> Result<Self, bincode::error::DecodeError> {
                BorrowDecode::borrow_decode(decoder).map($name)
            }
        }
    };
}
newtype_codec!(StepNo);
newtype_codec!(Attempt);
newtype_codec!(Generation);

impl Kind<'_> {
    /// The entry's name in tables and JSON lines.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::RunStarted(_) => "run.started",
            Kind::RunEnding(_) => "run.ending",
            Kind::RunEnded(End::Completed { .. }) => "run.completed",
            Kind::RunEnded(End::Failed { .. }) => "run.failed",
            Kind::RunEnded(End::Cancelled { .. }) => "run.cancelled",
            Kind::RunEnded(End::Restarted { .. }) => "run.restarted",
            Kind::EffectQueued(_) => "effect.queued",
            Kind::EffectCalled(_) | Kind::EffectCalledAgain { .. } | Kind::UndoCalled { .. } => "effect.called",
            Kind::TimerSet { .. } => "timer.set",
            Kind::VersionChosen { .. } => "version.chosen",
            Kind::StepClosed { .. } => "step.closed",
            Kind::SignalAwaited { .. } => "signal.awaited",
            Kind::QuestionAsked { .. } => "question.asked",
            Kind::ChildSpawned { .. } => "child.spawned",
            Kind::MessageSent { .. } => "message.sent",
            Kind::ValuePublished { .. } => "value.published",
            Kind::UndoAdded { .. } => "undo.added",
            Kind::SignalReceived { .. } => "signal.received",
            Kind::QuestionAnswered { .. } => "question.answered",
            Kind::ChildEnded { .. } => "child.result",
            Kind::CancelRequested { .. } => "run.cancel_requested",
            Kind::SignalSetAside { .. } => "signal.set_aside",
            Kind::EffectResult { .. } => "effect.result",
            Kind::TimerFired { .. } => "timer.fired",
            Kind::EffectFailed { .. } => "effect.failed",
            Kind::EffectNotStarted { .. } => "effect.not_started",
            Kind::EffectInDoubt { .. } => "effect.in_doubt",
            Kind::EffectResolved { .. } => "effect.resolved",
            Kind::ResolutionSetAside { .. } => "resolution.set_aside",
        }
    }

    /// Whether the code asked for it: then, on replay, the code must ask for it again.
    pub(crate) fn is_command(&self) -> bool {
        matches!(
            self,
            Kind::EffectQueued(_)
                | Kind::EffectCalled(_)
                | Kind::TimerSet { .. }
                | Kind::VersionChosen { .. }
                | Kind::StepClosed { .. }
                | Kind::SignalAwaited { .. }
                | Kind::QuestionAsked { .. }
                | Kind::ChildSpawned { .. }
                | Kind::MessageSent { .. }
                | Kind::ValuePublished { .. }
                | Kind::UndoAdded { .. }
        )
    }

    /// Whether it makes a step, which has the next number.
    pub(crate) fn makes_step(&self) -> bool {
        self.is_command() && !matches!(self, Kind::StepClosed { .. }) || matches!(self, Kind::UndoCalled { .. })
    }

    /// Whether only the fold is concerned.
    pub(crate) fn is_engine(&self) -> bool {
        matches!(
            self,
            Kind::EffectCalledAgain { .. }
                | Kind::EffectFailed { .. }
                | Kind::EffectNotStarted { .. }
                | Kind::EffectInDoubt { .. }
                | Kind::EffectResolved { .. }
                | Kind::SignalSetAside { .. }
                | Kind::UndoCalled { .. }
                | Kind::ResolutionSetAside { .. }
        )
    }
}

/// Why bytes are no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum EntryError {
    /// The frame is cut off.
    Short,
    /// The checksum is not that of the bytes.
    Checksum,
    /// A later version of this library wrote it.
    Version(u8),
    /// The bytes do not decode.
    Undecodable(String),
    /// The entry is longer than [`ENTRY_BYTES_MAX`].
    TooLong(usize),
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::Short => f.write_str("the entry is cut off"),
            EntryError::Checksum => f.write_str("the entry's checksum does not match its bytes"),
            EntryError::Version(v) => {
                write!(f, "the entry has format version {v}, and this library reads version {VERSION}")
            }
            EntryError::Undecodable(why) => write!(f, "the entry does not decode: {why}"),
            EntryError::TooLong(n) => write!(f, "the entry has {n} bytes, more than {ENTRY_BYTES_MAX}"),
        }
    }
}

impl std::error::Error for EntryError {}

impl Entry<'_> {
    /// Appends the entry's frame to `frames`.
    ///
    /// # Errors
    ///
    /// [`EntryError::TooLong`]; then `frames` is as before.
    pub(crate) fn write(&self, frames: &mut BytesMut) -> Result<(), EntryError> {
        let start = frames.len();
        frames.put_bytes(0, FRAME_HEAD);
        frames[start + FRAME_HEAD - 1] = VERSION;
        let mut writer = frames.writer();
        if let Err(e) = bincode::encode_into_std_write(self, &mut writer, config::standard()) {
            frames.truncate(start);
            return Err(EntryError::Undecodable(e.to_string()));
        }
        let length = frames.len() - start - FRAME_HEAD + 1;
        if length > ENTRY_BYTES_MAX {
            frames.truncate(start);
            return Err(EntryError::TooLong(length));
        }
        let sum = xxh3_64(&frames[start + 12..]);
        frames[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
        frames[start + 4..start + 12].copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }
}

/// Cuts the first frame off `frames`; `None` if there is none. What is cut off is checked and holds one entry's bytes for [`decode`].
///
/// # Errors
///
/// [`EntryError`] if the frame is not whole or was damaged; then `frames` is as before.
pub(crate) fn next_frame(frames: &mut Bytes) -> Result<Option<Bytes>, EntryError> {
    let Some(length) = frame_length(frames)? else { return Ok(None) };
    Ok(Some(frames.split_to(length).split_off(FRAME_HEAD)))
}

/// How long the first frame of `frames` is, which is checked; `None` if there is none. From [`FRAME_HEAD`] on it holds one entry's
/// bytes for [`decode`].
///
/// # Errors
///
/// [`EntryError`] if the frame is not whole or was damaged.
pub(crate) fn frame_length(frames: &[u8]) -> Result<Option<usize>, EntryError> {
    if frames.is_empty() {
        return Ok(None);
    }
    let (Some(length), Some(sum)) = (frames.first_chunk::<4>(), frames.get(4..12)) else {
        return Err(EntryError::Short);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > ENTRY_BYTES_MAX {
        return Err(EntryError::TooLong(length));
    }
    let Some(body) = frames.get(12..12 + length) else {
        return Err(EntryError::Short);
    };
    if xxh3_64(body).to_le_bytes() != sum {
        return Err(EntryError::Checksum);
    }
    match body.first() {
        Some(&VERSION) => {}
        Some(&other) => return Err(EntryError::Version(other)),
        None => return Err(EntryError::Short),
    }
    Ok(Some(12 + length))
}

/// The frames of a record that begins at `first`, from `from` on: the record that holds a place may begin before it.
///
/// # Errors
///
/// The place of the first frame that is damaged, and what is wrong.
pub(crate) fn frames_from(first: Seq, mut frames: Bytes, from: Seq) -> Result<Bytes, (Seq, EntryError)> {
    for seq in first.0..from.0.max(first.0) {
        next_frame(&mut frames).map_err(|e| (Seq(seq), e))?;
    }
    Ok(frames)
}

/// Decodes what [`next_frame`] cut off, without copying texts and values.
///
/// # Errors
///
/// [`EntryError::Undecodable`]. Hostile bytes neither panic nor allocate without bound.
pub(crate) fn decode(frame: &[u8]) -> Result<Entry<'_>, EntryError> {
    match quick::decode(frame) {
        Some(entry) => Ok(entry),
        None => decode_any(frame),
    }
}

fn decode_any(frame: &[u8]) -> Result<Entry<'_>, EntryError> {
    let config = config::standard().with_limit::<ENTRY_BYTES_MAX>();
    match bincode::borrow_decode_from_slice(frame, config) {
        Ok((entry, read)) if read == frame.len() => Ok(entry),
        Ok((_, read)) => Err(EntryError::Undecodable(format!("{} bytes are left over", frame.len() - read))),
        Err(e) => Err(EntryError::Undecodable(e.to_string())),
    }
}

/// Reads all entries of a record, with their places, into `each`.
///
/// # Errors
///
/// The place of the first entry that is damaged, and what is wrong; or what `each` answered.
pub(crate) fn each_entry<E: From<(Seq, EntryError)>>(
    first: Seq,
    mut frames: Bytes,
    mut each: impl FnMut(Seq, &Bytes, &Entry<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut seq = first;
    while let Some(frame) = next_frame(&mut frames).map_err(|e| (seq, e))? {
        let entry = decode(&frame).map_err(|e| (seq, e))?;
        each(seq, &frame, &entry)?;
        seq = seq.plus(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
