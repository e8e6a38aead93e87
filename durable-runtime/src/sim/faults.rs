//! What goes wrong: crashes, shutdowns, clocks that are set, a store that refuses or whose answers are lost; and the person
//! who resolves what is held.

use std::sync::{Arc, atomic::Ordering};

use super::{
    controls::Control,
    effects::{Bad, Out},
    log::Stored,
    world::{GENERATION, Phase, SLOTS, Submitted, World},
};
use crate::{
    fold::{StepState, What},
    id::{Attempt, StepNo},
    mailbox::{Message, Verdict},
    store::{Done, Record, Store, StoreError, Write, Written, memory::MemoryStore},
    value::Value,
};

impl World {
    pub(super) fn apply(&self, write: Write) -> Result<Written, StoreError> {
        let result = Arc::new(std::sync::Mutex::new(None));
        let told = result.clone();
        let done: Done = Box::new(move |result| *told.lock().unwrap() = Some(result));
        self.store.submit(write, done);
        result.lock().unwrap().take().unwrap()
    }

    /// The store does the next of what was submitted.
    pub(super) fn write(&mut self, faults: bool) {
        let Some(Submitted { run, life, no, write, slot }) = self.writes.pop_front() else { return };
        let refused = || StoreError::Refused { reason: "the disk is full".into() };
        let unknown = || StoreError::Unknown { reason: "no answer".into() };
        let row = match &write {
            Write::Put { row, .. } => Some(row.clone()),
            _ => None,
        };
        let chance = if faults { self.rng.below(60) } else { 99 };
        if self.control == Control::CrashForgets && no.is_some() {
            self.before = Some(Arc::new(self.reopened()));
        }
        let result = match chance {
            _ if self.poisoned => Err(StoreError::Poisoned { reason: "a sync failed".into() }),
            _ if self.refuses_until > self.time => Err(refused()),
            0..=2 => Err(refused()),
            3..=4 => Err(unknown()),
            5..=7 => {
                self.stats.lost_answers += 1;
                let _ = self.apply(write);
                Err(unknown())
            }
            8 if no.is_some() && self.rng.one_in(6) => {
                self.stats.rejected += 1;
                Err(StoreError::Rejected { reason: "not this one".into() })
            }
            _ => self.apply(write),
        };
        let result = match (self.control, result) {
            (Control::UnknownIsOk, Err(StoreError::Unknown { .. })) => Ok(Written::Done),
            (_, result) => result,
        };
        if slot {
            self.slots.give();
        }
        if let (Err(_), Some(row)) = (&result, &row)
            && let Some(Message::Outcome { step, attempt, .. }) = Message::read(row)
        {
            self.lost.push((run, step, attempt));
        }
        let later = self.writes.iter().find(|write| write.run == run && write.no.is_some());
        let no = match (self.control, later) {
            (Control::AcksSwapped, Some(later)) => later.no,
            _ => no,
        };
        match (no, row) {
            (Some(_), _) if self.control == Control::NoBarrier => {}
            (Some(no), _) => self.tell_written(run, life, no, result),
            (None, Some(row)) if result.is_ok() => self.tell_row(run, row),
            _ => {}
        }
    }

    pub(super) fn faults(&mut self) {
        if self.up_at > self.time {
            return;
        }
        if self.control == Control::NoEpoch && self.rng.one_in(20) {
            self.write_late();
        }
        if self.rng.one_in(60 * self.calm) {
            self.crash();
        } else if self.rng.one_in(150 * self.calm) && self.shutdown_until.is_none() {
            self.stats.shutdowns += 1;
            self.shutdown_until = Some(self.time + self.rng.below(100));
        } else if self.rng.one_in(120 * self.calm) {
            self.refuses_until = self.time + self.rng.below(200);
        } else if self.rng.one_in(if self.control == Control::WallAsMonotonic { 8 } else { 80 }) {
            self.wall_ahead = 500_000 + self.rng.below(1_000_000);
        } else if self.rng.one_in(400 * self.calm) {
            self.poisoned = true;
            // The write that failed may have been written.
            if self.rng.one_in(2)
                && let Some(Submitted { write, .. }) = self.writes.front()
            {
                let _ = self.apply(write.clone());
            }
        } else if self.rng.one_in(250) && self.runs.len() < 5 {
            self.create();
        }
    }

    pub(super) fn crash(&mut self) {
        self.stats.crashes += 1;
        self.check_slots();
        // What was under way still arrives, in order, or does not.
        let mut writes = std::mem::take(&mut self.writes);
        while !self.rng.one_in(3)
            && let Some(Submitted { write, .. }) = writes.pop_front()
        {
            let _ = self.apply(write);
        }
        self.tail = writes.into();
        if let Some(before) = self.before.take() {
            self.store = before;
        }
        self.die();
    }

    /// The process is gone, and the next one begins some time later.
    fn die(&mut self) {
        self.store = Arc::new(self.reopened());
        self.outside.crash(&mut self.rng, self.time);
        self.answers.clear();
        self.poisoned = false;
        self.free.0.store(SLOTS, Ordering::Relaxed);
        self.process += 1;
        self.shutdown_until = None;
        self.up_at = self.time + self.rng.below(100);
        // A process measures its time from some moment of its own.
        self.monotonic_from = self.time - self.rng.below(self.time);
        for run in &mut self.runs {
            run.process_died();
        }
    }

    fn reopened(&self) -> MemoryStore {
        self.store.reopened()
    }

    /// Whether nothing keeps a process that shuts down.
    pub(super) fn can_go_down(&self) -> bool {
        let Some(until) = self.shutdown_until else { return false };
        self.writes.is_empty()
            && self
                .runs
                .iter()
                .all(|run| matches!(run.phase, Phase::Waiting | Phase::Gone | Phase::Ended) && run.is_told_all())
            && (until <= self.time || self.outside.running() == 0)
    }

    /// The end of a shutdown: bodies that are still under way are dropped.
    pub(super) fn down(&mut self) {
        self.die();
    }

    /// A crash puts at most as many calls in doubt as there are slots.
    fn check_slots(&mut self) {
        let mut doubt = Vec::new();
        for begun in &self.outside.begun {
            let (i, step, attempt) = (begun.run, begun.step, begun.start.attempt);
            if begun.process != self.process || !begun.start.meta.contract.is_outward() {
                continue;
            }
            let stored;
            let state = match &self.runs[i].phase {
                Phase::Live(life) | Phase::Closing(life, _) => life.state(),
                _ => {
                    stored = Stored::read(&*self.store, &self.runs[i].id).state().unwrap_or_default();
                    &stored
                }
            };
            let called = state.steps.get(&step).is_some_and(|s| s.state == StepState::Called(attempt));
            if called && !self.is_row(i, step, attempt) && !self.lost.contains(&(i, step, attempt)) {
                doubt.push((i, step, attempt));
            }
        }
        if doubt.len() > SLOTS {
            self.fail(format!("a crash puts {} calls in doubt, with {SLOTS} slots: {doubt:?}", doubt.len()));
        }
    }

    /// Whether the attempt's outcome is in the mailbox, or on its way there.
    fn is_row(&self, i: usize, step: StepNo, attempt: Attempt) -> bool {
        let stored = self.store.rows(&self.runs[i].id).unwrap();
        let written = self.writes.iter().filter_map(|w| match &w.write {
            Write::Put { row, .. } if w.run == i => Some(row.clone()),
            _ => None,
        });
        stored.into_iter().chain(written).any(|row| {
            matches!(Message::read(&row), Some(Message::Outcome { step: s, attempt: a, .. }) if (s, a) == (step, attempt))
        })
    }

    /// A run that was left in good order looks as if only those bodies had been begun that were.
    pub(super) fn check_drained(&mut self, i: usize) {
        let Ok(state) = Stored::read(&*self.store, &self.runs[i].id).state() else { return };
        let opened = self.runs[i].opened;
        let forgotten: Vec<_> = state
            .steps
            .iter()
            .filter_map(|(no, step)| match (&step.what, &step.state) {
                (What::Effect(effect), StepState::Called(n))
                    if effect.contract.is_outward() && effect.called_seq >= opened =>
                {
                    Some((*no, *n))
                }
                _ => None,
            })
            .filter(|(step, n)| !self.outside.begun.iter().any(|b| (b.run, b.step, b.start.attempt) == (i, *step, *n)))
            .collect();
        if !forgotten.is_empty() {
            self.fail(format!("run {i} was left in good order; these look begun and are not: {forgotten:?}"));
        }
    }

    /// Null control: what a process reads that is never written.
    pub(super) fn take_tail(&mut self, i: usize) -> Option<Record> {
        if self.control != Control::ReadTail {
            return None;
        }
        let at = Stored::read(&*self.store, &self.runs[i].id).len();
        self.tail.iter().find_map(|submitted| match &submitted.write {
            Write::Append(batch) if submitted.run == i && batch.count > 0 && batch.at.0 == at => {
                Some(Record { first: batch.at, count: batch.count, frames: batch.frames.clone() })
            }
            _ => None,
        })
    }

    /// Null control: a batch of a dead process is written under the claim of the living one.
    fn write_late(&mut self) {
        let Some(Submitted { run, write: Write::Append(mut batch), .. }) = self.tail.pop() else { return };
        if let Phase::Live(life) = &self.runs[run].phase {
            batch.epoch = life.setting.epoch;
            let _ = self.apply(Write::Append(batch));
        }
    }

    /// A person looks at a run and resolves what is held, knowing what happened.
    pub(super) fn person(&mut self, patiently: bool) {
        let runs = self.runs.len() as u64;
        let first = self.rng.below(runs) as usize;
        for i in (first..self.runs.len()).chain(0..first) {
            let Phase::Live(life) = &self.runs[i].phase else { continue };
            let spoken = self.stats.resolved;
            let held: Vec<_> = life
                .state()
                .steps
                .iter()
                .filter_map(|(no, step)| match (&step.what, &step.state) {
                    (What::Effect(effect), StepState::InDoubt(n, ..)) if !step.closed => {
                        Some((*no, *n, effect.effect.clone()))
                    }
                    _ => None,
                })
                .collect();
            for (step, attempt, effect) in held {
                let asked = &*effect == "wire_asking";
                if asked && !self.rng.one_in(4) && !patiently {
                    continue;
                }
                let encoded = |out: Out| Value::encode(&out).unwrap();
                let how = match self.outside.happened(i, step) {
                    Some(value) => Verdict::Succeeded(encoded(Ok(value))),
                    None if self.outside.is_under_way(i, step) => continue,
                    None => match self.rng.below(4) {
                        0 => Verdict::Failed("it is not there".into()),
                        1 => Verdict::FailedWith(encoded(Err(Bad::Said(77)))),
                        _ => Verdict::RunAgain,
                    },
                };
                self.stats.resolved += 1;
                // Now and then about an attempt that is over.
                let attempt = if self.rng.one_in(12) { Attempt(attempt.0 - 1) } else { attempt };
                let by = "a person".to_owned();
                let row = Message::Resolve { generation: GENERATION, step, attempt, how, by }.row();
                let run = self.runs[i].id.clone();
                self.submit(i, None, Write::Put { run, row });
            }
            if self.stats.resolved > spoken || !patiently {
                return;
            }
        }
    }
}
