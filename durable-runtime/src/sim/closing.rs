//! The end of a life in a process, what it leaves, and runs that are parked.

use super::{
    controls::Control,
    outside::Ended,
    process::{After, Beginning, Input, Phase},
    store::Submitted,
    world::World,
};
use crate::{
    bodies::Left,
    clock::Millis,
    drive::{Life, Slots as _},
    effect::BodyEnd,
    fold::{StepState, What},
    id::{Attempt, Generation, StepNo},
    mailbox::Message,
    store::{Addressee, Store, Wait, Write},
};

impl World {
    /// The life is over, and bodies may still be under way.
    pub(super) fn close(&mut self, p: usize, i: usize, mut life: Box<Life>, after: After) {
        life.drop_code();
        life.now = self.now(p);
        if !life.is_over() && self.control != Control::ShutdownForgets {
            life.drain();
        }
        self.perform(p, i, &mut life, false, false);
        self.close_on(p, i, life, after);
    }

    pub(super) fn close_on(&mut self, p: usize, i: usize, mut life: Box<Life>, after: After) {
        self.take_last_inputs(p, i, &mut life);
        self.perform(p, i, &mut life, false, false);
        if !life.is_closed() {
            self.cell(p, i).phase = Phase::Closing(life, after);
            return;
        }
        let settled = life.log.is_settled() && life.lost.is_none();
        let left = life.leave();
        self.take_left(p, i, left);
        let (run, epoch) = (self.ids[i].clone(), life.setting.epoch);
        // Let go of, and to go on as soon as somebody can.
        let (seen, due) = (life.mailbox.seen(), Some(self.now(p).wall));
        let let_go = life.stop.is_none() && life.lost.is_none();
        let wait = let_go.then_some(Wait { due, seen, code: life.setting.code });
        self.submit(p, i, None, Write::Release { run, epoch, wait });
        if settled && !matches!(after, After::Ended | After::Restarted) {
            self.check_drained(p, i, life.setting.generation);
        }
        self.after(p, i, after);
    }

    fn take_last_inputs(&mut self, p: usize, i: usize, life: &mut Life) {
        let mut inputs = std::mem::take(&mut self.cell(p, i).inbox);
        // Mail is for the next life.
        inputs.retain(|input| !matches!(input, Input::Mail | Input::Rows(..)));
        self.cell(p, i).inbox = inputs;
        self.take_inputs(p, i, life);
    }

    /// What comes after a life.
    pub(super) fn after(&mut self, p: usize, i: usize, after: After) {
        self.say(|| format!("process {p}: run {i} {after:?}"));
        let (time, cell) = (self.time, self.cell(p, i));
        cell.reading = None;
        cell.phase = match after {
            After::Ended | After::Gone => {
                let Some(cell) = self.processes[p].cells.remove(&i) else { return };
                for input in cell.inbox {
                    self.take_late(p, input);
                }
                return;
            }
            After::Restarted => {
                cell.generation.0 += 1;
                Phase::Waiting(Beginning::Fresh)
            }
            After::NotCancelled => Phase::Waiting(Beginning::AfterCrash),
            After::Parked(until) => {
                // A cancel may have come before it was parked.
                cell.inbox.push_back(Input::Mail);
                Phase::Parked(until.max(time))
            }
        };
    }

    /// A parked run waits until it is to go on: because a person says so, or to be cancelled.
    pub(super) fn stand_by(&mut self, p: usize, i: usize, until: Millis) {
        let mut beginning = None;
        for input in std::mem::take(&mut self.cell(p, i).inbox) {
            match input {
                Input::Mail => {
                    let rows = self.store.rows(&self.ids[i], 0, usize::MAX).unwrap();
                    let cancel = |row| matches!(Message::read(row), Some(Message::Cancel { .. }));
                    let asked = rows.iter().filter(|(_, row)| cancel(row)).map(|(no, _)| *no).max().unwrap_or(0);
                    // Each request is tried once.
                    if std::mem::replace(&mut self.cell(p, i).cancel_tried, asked) < asked {
                        beginning = Some(Beginning::WithoutCode);
                    }
                }
                input => self.take_late(p, input),
            }
        }
        if until <= self.time {
            beginning = beginning.or(Some(Beginning::AfterCrash));
        }
        if self.processes[p].shutdown_until.is_some() {
            return self.after(p, i, After::Gone);
        }
        if beginning == Some(Beginning::WithoutCode) {
            self.stats.without_code += 1;
        }
        self.cell(p, i).phase = beginning.map_or(Phase::Parked(until), Phase::Waiting);
    }

    /// An input of a run without a life.
    fn take_late(&mut self, p: usize, input: Input) {
        if let Input::Ended(body, end) = input
            && let Some(slot) = self.outside.forget(body)
        {
            let end: Ended = end;
            self.ended_late(p, body, end, slot);
        }
    }

    pub(super) fn take_left(&mut self, p: usize, i: usize, left: Left) {
        let cell = self.cell(p, i);
        let (task, generation) = (cell.task, cell.generation);
        for (step, attempt, end, slot) in left.ends {
            self.put_outcome(p, i, generation, step, attempt, end, slot);
        }
        for (step, attempt) in left.running {
            match self.outside.listed(task, (generation, step), attempt) {
                Some(begun) => begun.slot = true,
                None => self.processes[p].slots.give(),
            }
        }
        for (step, attempt) in left.nowhere {
            self.outside.abort(task, (generation, step), attempt);
        }
        for run in left.nudges {
            let run = self.place(&run);
            self.nudge(p, run);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each says of which body it is, or how that ended")]
    pub(super) fn put_outcome(
        &mut self,
        p: usize,
        i: usize,
        generation: Generation,
        step: StepNo,
        attempt: Attempt,
        end: BodyEnd,
        slot: bool,
    ) {
        self.stats.outcome_rows += 1;
        let step = if self.control == Control::RowsOfOtherSteps { StepNo(step.0 + 1) } else { step };
        if self.control == Control::ShutdownAppends {
            if slot {
                self.processes[p].slots.give();
            }
            return self.append_outcome(i, step, attempt, &end);
        }
        let row = Message::Outcome { generation, step, attempt, end }.row();
        let life = self.processes[p].cells.get(&i).map_or(0, |cell| cell.life);
        let write = Write::Put { run: self.ids[i].clone(), row, to: Addressee::Anyone };
        self.processes[p].writes.push_back(Submitted { run: i, life, no: None, write, slot, call: None });
    }

    /// A run that was left in good order looks as if only those bodies had been begun that were.
    fn check_drained(&mut self, p: usize, i: usize, generation: Generation) {
        let opened = self.cell(p, i).opened;
        let Some((newest, state)) = self.durable_state(i) else { return };
        let mine = self.owners.get(&i).is_some_and(|owner| owner.process == self.processes[p].no);
        if newest != generation || !mine {
            return;
        }
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
            .filter(|(step, n)| {
                let of = (i, generation, *step);
                !self.outside.begun.iter().any(|b| b.step() == of && b.start.attempt == *n)
            })
            .collect();
        if !forgotten.is_empty() {
            self.fail(format!("run {i} was left in good order; these look begun and are not: {forgotten:?}"));
        }
    }
}
