//! A process: what `worker.rs` does with a run on tokio, step by step.

use super::{
    controls::{Control, doctored},
    effects::{Out, SETTLE_MS, TIMEOUT_MS},
    log::Stored,
    outside::{Begun, Ended},
    prog::{IMPURE, PANICS, WORKFLOW},
    world::{GENERATION, Input, Phase, Submitted, VALUE_BYTES_MAX, World},
};
use crate::{
    bodies::Left,
    core::Stop,
    drive::{Life, Opened, Output, Setting},
    effect::{BodyEnd, Start},
    entry::EscapedName,
    fold::StepState,
    id::{Attempt, Epoch, Seq, StepNo},
    log::{BatchNo, Lost, read_frames},
    mailbox::Message,
    store::{Row, Store, StoreError, Write, Written},
    value::Value,
};

impl World {
    pub(super) fn open(&mut self, i: usize, faults: bool) {
        let run = &mut self.runs[i];
        run.life += 1;
        run.wants_slot = false;
        let fresh = std::mem::replace(&mut run.fresh, false);
        let id = run.id.clone();
        let epoch = match self.apply(Write::Claim { run: id.clone() }) {
            Ok(Written::Claimed(epoch)) => epoch,
            other => return self.fail(format!("run {i} cannot be claimed: {other:?}")),
        };
        let setting = self.setting(i, epoch, !fresh);
        let (store, run) = (self.store.clone(), id.clone());
        let most = 1 + self.rng.below(2_000) as usize;
        let (control, mut tail) = (self.control, self.take_tail(i));
        let source = move |from: Seq| {
            let records = store.read(&run, GENERATION, from, most)?;
            let records = if records.is_empty() { tail.take().into_iter().collect() } else { records };
            Ok(records.into_iter().map(|record| doctored(control, record)).collect())
        };
        let mut life = Box::new(Life::new(setting, Box::new(source)));
        self.runs[i].opened = Seq(Stored::read(&*self.store, &id).len());
        life.rows = self.store.rows(&id).unwrap().into();
        let inherited = self.outside.begun.iter().filter(|begun| begun.listed && begun.run == i);
        life.inherited = inherited.map(|begun| ((begun.step, begun.start.attempt), begun.slot)).collect();
        PANICS.set(faults && self.rng.one_in(40));
        let opened = life.replay(self.now(), &|_| Some(&WORKFLOW));
        let panicked = !PANICS.replace(false);
        self.stats.lives += 1;
        for key in &life.adopted {
            self.stats.adopted += 1;
            if let Some(begun) = self.outside.listed(i, key.0, key.1) {
                begun.slot &= !life.bodies.contains_key(key);
            }
        }
        if !matches!(opened, Opened::Live) {
            self.take_left(i, life.leave());
        }
        match opened {
            Opened::Live => {
                self.note_doubts(i, &life);
                // A row that comes while the run is opened is both read and told.
                for row in life.rows.iter().filter(|_| self.rng.one_in(3)) {
                    self.runs[i].inbox.push_back(Input::Row(row.clone()));
                }
                self.runs[i].phase = Phase::Live(life);
                self.runs[i].woken = true;
            }
            Opened::Ended => self.runs[i].phase = Phase::Ended,
            Opened::Stopped(Stop::Panicked { .. }) if panicked => self.park(i),
            Opened::Stopped(stop) => self.fail(format!("run {i}: healthy code stopped on replay: {stop:?}")),
            Opened::NoCode { .. } => self.fail(format!("run {i}: no code")),
        }
    }

    fn park(&mut self, i: usize) {
        self.stats.parked += 1;
        self.runs[i].lives += 1;
        self.runs[i].phase = Phase::Parked(self.time + self.rng.below(150));
    }

    pub(super) fn setting(&self, i: usize, epoch: Epoch, after_crash: bool) -> Setting {
        let run = self.runs[i].id.clone();
        let key_prefix = format!("{}/{}/{GENERATION}", self.store.about().id, EscapedName(run.as_str()));
        Setting {
            run,
            generation: GENERATION,
            epoch,
            key_prefix: key_prefix.into(),
            slots: self.slots.clone(),
            value_bytes_max: VALUE_BYTES_MAX,
            unwanted_grace_ms: TIMEOUT_MS / 2,
            after_crash,
        }
    }

    pub(super) fn go_on(&mut self, i: usize, mut life: Box<Life>, faults: bool) {
        if self.shutdown_until.is_some() && self.rng.one_in(2) {
            return self.close(i, life, Phase::Gone);
        }
        self.take_inputs(i, &mut life);
        let most = if self.rng.one_in(3) { 1 } else { 64 };
        let mut turns = 0;
        PANICS.set(faults && self.rng.one_in(250));
        if self.control == Control::ImpureCode {
            IMPURE.set(self.rng.below(2));
        }
        while turns < most && life.turn(self.now()) {
            turns += 1;
        }
        IMPURE.set(0);
        PANICS.set(false);
        self.runs[i].wants_slot = false;
        self.perform(i, &mut life, true);
        self.runs[i].armed = life.due();
        self.note_doubts(i, &life);
        self.runs[i].woken |= turns == most;
        if let Some(stop) = &life.stop
            && !matches!(stop, Stop::Panicked { .. })
        {
            return self.fail(format!("run {i}: healthy code stopped: {stop:?}"));
        }
        let over = life.is_over() && life.log.is_settled();
        if life.lost.is_some() || life.stop.is_some() || over || (self.shutdown_until.is_some() && turns < most) {
            let next = match &life.lost {
                Some(Lost::Fenced) => return self.fail(format!("run {i}: fenced, and nobody else is there")),
                _ if over => Phase::Ended,
                None if life.stop.is_none() => Phase::Gone,
                _ => {
                    self.park(i);
                    std::mem::replace(&mut self.runs[i].phase, Phase::Gone)
                }
            };
            self.close(i, life, next);
        } else {
            self.runs[i].phase = Phase::Live(life);
        }
    }

    fn note_doubts(&mut self, i: usize, life: &Life) {
        for (step, s) in &life.state().steps {
            if let StepState::InDoubt(attempt, ..) = s.state {
                self.doubts.entry((i, *step, attempt, self.process)).or_insert(self.time);
            }
        }
    }

    fn take_inputs(&mut self, i: usize, life: &mut Life) {
        let now = self.now();
        life.now = now;
        for input in std::mem::take(&mut self.runs[i].inbox) {
            let mine = self.runs[i].life;
            match input {
                Input::Written(life_no, no, result) if life_no == mine => life.written(no, result, now),
                Input::ReadBack(life_no, stored) if life_no == mine => life.read_back(stored, now),
                Input::Ended(life_no, step, attempt, end) => match self.outside.forget(i, life_no, step, attempt) {
                    Some(_) if life_no == mine || life.adopted.contains(&(step, attempt)) => {
                        life.ended(step, attempt, end);
                    }
                    Some(slot) => self.ended_late(i, step, attempt, end, slot),
                    // Null control: it has not ended.
                    None if self.control == Control::ResultBeforeBody => life.ended(step, attempt, end),
                    None => {}
                },
                Input::Reconciled(life_no, step, attempt, answer) if life_no == mine => {
                    life.reconciled(step, attempt, answer, now);
                }
                Input::Row(row) => life.rows.push_back(row),
                _ => {}
            }
        }
    }

    pub(super) fn take_late(&mut self, i: usize) {
        for input in std::mem::take(&mut self.runs[i].inbox) {
            if let Input::Ended(life, step, attempt, end) = input
                && let Some(slot) = self.outside.forget(i, life, step, attempt)
            {
                self.ended_late(i, step, attempt, end, slot);
            }
        }
    }

    fn ended_late(&mut self, i: usize, step: StepNo, attempt: Attempt, end: Ended, slot: bool) {
        match end {
            Ok(end) => self.put_outcome(i, step, attempt, end, slot),
            Err(_) if slot => self.slots.give(),
            Err(_) => {}
        }
    }

    fn take_left(&mut self, i: usize, left: Left) {
        for (step, attempt, end, slot) in left.ends {
            self.put_outcome(i, step, attempt, end, slot);
        }
        for (step, attempt) in left.running {
            match self.outside.listed(i, step, attempt) {
                Some(begun) => begun.slot = true,
                None => self.slots.give(),
            }
        }
        for (step, attempt) in left.nowhere {
            self.outside.abort(i, step, attempt);
        }
    }

    fn put_outcome(&mut self, i: usize, step: StepNo, attempt: Attempt, end: BodyEnd, slot: bool) {
        self.stats.outcome_rows += 1;
        let step = if self.control == Control::RowsOfOtherSteps { StepNo(step.0 + 1) } else { step };
        if self.control == Control::ShutdownAppends {
            if slot {
                self.slots.give();
            }
            return self.append_outcome(i, step, attempt, &end);
        }
        let row = Message::Outcome { generation: GENERATION, step, attempt, end }.row();
        let (life, write) = (self.runs[i].life, Write::Put { run: self.runs[i].id.clone(), row });
        self.writes.push_back(Submitted { run: i, life, no: None, write, slot });
    }

    pub(super) fn submit(&mut self, run: usize, no: Option<BatchNo>, write: Write) {
        let life = self.runs[run].life;
        if let (Control::NoBarrier, Some(no)) = (self.control, no) {
            self.tell(run, Input::Written(life, no, Ok(Written::Done)));
        }
        self.writes.push_back(Submitted { run, life, no, write, slot: false });
    }

    fn perform(&mut self, i: usize, life: &mut Life, all: bool) {
        let life_no = self.runs[i].life;
        for output in life.take_outputs() {
            match output {
                Output::Append(no, batch) => self.submit(i, Some(no), Write::Append(batch)),
                _ if !all => {}
                Output::ReadBack(from) => {
                    let stored = match self.rng.one_in(9) {
                        true => Err(StoreError::Io { doing: "read".into(), error: "not now".into() }),
                        false => read_frames(&*self.store, &self.runs[i].id, GENERATION, from),
                    };
                    self.tell(i, Input::ReadBack(life_no, stored));
                }
                Output::Start(step, start) => self.begin(i, step, start),
                Output::Abort(step, attempt) => self.outside.abort(i, step, attempt),
                Output::Unwanted(step, _) => {
                    self.outside.unwanted(&mut self.rng, self.time, i, step);
                }
                Output::Reconcile(step, start) => {
                    if self.outside.runs(i, step, start.attempt) {
                        self.fail(format!("run {i}: asked about step {step} while its body runs"));
                    }
                    self.stats.reconciled += 1;
                    self.answers.push((self.time + self.rng.below(20), i, life_no, step, start));
                }
                Output::WantSlot => self.runs[i].wants_slot = true,
            }
        }
    }

    fn begin(&mut self, i: usize, step: StepNo, start: Start) {
        let stored = Stored::read(&*self.store, &self.runs[i].id).len();
        let life = self.runs[i].life;
        let before = (i, step, Attempt(start.attempt.0 - 1), self.process);
        if let Some(since) = self.doubts.get(&before)
            && start.meta.name == "wire_asking"
            && self.time < since + SETTLE_MS
        {
            self.fail(format!("run {i}: step {step} is run again before its doubt has settled"));
        }
        if self.control == Control::ResultBeforeBody && self.rng.one_in(6) {
            let end = Ok(BodyEnd::Ok { value: Value::encode(&Out::Ok(5)).unwrap() });
            self.tell(i, Input::Ended(life, step, start.attempt, end));
        }
        self.outside.begin(
            &mut self.rng,
            self.faulty,
            Begun {
                at: self.time,
                process: self.process,
                run: i,
                life,
                step,
                start,
                no: 0,
                seen: 0,
                stored,
                end: None,
                running: true,
                listed: true,
                slot: false,
            },
        );
    }

    pub(super) fn tell_written(&mut self, i: usize, life: u64, no: BatchNo, result: Result<Written, StoreError>) {
        self.tell(i, Input::Written(life, no, result));
    }

    pub(super) fn tell_row(&mut self, i: usize, row: Row) {
        self.tell(i, Input::Row(row));
    }

    pub(super) fn show(&self) {
        for (i, run) in self.runs.iter().enumerate() {
            println!("== run {i}\n{}", Stored::read(&*self.store, &run.id).show());
        }
        for (n, b) in self.outside.begun.iter().enumerate() {
            let landed: Vec<_> = self.outside.landed.iter().filter(|(_, i, _)| *i == n).map(|(at, ..)| *at).collect();
            println!(
                "at {} process {} run {} step {} attempt {} {} landed {landed:?} {:?}",
                b.at, b.process, b.run, b.step, b.start.attempt, b.start.meta.name, b.end
            );
        }
    }

    pub(super) fn tell(&mut self, i: usize, input: Input) {
        self.runs[i].inbox.push_back(input);
    }

    /// The life is over, and bodies may still be under way.
    pub(super) fn close(&mut self, i: usize, mut life: Box<Life>, next: Phase) {
        life.drop_code();
        life.now = self.now();
        if !life.is_over() && self.control != Control::ShutdownForgets {
            life.drain();
        }
        self.perform(i, &mut life, false);
        self.close_on(i, life, next);
    }

    pub(super) fn close_on(&mut self, i: usize, mut life: Box<Life>, next: Phase) {
        self.take_inputs(i, &mut life);
        self.perform(i, &mut life, false);
        if !life.log.is_settled() && life.lost.is_none() && life.log.trouble().is_none() {
            self.runs[i].phase = Phase::Closing(life, Box::new(next));
            return;
        }
        let settled = life.log.is_settled();
        self.take_left(i, life.leave());
        if let Some(Lost::Rejected { reason, .. }) = &life.lost {
            for (step, attempt) in life.log.unwritten_outcomes(life.state().next_step) {
                let end = BodyEnd::NotRecordable { reason: reason.to_string() };
                self.put_outcome(i, step, attempt, end, false);
            }
        }
        let (run, epoch) = (self.runs[i].id.clone(), life.setting.epoch);
        self.submit(i, None, Write::Release { run, epoch });
        if settled && !matches!(next, Phase::Ended) {
            self.check_drained(i);
        }
        self.runs[i].phase = next;
    }

    pub(super) fn reconcile(&mut self) {
        let (now, answers) = (self.time, std::mem::take(&mut self.answers));
        for (at, i, life, step, start) in answers {
            if at > now {
                self.answers.push((at, i, life, step, start));
                continue;
            }
            let lies = self.control == Control::ReconcileLies;
            let answer = self.outside.reconcile(&mut self.rng, lies, i, step, &start);
            self.tell(i, Input::Reconciled(life, step, start.attempt, answer));
        }
    }
}
