//! A run's newest log, folded without its code.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    contract::Contract,
    core::Stop,
    entry::{Entry, EntryError, each_entry},
    fold::{IllegalEntry, RunState, StepState, What},
    id::{Attempt, Generation, RunId, Seq, StepNo},
    mailbox::Message,
    store::{Store, StoreError},
};

/// Bytes of a log that are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// What a log says.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) generation: Generation,
    pub(crate) state: RunState,
}

impl From<(Seq, EntryError)> for Stop {
    fn from((seq, error): (Seq, EntryError)) -> Stop {
        Stop::Entry(seq, error)
    }
}

impl From<IllegalEntry> for Stop {
    fn from(error: IllegalEntry) -> Stop {
        Stop::Illegal(error)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Store(error)
    }
}

/// Folds a log. Blocks on the store.
///
/// # Errors
///
/// What a replay would stop at before it came to the code.
pub(crate) fn fold_log(store: &dyn Store, run: &RunId, generation: Generation) -> Result<Stored, Stop> {
    let mut stored = Stored { generation, state: RunState::default() };
    stored.read_on(store, run, |_, _| {})?;
    if stored.state.len == Seq(0) {
        let (place, run) = (store.about().place.clone(), Some(run.clone()));
        return Err(StoreError::Damaged { place, run, seq: Some(Seq(0)), what: "its log is empty".into() }.into());
    }
    Ok(stored)
}

/// The children whose ends are in a run's mailbox. Blocks on the store.
pub(crate) fn ended_children(store: &dyn Store, run: &RunId) -> Result<BTreeSet<String>, StoreError> {
    let rows = store.rows(run, 0, usize::MAX)?;
    let child = |message| match message {
        Message::Child { child, .. } => Some(child),
        _ => None,
    };
    Ok(rows.iter().filter_map(|(_, row)| Message::read(row).and_then(child)).collect())
}

impl Stored {
    /// The children whose ends are not in the log: step, path and id.
    pub(crate) fn open_children(&self) -> impl Iterator<Item = (StepNo, &str, &str)> {
        self.state.steps.iter().filter_map(|(no, step)| match (&step.what, &step.state) {
            (What::Child { run, path, .. }, StepState::Waiting) => Some((*no, &**path, &**run)),
            _ => None,
        })
    }

    /// The steps that are in doubt without their log saying so: what must not happen twice was called, and neither is its outcome in the mailbox,
    /// nor is its body here. `is_here`: by path and attempt. Blocks on the store.
    pub(crate) fn lost(
        &self,
        store: &dyn Store,
        run: &RunId,
        is_here: impl Fn(&str, Attempt) -> bool,
    ) -> Result<BTreeSet<StepNo>, StoreError> {
        let called = self.state.steps.iter().filter_map(|(no, step)| match (&step.what, &step.state) {
            (What::Effect(effect), StepState::Called(attempt))
                if effect.contract == Contract::AtMostOnce && !is_here(&effect.called.path(), *attempt) =>
            {
                Some((*no, *attempt))
            }
            _ => None,
        });
        let mut called: BTreeMap<StepNo, Attempt> = called.collect();
        if !called.is_empty() {
            for (_, row) in store.rows(run, 0, usize::MAX)? {
                if let Some(Message::Outcome { generation, step, attempt, .. }) = Message::read(&row)
                    && generation == self.generation
                    && called.get(&step) == Some(&attempt)
                {
                    called.remove(&step);
                }
            }
        }
        Ok(called.into_keys().collect())
    }

    /// Folds what was appended since; `see` gets the state before each entry, and the entry. Blocks on the store.
    pub(crate) fn read_on(
        &mut self,
        store: &dyn Store,
        run: &RunId,
        mut see: impl FnMut(&RunState, &Entry<'_>),
    ) -> Result<(), Stop> {
        loop {
            let page = store.read(run, self.generation, self.state.len, READ_BYTES)?;
            if page.is_empty() {
                return Ok(());
            }
            for record in page {
                each_entry(record.first, record.frames, |seq, _, entry| -> Result<(), Stop> {
                    if seq < self.state.len {
                        return Ok(());
                    }
                    see(&self.state, entry);
                    Ok(self.state.apply(entry)?)
                })?;
            }
        }
    }
}
