//! What no store takes, whatever it holds.

use bytes::Bytes;

use crate::store::{Act, Batch, Dump, StoreError};

impl Batch {
    /// Whether the place of the batch in the log matters.
    pub(super) fn is_placed(&self) -> bool {
        self.count > 0 || self.acts.iter().any(|act| matches!(act, Act::Next { .. }))
    }
}

/// Refuses a write that says one thing about its entries and holds another.
pub(super) fn check_entries(count: u32, least: u32, frames: &Bytes) -> Result<(), StoreError> {
    if count < least || (count == 0) != frames.is_empty() {
        return Err(rejected(format!("{count} entries in {} bytes", frames.len())));
    }
    Ok(())
}

/// Refuses a batch that contradicts itself.
pub(super) fn check_batch(batch: &Batch) -> Result<(), StoreError> {
    check_entries(batch.count, 0, &batch.frames)?;
    let mut next = false;
    for act in &batch.acts {
        match act {
            Act::Put { .. } | Act::Take { .. } | Act::Publish { .. } => {}
            Act::Create { count, frames, .. } => check_entries(*count, 1, frames)?,
            Act::Next { count, frames } => {
                check_entries(*count, 1, frames)?;
                if std::mem::replace(&mut next, true) {
                    return Err(rejected("a batch begins one log at most".into()));
                }
                let generation = batch.generation.0.checked_add(1);
                if generation.is_none() || batch.head.as_ref().map(|head| head.generation.0) != generation {
                    return Err(rejected("a batch that begins a log has that log's head".into()));
                }
            }
        }
    }
    Ok(())
}

/// Refuses what [`crate::store::Store::dump`] never gives.
pub(super) fn check_dump(dump: &Dump) -> Result<(), StoreError> {
    if dump.logs.is_empty() || !dump.logs.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(rejected("a dump holds logs, in their order".into()));
    }
    for (generation, records) in &dump.logs {
        let mut next = 0;
        for record in records {
            check_entries(record.count, 1, &record.frames)?;
            if record.first.0 != next {
                return Err(rejected(format!("a dump holds log {generation} without entry {next}")));
            }
            next += u64::from(record.count);
        }
        if next == 0 {
            return Err(rejected(format!("a dump holds log {generation} without entries")));
        }
    }
    let in_range = dump.rows.iter().all(|(number, _)| (1..=dump.record.version).contains(number));
    if !in_range || !dump.rows.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(rejected("a dump holds rows in the order of their numbers, up to its version".into()));
    }
    let mut ids: Vec<_> = dump.rows.iter().map(|(_, row)| row.id).chain(dump.taken.iter().copied()).collect();
    ids.sort_unstable();
    if !ids.is_sorted_by(|a, b| a < b) {
        return Err(rejected("a dump holds each row once".into()));
    }
    if !dump.published.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(rejected("a dump holds one value of each name, in the order of the names".into()));
    }
    Ok(())
}

fn rejected(reason: String) -> StoreError {
    StoreError::Rejected { reason: reason.into() }
}
