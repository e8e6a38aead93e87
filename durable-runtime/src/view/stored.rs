//! A run's newest log, folded without its code.

use crate::{
    core::Stop,
    entry::{Entry, EntryError, each_entry},
    fold::{IllegalEntry, RunState},
    id::{Generation, RunId, Seq},
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

impl Stored {
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
