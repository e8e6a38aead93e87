//! The limit on bodies under way, and the list of them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, atomic::Ordering},
};

use super::{RunCell, lock};
use crate::{
    clock::Millis,
    drive::Slots,
    id::{Attempt, RunId},
};

/// The limit on bodies under way.
pub(crate) struct BodySlots(Mutex<(usize, VecDeque<Arc<RunCell>>)>);

impl BodySlots {
    pub(crate) fn new(slots: usize) -> BodySlots {
        BodySlots(Mutex::new((slots, VecDeque::new())))
    }

    /// Offers the next free slot to `cell`.
    pub(super) fn wait(&self, cell: &Arc<RunCell>) {
        let mut slots = lock(&self.0);
        if !cell.wants_slot.swap(true, Ordering::Relaxed) {
            slots.1.push_back(cell.clone());
        }
        offer(&mut slots);
    }

    /// A run that was offered a slot has taken what it wanted: the next one's turn.
    pub(super) fn pass_on(&self) {
        offer(&mut lock(&self.0));
    }

    /// A run wants no slot any more: what it was offered, or would be, is the next one's.
    pub(super) fn leave(&self, cell: &Arc<RunCell>) {
        let mut slots = lock(&self.0);
        if cell.wants_slot.swap(false, Ordering::Relaxed) {
            slots.1.retain(|waiting| !Arc::ptr_eq(waiting, cell));
        }
        if cell.offered.swap(false, Ordering::Relaxed) {
            offer(&mut slots);
        }
    }
}

fn offer((free, waiting): &mut (usize, VecDeque<Arc<RunCell>>)) {
    if *free > 0
        && let Some(first) = waiting.pop_front()
    {
        first.wants_slot.store(false, Ordering::Relaxed);
        first.offered.store(true, Ordering::Relaxed);
        first.wake();
    }
}

impl Slots for BodySlots {
    fn try_take(&self) -> bool {
        let mut slots = lock(&self.0);
        let free = slots.0 > 0;
        slots.0 -= usize::from(free);
        free
    }

    fn give(&self) {
        let mut slots = lock(&self.0);
        slots.0 += 1;
        offer(&mut slots);
    }
}

/// What is listed of a body under way.
#[derive(Clone, Debug)]
pub(crate) struct BodyInfo {
    pub(crate) run: RunId,
    pub(crate) effect: &'static str,
    pub(crate) path: String,
    pub(crate) attempt: Attempt,
    pub(crate) since: Millis,
}

/// All bodies under way in this process.
#[derive(Default)]
pub(crate) struct Bodies(Mutex<(u64, BTreeMap<u64, BodyInfo>)>);

impl Bodies {
    pub(super) fn list(self: &Arc<Bodies>, info: BodyInfo) -> Listed {
        let mut bodies = lock(&self.0);
        bodies.0 += 1;
        let no = bodies.0;
        bodies.1.insert(no, info);
        Listed(self.clone(), no)
    }

    pub(crate) fn all(&self) -> Vec<BodyInfo> {
        lock(&self.0).1.values().cloned().collect()
    }
}

/// A place in the list, until the body and all that runs for it is gone.
pub(super) struct Listed(Arc<Bodies>, u64);

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.0.0).1.remove(&self.1);
    }
}
