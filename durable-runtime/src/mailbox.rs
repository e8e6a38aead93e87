//! The rows of a run's mailbox: facts that came while the run was not polled, or from another hand.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    effect::BodyEnd,
    head::pack,
    id::{Attempt, Generation, StepNo},
    store::Row,
    value::Value,
};

const OUTCOME: u8 = 1;
const RESOLVE: u8 = 2;

/// What a row says.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Outcome { generation: Generation, step: StepNo, attempt: Attempt, end: BodyEnd },
    Resolve { generation: Generation, step: StepNo, attempt: Attempt, how: Verdict, by: String },
}

/// A person's word on a step in doubt.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Succeeded(Value),
    FailedWith(Value),
    Failed(String),
    RunAgain,
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
}

#[derive(Serialize, Deserialize)]
enum PackedVerdict {
    Succeeded(Bytes),
    FailedWith(Bytes),
    Failed(String),
    RunAgain,
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
            Message::Resolve { generation, step, attempt, how, by } => {
                let how = match how.clone() {
                    Verdict::Succeeded(value) => PackedVerdict::Succeeded(value.as_bytes().clone()),
                    Verdict::FailedWith(value) => PackedVerdict::FailedWith(value.as_bytes().clone()),
                    Verdict::Failed(reason) => PackedVerdict::Failed(reason),
                    Verdict::RunAgain => PackedVerdict::RunAgain,
                };
                let by = by.clone();
                let row = ResolveRow { generation: generation.0, step: step.0, attempt: attempt.0, how, by };
                // One word per doubt: a second one for the same attempt is another row with the same id, and is not put.
                Row { id: id(RESOLVE, *generation, *step, *attempt), kind: RESOLVE, bytes: pack(&row) }
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
                let row: ResolveRow = rmp_serde::from_slice(&row.bytes).ok()?;
                let how = match row.how {
                    PackedVerdict::Succeeded(v) => Verdict::Succeeded(value(v)),
                    PackedVerdict::FailedWith(v) => Verdict::FailedWith(value(v)),
                    PackedVerdict::Failed(reason) => Verdict::Failed(reason),
                    PackedVerdict::RunAgain => Verdict::RunAgain,
                };
                let (generation, step, attempt) = (Generation(row.generation), StepNo(row.step), Attempt(row.attempt));
                Some(Message::Resolve { generation, step, attempt, how, by: row.by })
            }
            _ => None,
        }
    }
}

fn id(kind: u8, generation: Generation, step: StepNo, attempt: Attempt) -> u128 {
    let mut bytes = [0u8; 13];
    bytes[0] = kind;
    bytes[1..5].copy_from_slice(&generation.0.to_le_bytes());
    bytes[5..9].copy_from_slice(&step.0.to_le_bytes());
    bytes[9..].copy_from_slice(&attempt.0.to_le_bytes());
    xxh3_128(&bytes)
}
