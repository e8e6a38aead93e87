//! The rows of a run's mailbox: facts that came while the run was not polled, or from another hand.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    clock::Millis,
    effect::BodyEnd,
    entry::{ChildEnd, Parent},
    head::pack,
    id::{Attempt, Generation, StepNo},
    store::Row,
    value::Value,
};

const OUTCOME: u8 = 1;
const RESOLVE: u8 = 2;
const SIGNAL: u8 = 3;
const REPLY: u8 = 4;
const CANCEL: u8 = 5;
const CHILD: u8 = 6;

/// What a row says.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Outcome {
        generation: Generation,
        step: StepNo,
        attempt: Attempt,
        end: BodyEnd,
    },
    Resolve {
        generation: Generation,
        step: StepNo,
        attempt: Attempt,
        how: Verdict,
        by: String,
        /// It was given while the run did not go on, and a later word may correct it: then each is a row with an id of its own.
        kept: Option<u128>,
    },
    Signal(Mail),
    Reply(Reply),
    Cancel {
        reason: String,
        by: String,
        parent: Option<Parent<'static>>,
    },
    Child {
        child: String,
        parent: Parent<'static>,
        end: ChildEnd<'static>,
    },
}

/// A message to a run, under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mail {
    /// Unique per run.
    #[serde(skip)]
    pub(crate) id: u128,
    pub(crate) name: String,
    pub(crate) value: Bytes,
    pub(crate) sent_at: Millis,
}

impl Mail {
    /// The id of a message that its sender has named: the same name and id are the same message.
    pub(crate) fn named_id(name: &str, id: &str) -> u128 {
        row_id(SIGNAL, &[b"n", name.as_bytes(), id.as_bytes()])
    }

    /// The id of the message that a step of another run sends. The seed of that run's log is another one once the run was removed and its id
    /// used again.
    pub(crate) fn sent_id(key_prefix: &str, seed: u128, path: &str) -> u128 {
        row_id(SIGNAL, &[b"s", key_prefix.as_bytes(), &seed.to_le_bytes(), path.as_bytes()])
    }
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) generation: u32,
    /// The question's path.
    pub(crate) path: String,
    /// How many answers were known to be of no use when it was given: of those that fit only one can be put in each round.
    pub(crate) round: u32,
    /// Yes with a value, or no with a reason.
    pub(crate) verdict: Result<Bytes, String>,
    pub(crate) by: String,
    /// Nobody could say whether it fits: then each is a row of its own, of this id.
    #[serde(with = "unchecked")]
    pub(crate) unchecked: Option<u128>,
}

impl Reply {
    fn id(&self) -> u128 {
        self.unchecked.unwrap_or_else(|| {
            row_id(REPLY, &[&self.generation.to_le_bytes(), &self.round.to_le_bytes(), self.path.as_bytes()])
        })
    }
}

/// In the bytes of a row only whether; the id is the row's.
mod unchecked {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(unchecked: &Option<u128>, serializer: S) -> Result<S::Ok, S::Error> {
        unchecked.is_some().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u128>, D::Error> {
        Ok(bool::deserialize(deserializer)?.then_some(0))
    }
}

/// A person's word on a step in doubt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Succeeded(Value),
    FailedWith(Value),
    Failed(String),
    RunAgain,
    /// It succeeded (`ok`) or failed with a value that nobody has compared with the effect's type: as it was given, and as the `Ok` or
    /// `Err` of a `Result`.
    Unchecked {
        ok: bool,
        plain: Value,
        wrapped: Value,
    },
}

#[derive(Serialize, Deserialize)]
struct OutcomeRow {
    generation: u32,
    step: u32,
    attempt: u32,
    end: PackedEnd,
}

#[derive(Serialize, Deserialize)]
enum PackedEnd {
    Ok { value: Bytes },
    Err { value: Bytes, retry: bool, message: String },
    NotRecordable { reason: String },
    InDoubt { reason: String },
    Panicked { message: String },
    TimedOut { timeout_ms: u64 },
    ShutDown,
}

#[derive(Serialize, Deserialize)]
struct ResolveRow {
    generation: u32,
    step: u32,
    attempt: u32,
    how: PackedVerdict,
    by: String,
    kept: bool,
}

#[derive(Serialize, Deserialize)]
struct CancelRow {
    reason: String,
    by: String,
    /// The parent, if it is the one who cancels.
    parent: Option<ParentLink>,
}

#[derive(Serialize, Deserialize)]
struct ChildRow {
    child: String,
    parent: ParentLink,
    end: PackedChildEnd,
}

/// Run, generation, step and seed.
#[derive(Serialize, Deserialize)]
struct ParentLink(String, u32, u32, u128);

impl From<&Parent<'_>> for ParentLink {
    fn from(parent: &Parent<'_>) -> ParentLink {
        ParentLink(parent.run.to_string(), parent.generation.0, parent.step.0, parent.seed)
    }
}

impl From<ParentLink> for Parent<'static> {
    fn from(ParentLink(run, generation, step, seed): ParentLink) -> Parent<'static> {
        Parent { run: run.into(), generation: Generation(generation), step: StepNo(step), seed }
    }
}

#[derive(Serialize, Deserialize)]
enum PackedChildEnd {
    Completed(Bytes),
    Failed(Bytes, String),
    Cancelled(String),
    IdTaken,
}

#[derive(Serialize, Deserialize)]
enum PackedVerdict {
    Succeeded(Bytes),
    FailedWith(Bytes),
    Failed(String),
    RunAgain,
    Unchecked { ok: bool, plain: Bytes, wrapped: Bytes },
}

impl Message {
    /// The row. Its id is made of what it is about, so that the same fact is one row.
    pub(crate) fn row(&self) -> Row {
        match self {
            Message::Outcome { generation, step, attempt, end } => {
                let end = match end.clone() {
                    BodyEnd::Ok { value } => PackedEnd::Ok { value: value.as_bytes().clone() },
                    BodyEnd::Err { value, retry, message } => {
                        PackedEnd::Err { value: value.as_bytes().clone(), retry, message }
                    }
                    BodyEnd::NotRecordable { reason } => PackedEnd::NotRecordable { reason },
                    BodyEnd::InDoubt { reason } => PackedEnd::InDoubt { reason },
                    BodyEnd::Panicked { message } => PackedEnd::Panicked { message },
                    BodyEnd::TimedOut { timeout_ms } => PackedEnd::TimedOut { timeout_ms },
                    BodyEnd::ShutDown => PackedEnd::ShutDown,
                };
                let row = OutcomeRow { generation: generation.0, step: step.0, attempt: attempt.0, end };
                let id = id(OUTCOME, *generation, *step, *attempt);
                Row { id, kind: OUTCOME, bytes: pack(&row) }
            }
            Message::Resolve { generation, step, attempt, how, by, kept } => {
                let how = match how.clone() {
                    Verdict::Succeeded(value) => PackedVerdict::Succeeded(value.as_bytes().clone()),
                    Verdict::FailedWith(value) => PackedVerdict::FailedWith(value.as_bytes().clone()),
                    Verdict::Failed(reason) => PackedVerdict::Failed(reason),
                    Verdict::RunAgain => PackedVerdict::RunAgain,
                    Verdict::Unchecked { ok, plain, wrapped } => {
                        let (plain, wrapped) = (plain.as_bytes().clone(), wrapped.as_bytes().clone());
                        PackedVerdict::Unchecked { ok, plain, wrapped }
                    }
                };
                let by = by.clone();
                // One word per doubt: a second one for the same attempt is another row with the same id, and is not put.
                let id = kept.unwrap_or_else(|| id(RESOLVE, *generation, *step, *attempt));
                let kept = kept.is_some();
                let row = ResolveRow { generation: generation.0, step: step.0, attempt: attempt.0, how, by, kept };
                Row { id, kind: RESOLVE, bytes: pack(&row) }
            }
            Message::Signal(mail) => Row { id: mail.id, kind: SIGNAL, bytes: pack(mail) },
            Message::Reply(reply) => Row { id: reply.id(), kind: REPLY, bytes: pack(reply) },
            Message::Cancel { reason, by, parent } => {
                let link = parent.as_ref().map_or(0, Parent::id);
                let parent = parent.as_ref().map(ParentLink::from);
                let row = CancelRow { reason: reason.clone(), by: by.clone(), parent };
                // To be cancelled twice is to be cancelled.
                Row { id: row_id(CANCEL, &[&link.to_le_bytes()]), kind: CANCEL, bytes: pack(&row) }
            }
            Message::Child { child, parent, end } => {
                let taken = matches!(end, ChildEnd::IdTaken);
                let end = match end {
                    ChildEnd::Completed { value } => PackedChildEnd::Completed(Bytes::copy_from_slice(value)),
                    ChildEnd::Failed { value, message } => {
                        PackedChildEnd::Failed(Bytes::copy_from_slice(value), message.to_string())
                    }
                    ChildEnd::Cancelled { reason } => PackedChildEnd::Cancelled(reason.to_string()),
                    ChildEnd::IdTaken => PackedChildEnd::IdTaken,
                };
                let id = row_id(CHILD, &[&[u8::from(taken)], &parent.id().to_le_bytes()]);
                let row = ChildRow { child: child.clone(), parent: parent.into(), end };
                Row { id, kind: CHILD, bytes: pack(&row) }
            }
        }
    }

    /// Reads a row; `None` if it is not one that this version knows.
    pub(crate) fn read(row: &Row) -> Option<Message> {
        let value = Value::from_bytes;
        match row.kind {
            OUTCOME => {
                let row: OutcomeRow = rmp_serde::from_slice(&row.bytes).ok()?;
                let end = match row.end {
                    PackedEnd::Ok { value: v } => BodyEnd::Ok { value: value(v) },
                    PackedEnd::Err { value: v, retry, message } => BodyEnd::Err { value: value(v), retry, message },
                    PackedEnd::NotRecordable { reason } => BodyEnd::NotRecordable { reason },
                    PackedEnd::InDoubt { reason } => BodyEnd::InDoubt { reason },
                    PackedEnd::Panicked { message } => BodyEnd::Panicked { message },
                    PackedEnd::TimedOut { timeout_ms } => BodyEnd::TimedOut { timeout_ms },
                    PackedEnd::ShutDown => BodyEnd::ShutDown,
                };
                let (generation, step, attempt) = (Generation(row.generation), StepNo(row.step), Attempt(row.attempt));
                Some(Message::Outcome { generation, step, attempt, end })
            }
            RESOLVE => {
                let (id, row): (_, ResolveRow) = (row.id, rmp_serde::from_slice(&row.bytes).ok()?);
                let how = match row.how {
                    PackedVerdict::Succeeded(v) => Verdict::Succeeded(value(v)),
                    PackedVerdict::FailedWith(v) => Verdict::FailedWith(value(v)),
                    PackedVerdict::Failed(reason) => Verdict::Failed(reason),
                    PackedVerdict::RunAgain => Verdict::RunAgain,
                    PackedVerdict::Unchecked { ok, plain, wrapped } => {
                        Verdict::Unchecked { ok, plain: value(plain), wrapped: value(wrapped) }
                    }
                };
                let (generation, step, attempt) = (Generation(row.generation), StepNo(row.step), Attempt(row.attempt));
                Some(Message::Resolve { generation, step, attempt, how, by: row.by, kept: row.kept.then_some(id) })
            }
            SIGNAL => {
                let mail: Mail = rmp_serde::from_slice(&row.bytes).ok()?;
                Some(Message::Signal(Mail { id: row.id, ..mail }))
            }
            REPLY => {
                let reply: Reply = rmp_serde::from_slice(&row.bytes).ok()?;
                Some(Message::Reply(Reply { unchecked: reply.unchecked.map(|_| row.id), ..reply }))
            }
            CANCEL => {
                let row: CancelRow = rmp_serde::from_slice(&row.bytes).ok()?;
                let parent = row.parent.map(Parent::from);
                Some(Message::Cancel { reason: row.reason, by: row.by, parent })
            }
            CHILD => {
                let row: ChildRow = rmp_serde::from_slice(&row.bytes).ok()?;
                let end = match row.end {
                    PackedChildEnd::Completed(value) => ChildEnd::Completed { value: value.to_vec().into() },
                    PackedChildEnd::Failed(value, message) => {
                        ChildEnd::Failed { value: value.to_vec().into(), message: message.into() }
                    }
                    PackedChildEnd::Cancelled(reason) => ChildEnd::Cancelled { reason: reason.into() },
                    PackedChildEnd::IdTaken => ChildEnd::IdTaken,
                };
                Some(Message::Child { child: row.child, parent: row.parent.into(), end })
            }
            _ => None,
        }
    }
}

/// Hashes a kind and length-prefixed parts.
fn row_id(kind: u8, parts: &[&[u8]]) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&[kind]);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest128()
}

fn id(kind: u8, generation: Generation, step: StepNo, attempt: Attempt) -> u128 {
    let mut bytes = [0u8; 13];
    bytes[0] = kind;
    bytes[1..5].copy_from_slice(&generation.0.to_le_bytes());
    bytes[5..9].copy_from_slice(&step.0.to_le_bytes());
    bytes[9..].copy_from_slice(&attempt.0.to_le_bytes());
    xxh3_128(&bytes)
}
