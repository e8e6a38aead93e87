//! What goes wrong: crashes, shutdowns, clocks that are set, a store that refuses, claims that are taken away.

use std::sync::{Arc, atomic::Ordering};

use super::{
    controls::Control,
    log::Stored,
    process::{Phase, Process},
    store::Submitted,
    world::{SLOTS, World},
};
use crate::{
    effect::BodyEnd,
    fold::StepState,
    id::Generation,
    mailbox::Message,
    store::{Addressee, Record, Store, Write},
};

impl World {
    pub(super) fn faults(&mut self) {
        for p in 0..self.processes.len() {
            if self.processes[p].up_at > self.time {
                continue;
            }
            if self.control == Control::NoEpoch && self.rng.one_in(20) {
                self.write_late();
            }
            if self.rng.one_in(120 * self.calm) {
                self.crash(p);
            } else if self.rng.one_in(250 * self.calm) && self.processes[p].shutdown_until.is_none() {
                self.stats.shutdowns += 1;
                self.processes[p].shutdown_until = Some(self.time + self.rng.below(100));
            } else if self.rng.one_in(150 * self.calm) {
                self.processes[p].refuses_until = self.time + self.rng.below(200);
            } else if self.rng.one_in(if self.control == Control::WallAsMonotonic { 8 } else { 120 }) {
                self.processes[p].wall_ahead = 500_000 + self.rng.below(1_000_000);
            } else if self.rng.one_in(500 * self.calm) && !self.shared {
                self.processes[p].poisoned = true;
                // The write that failed may have been done.
                if self.rng.one_in(2)
                    && let Some(Submitted { write, .. }) = self.processes[p].writes.front()
                {
                    let _ = self.apply(write.clone());
                }
            } else if self.shared && self.rng.one_in(80) {
                self.steal(p);
            }
        }
    }

    /// The quiet time begins: nothing goes wrong any more, and all have the code of the logs.
    pub(super) fn calm_down(&mut self) {
        for p in 0..self.processes.len() {
            self.processes[p].refuses_until = 0;
            if self.processes[p].poisoned || self.processes[p].diverged {
                self.crash(p);
            }
        }
    }

    /// Takes a run away from the process that has it.
    fn steal(&mut self, p: usize) {
        if !self.processes[p].opened || self.processes[p].up_at > self.time {
            return;
        }
        let live = self.live();
        let (n, mut places) = (self.rng.below(live.len().max(1) as u64) as usize, live.keys().copied());
        let Some(i) = places.nth(n) else { return };
        if !self.processes[p].cells.contains_key(&i) {
            self.adopt(p, i, &live[&i], false);
        }
    }

    pub(super) fn crash(&mut self, p: usize) {
        self.stats.crashes += 1;
        self.check_slots(p);
        // What was under way still arrives, in order, or does not.
        let mut writes = std::mem::take(&mut self.processes[p].writes);
        while !self.rng.one_in(3)
            && let Some(Submitted { write, .. }) = writes.pop_front()
        {
            let _ = self.apply(write);
        }
        self.tail = writes.into();
        if let Some(before) = self.before.take() {
            self.store = before;
        }
        self.die(p);
    }

    /// The process is gone, and the next one begins some time later.
    fn die(&mut self, p: usize) {
        if !self.shared {
            self.store = Arc::new(self.store.reopened());
            self.owners.clear();
        }
        self.say(|| format!("process {p} dies"));
        let dead = self.processes[p].no;
        self.outside.crash(&mut self.rng, self.time, dead);
        self.clients.process_died(dead, self.time);
        let no = self.number();
        let mut process = Process::new(no, &mut self.rng, self.time, self.control);
        process.up_at = self.time + self.rng.below(100);
        process.diverged = self.faulty && self.rng.one_in(8);
        self.processes[p] = process;
    }

    /// Whether nothing keeps a process that shuts down.
    pub(super) fn can_go_down(&self, p: usize) -> bool {
        let process = &self.processes[p];
        let Some(until) = process.shutdown_until else { return false };
        let empty = process.writes.is_empty() && process.cells.is_empty();
        empty && (until <= self.time || self.outside.running(process.no) == 0)
    }

    /// The end of a shutdown: bodies that are still under way are dropped. Of those that nobody outside could tell of the next
    /// process is told that they are no attempts.
    pub(super) fn down(&mut self, p: usize) {
        let no = self.processes[p].no;
        let dropped = self.outside.begun.iter().filter(|b| b.listed && b.process == no);
        let dropped = dropped.filter(|b| !b.start.meta.contract.is_outward());
        let rows: Vec<_> = dropped
            .map(|b| {
                let (generation, step, attempt, end) = (b.generation, b.step, b.start.attempt, BodyEnd::ShutDown);
                (self.ids[b.run].clone(), Message::Outcome { generation, step, attempt, end }.row())
            })
            .collect();
        for (run, row) in rows {
            if self.store.run(&run).unwrap().is_some_and(|record| record.head.live) {
                let _ = self.apply(Write::Put { run, row, to: Addressee::Anyone });
            }
        }
        self.die(p);
    }

    /// A crash puts at most as many calls in doubt as there are slots.
    fn check_slots(&mut self, p: usize) {
        if self.shared {
            // What a life has appended is gone with its claim.
            return;
        }
        let no = self.processes[p].no;
        let begun = self.outside.begun.iter().filter(|b| b.process == no && b.start.meta.contract.is_outward());
        let begun: Vec<_> = begun.map(|b| (b.step(), b.start.attempt)).collect();
        let mut doubt = Vec::new();
        for (of, attempt) in begun {
            let (i, generation, step) = of;
            let state = match self.processes[p].cells.get(&i).map(|cell| &cell.phase) {
                Some(Phase::Live(life) | Phase::Closing(life, _)) if life.setting.generation == generation => {
                    Some(life.state().clone())
                }
                _ => self.durable_state(i).filter(|(newest, _)| *newest == generation).map(|(_, state)| state),
            };
            let called = |s: &crate::fold::Step| s.state == StepState::Called(attempt);
            let called = state.is_some_and(|state| state.steps.get(&step).is_some_and(called));
            if called && !self.is_row(i, generation, step, attempt) && !self.lost.contains(&(of, attempt)) {
                doubt.push((of, attempt));
            }
        }
        if doubt.len() > SLOTS {
            self.fail(format!("a crash puts {} calls in doubt, with {SLOTS} slots: {doubt:?}", doubt.len()));
        }
    }

    /// Each slot is free, or held by a body or an outcome on its way to the mailbox.
    pub(super) fn check_slots_are_kept(&mut self) {
        if self.control != Control::None || !self.bad.is_empty() {
            return;
        }
        for process in &self.processes {
            let lives = process.cells.values().map(|cell| match &cell.phase {
                Phase::Live(life) | Phase::Closing(life, _) => life.bodies.len(),
                _ => 0,
            });
            let late = self.outside.begun.iter().filter(|b| b.process == process.no && b.slot).count();
            let rows = process.writes.iter().filter(|submitted| submitted.slot).count();
            let held = lives.sum::<usize>() + late + rows;
            let free = process.slots.0.load(Ordering::Relaxed);
            if free + held != SLOTS {
                return self.bad.push(format!("{free} slots are free and {held} held, of {SLOTS}"));
            }
        }
    }

    /// No run that has not ended is without an owner, without what could wake it, waiting for nothing.
    pub(super) fn check_nothing_is_forgotten(&mut self) {
        if self.shared || !self.bad.is_empty() {
            return;
        }
        let process = &self.processes[0];
        // What is on its way may wake it.
        let under_way = process.writes.iter().any(|submitted| !matches!(submitted.write, Write::Release { .. }))
            || !process.nudges.is_empty()
            || !self.late.is_empty()
            || process.cells.values().any(|cell| match &cell.phase {
                Phase::Live(life) | Phase::Closing(life, _) => !life.log.is_settled() || !cell.inbox.is_empty(),
                _ => false,
            });
        let up = process.up_at <= self.time && process.opened && process.shutdown_until.is_none();
        // A store that writes nothing any more is for the next process.
        if !up || process.poisoned || under_way {
            return;
        }
        for (i, record) in self.live() {
            let process = &self.processes[0];
            if process.cells.contains_key(&i) {
                continue;
            }
            let Some(asleep) = process.asleep.get(&i) else {
                return self
                    .fail(format!("run {i} is not terminal, without owner, without wake-up: {:?}", record.wait));
            };
            if record.version > asleep.wait.seen {
                return self.fail(format!("run {i} sleeps, and has row {} that nobody wakes it for", record.version));
            }
            let Some((_, state)) = self.durable_state(i) else { continue };
            let waits = |step: &crate::fold::Step| {
                step.state == StepState::Waiting || matches!(step.state, StepState::InDoubt(..))
            };
            if asleep_for_nothing(&self.processes[0], i) && !state.steps.values().any(waits) {
                return self.fail(format!("run {i} sleeps and waits for nothing: {:?}", state.steps));
            }
        }
    }

    /// Null control: what a process reads that is never written.
    pub(super) fn take_tail(&mut self, i: usize, generation: Generation) -> Option<Record> {
        if self.control != Control::ReadTail {
            return None;
        }
        let at = Stored::read(&*self.store, &self.ids[i], generation).len();
        self.tail.iter().find_map(|submitted| match &submitted.write {
            Write::Append(batch)
                if submitted.run == i && batch.count > 0 && batch.at.0 == at && batch.generation == generation =>
            {
                Some(Record { first: batch.at, count: batch.count, frames: batch.frames.clone() })
            }
            _ => None,
        })
    }

    /// Null control: a batch of a dead process is written under the claim of the living one.
    fn write_late(&mut self) {
        let Some(Submitted { run, write: Write::Append(mut batch), .. }) = self.tail.pop() else { return };
        for process in &self.processes {
            if let Some(Phase::Live(life)) = process.cells.get(&run).map(|cell| &cell.phase) {
                batch.epoch = life.setting.epoch;
            }
        }
        let _ = self.apply(Write::Append(batch));
    }
}

fn asleep_for_nothing(process: &Process, i: usize) -> bool {
    process.asleep.get(&i).is_some_and(|asleep| asleep.due == (None, None))
}
