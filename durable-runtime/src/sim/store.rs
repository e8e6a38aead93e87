//! The store as the processes of a world have it: writes are done in the order submitted, or refused, or done and not
//! answered; what it was told is noted for the checks.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    controls::{Control, doctored_write},
    process::Input,
    world::World,
};
use crate::{
    clock::Millis,
    drive::Slots as _,
    entry::each_entry,
    fold::RunState,
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    log::{BatchNo, read_frames},
    mailbox::Message,
    store::{Act, Addressee, Done, Row, Store, StoreError, Write, Written},
};

/// A write on its way.
pub(super) struct Submitted {
    pub(super) run: usize,
    /// The life that hears of it.
    pub(super) life: u64,
    pub(super) no: Option<BatchNo>,
    pub(super) write: Write,
    /// A body holds a slot until this is done.
    pub(super) slot: bool,
    /// Whose call of a client it is.
    pub(super) call: Option<usize>,
}

/// Who has claimed a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Owner {
    pub(super) place: usize,
    pub(super) process: u64,
    pub(super) epoch: Epoch,
}

/// From where on, how many, when, and under which claim.
pub(super) type Wrote = (Seq, u32, u64, Epoch);

/// What the store was told and did, in the order in which it did it.
#[derive(Default)]
pub(super) struct Told {
    /// Writes done.
    clock: u64,
    /// All rows that ever were in a run's mailbox, with their numbers.
    pub(super) rows: BTreeMap<usize, Vec<(u64, Row)>>,
    /// Which claim wrote which entries of which log.
    pub(super) wrote: BTreeMap<(usize, Generation), Vec<Wrote>>,
    /// When a run ended.
    pub(super) ended: HashMap<usize, u64>,
}

impl World {
    /// Has the store do a write now.
    pub(super) fn apply(&mut self, write: Write) -> Result<Written, StoreError> {
        let result = Arc::new(std::sync::Mutex::new(None));
        let told = result.clone();
        let done: Done = Box::new(move |result| *told.lock().unwrap() = Some(result));
        self.store.submit(write.clone(), done);
        let result = result.lock().unwrap().take().unwrap();
        if let Ok(written) = &result {
            self.note(&write, *written);
        }
        self.say(|| format!("store: {} -> {result:?}", said(&write)));
        result
    }

    fn note(&mut self, write: &Write, written: Written) {
        self.told.clock += 1;
        match write {
            Write::Create { run, count, .. } if matches!(written, Written::Made { .. }) => {
                let i = self.place(run);
                self.told.wrote.entry((i, Generation(0))).or_default().push((
                    Seq(0),
                    *count,
                    self.told.clock,
                    Epoch(0),
                ));
            }
            Write::Release { run, epoch, .. } => self.disown(run, *epoch),
            Write::Put { run, .. } => self.note_rows(run),
            Write::Append(batch) => {
                let i = self.place(&batch.run);
                let (clock, wrote) = (self.told.clock, self.told.wrote.entry((i, batch.generation)).or_default());
                wrote.push((batch.at, batch.count, clock, batch.epoch));
                for act in &batch.acts {
                    match act {
                        Act::Put { to, .. } => self.note_rows(to),
                        Act::Create { run, .. } => {
                            self.place(run);
                            self.note_rows(&batch.run);
                        }
                        Act::Take { .. } | Act::Next { .. } | Act::Publish { .. } => {}
                    }
                }
                if batch.head.as_ref().is_some_and(|head| !head.live) {
                    self.told.ended.insert(i, self.told.clock);
                    self.disown(&batch.run, batch.epoch);
                }
            }
            _ => {}
        }
    }

    /// When an entry of a log was written, as a count of writes.
    pub(super) fn written_at(&self, log: (usize, Generation), seq: u64) -> Option<u64> {
        let wrote = self.told.wrote.get(&log)?;
        let holds = |(at, count, ..): &&Wrote| (at.0..at.0 + u64::from(*count)).contains(&seq);
        wrote.iter().rev().find(holds).map(|(_, _, clock, _)| *clock)
    }

    fn disown(&mut self, run: &RunId, epoch: Epoch) {
        let i = self.place(run);
        if self.owners.get(&i).is_some_and(|owner| owner.epoch == epoch) {
            self.owners.remove(&i);
        }
    }

    fn note_rows(&mut self, run: &RunId) {
        let i = self.place(run);
        let rows = self.told.rows.entry(i).or_default();
        let known = rows.last().map_or(0, |(no, _)| *no);
        rows.extend(self.store.rows(run, known, usize::MAX).unwrap());
    }

    /// The store does the next of what a process has submitted.
    pub(super) fn write(&mut self, p: usize) {
        let Some(Submitted { run, life, no, write, slot, call }) = self.processes[p].writes.pop_front() else { return };
        let refused = || StoreError::Refused { reason: "the disk is full".into() };
        let unknown = || StoreError::Unknown { reason: "no answer".into() };
        let row = match &write {
            Write::Put { row, .. } => Some(row.clone()),
            _ => None,
        };
        if self.control == Control::CrashForgets && no.is_some() {
            self.before = Some(Arc::new(self.store.reopened()));
        }
        let chance = if self.faulty { self.rng.below(70) } else { 99 };
        let result = match chance {
            _ if self.processes[p].poisoned => Err(StoreError::Poisoned { reason: "a sync failed".into() }),
            _ if self.processes[p].refuses_until > self.time => Err(refused()),
            0..=2 => Err(refused()),
            3..=4 => Err(unknown()),
            5..=7 => {
                self.stats.lost_answers += 1;
                let _ = self.apply_doctored(write);
                Err(unknown())
            }
            8..=9 if matches!(write, Write::Append(_) | Write::Put { .. } | Write::Release { .. }) => {
                self.stats.late += 1;
                self.late.push((self.time + self.rng.below(150), write));
                Err(unknown())
            }
            10 if matches!(&write, Write::Append(batch) if batch.count > 0) && self.rng.one_in(6) => {
                self.stats.rejected += 1;
                Err(StoreError::Rejected { reason: "not this one".into() })
            }
            _ => self.apply_doctored(write),
        };
        if result.is_err() {
            self.say(|| format!("process {p}: run {run} batch {no:?} call {call:?} -> {result:?}"));
        }
        let result = match (self.control, result) {
            (Control::UnknownIsOk, Err(StoreError::Unknown { .. })) => Ok(Written::Done),
            (_, result) => result,
        };
        if slot {
            self.processes[p].slots.give();
        }
        if let (Err(_), Some(row)) = (&result, &row)
            && let Some(Message::Outcome { generation, step, attempt, .. }) = Message::read(row)
        {
            self.lost.push(((run, generation, step), attempt));
            if !self.processes[p].poisoned {
                // It is put again a while later.
                let again = Write::Put { run: self.ids[run].clone(), row: row.clone(), to: Addressee::Anyone };
                self.late.push((self.time + self.rng.below(150), again));
            }
        }
        let later = self.processes[p].writes.iter().find(|write| write.run == run && write.no.is_some());
        let no = match (self.control, later) {
            (Control::AcksSwapped, Some(later)) => later.no,
            _ => no,
        };
        match (no, call) {
            (Some(_), _) if self.control == Control::NoBarrier => {}
            (Some(no), _) => self.tell(p, run, Input::Written(life, no, result)),
            (None, Some(call)) => self.call_answered(p, call, result),
            // What a process itself has put into a mailbox.
            (None, None) if row.is_some() && result.is_ok() => self.nudge(p, run),
            (None, None) => {}
        }
    }

    /// A write as a broken store or writer would have it.
    fn apply_doctored(&mut self, write: Write) -> Result<Written, StoreError> {
        let (first, then) = doctored_write(self.control, write);
        if let Some(first) = first {
            self.apply(first)?;
            if self.rng.one_in(4) {
                return Err(StoreError::Unknown { reason: "no answer".into() });
            }
        }
        self.apply(then)
    }

    /// What was given up arrives after all.
    pub(super) fn arrive_late(&mut self) {
        let time = self.time;
        while let Some(i) = self.late.iter().position(|(at, _)| *at <= time) {
            let (_, mut write) = self.late.swap_remove(i);
            // Null control: a later claim of the same process has the epoch of the earlier one.
            if let (Control::ClaimKeepsEpoch, Write::Append(batch)) = (self.control, &mut write) {
                let i = self.place(&batch.run);
                batch.epoch = self.owners.get(&i).map_or(batch.epoch, |owner| owner.epoch);
            }
            let rows = match &write {
                Write::Put { run, .. } => Some(run.clone()),
                _ => None,
            };
            if self.apply(write).is_ok()
                && let Some(run) = rows
            {
                // An answer that comes too late wakes whom it is about all the same.
                let i = self.place(&run);
                (0..self.processes.len()).for_each(|p| self.nudge(p, i));
            }
        }
    }

    /// Writes something that no life has decided, for a null control.
    pub(super) fn forge(&mut self, i: usize, at: Seq, generation: Generation, frames: bytes::Bytes, count: u32) {
        let run = self.ids[i].clone();
        let Ok(Written::Claimed(epoch)) = self.apply(Write::Claim { run: run.clone(), aside: None }) else { return };
        let batch = crate::store::Batch { run, epoch, generation, at, count, frames, acts: Vec::new(), head: None };
        let _ = self.apply(Write::Append(batch));
    }

    /// Whether an attempt's outcome is in the mailbox, or on its way there.
    pub(super) fn is_row(&self, i: usize, generation: Generation, step: StepNo, attempt: Attempt) -> bool {
        let stored = self.store.rows(&self.ids[i], 0, usize::MAX).unwrap().into_iter().map(|(_, row)| row);
        let written = self.processes.iter().flat_map(|process| &process.writes).filter_map(|w| match &w.write {
            Write::Put { row, .. } if w.run == i => Some(row.clone()),
            _ => None,
        });
        stored.chain(written).any(|row| {
            matches!(Message::read(&row), Some(Message::Outcome { generation: g, step: s, attempt: a, .. })
                if (g, s, a) == (generation, step, attempt))
        })
    }

    /// When the first run is due that a process would find by looking, on its wall clock.
    pub(super) fn due_in_store(&self, p: usize) -> Option<Millis> {
        let live = self.store.runs(Some(true), None, usize::MAX).unwrap();
        let found = live.into_iter().filter(|(id, _)| {
            let i = self.ids.iter().position(|known| known == id);
            i.is_none_or(|i| !self.processes[p].cells.contains_key(&i) && !self.is_elsewhere(p, i))
        });
        found.filter_map(|(_, record)| record.wait?.due).min()
    }
}

/// A write in few words.
fn said(write: &Write) -> String {
    match write {
        Write::Append(b) => {
            let acts = b.acts.iter().map(|act| match act {
                Act::Put { to, row } => format!("put {} {to}", row.kind),
                Act::Take { row } => format!("take {:x}", row & 0xFFFF),
                Act::Create { run, .. } => format!("create {run}"),
                Act::Next { .. } => "next".to_owned(),
                Act::Publish { name, .. } => format!("publish {name}"),
            });
            let acts = acts.collect::<Vec<_>>();
            format!("append {} at {} {}+{} {acts:?}", b.run, b.generation, b.at, b.count)
        }
        Write::Put { run, row, .. } => format!("put {} {run} {:x}", row.kind, row.id & 0xFFFF),
        Write::Claim { run, .. } => format!("claim {run}"),
        Write::Release { run, wait, .. } => format!("release {run} {wait:?}"),
        Write::Create { run, .. } => format!("create {run}"),
        other => format!("{other:?}"),
    }
}

/// The state of a run's newest log: folds what is new since it was asked last.
pub(super) fn durable_state(
    store: &dyn Store,
    run: &RunId,
    known: &mut (Generation, RunState),
) -> Option<(Generation, RunState)> {
    let generation = store.run(run).unwrap()?.head.generation;
    if known.0 != generation {
        *known = (generation, RunState::default());
    }
    let state = &mut known.1;
    let frames = read_frames(store, run, generation, state.len).unwrap();
    each_entry(state.len, frames, |_, _, entry| -> Result<(), (Seq, crate::entry::EntryError)> {
        // What is illegal is said by the checks.
        let _ = state.apply(entry);
        Ok(())
    })
    .unwrap();
    Some((generation, known.1.clone()))
}
