//! A process: what `worker.rs` does with runs on tokio, step by step.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::AtomicUsize},
};

use bytes::Bytes;

use super::{
    Rng,
    clients::PEOPLE,
    controls::Control,
    effects::{NOTHING_UNDOES, SETTLE_MS, TIMEOUT_MS, find, settle_ms},
    log::Stored,
    outside::{Begun, Ended, ReconcileAnswer},
    prog::{DIVERGED, IMPURE, PANICS, WORKFLOW},
    store::{Owner, Submitted},
    world::{Asked, SLOTS, Slots, VALUE_BYTES_MAX, World},
};
use crate::{
    clock::Millis,
    contract::WorkflowMeta,
    core::Stop,
    drive::{Life, Opened, Output, Setting, Slots as _},
    effect::{BodyEnd, Start},
    entry::{EscapedName, Kind, Resolved, RunStarted},
    fold::StepState,
    id::{Attempt, Epoch, Generation, Seq, StepNo},
    log::{BatchNo, Lost, read_frames},
    store::{Row, RunRecord, Store, StoreError, Wait, Write, Written},
    value::Value,
};

/// What a run's task is told.
pub(super) enum Input {
    Written(u64, BatchNo, Result<Written, StoreError>),
    ReadBack(u64, Result<Bytes, StoreError>),
    /// By the number of the body.
    Ended(usize, Ended),
    Reconciled(u64, StepNo, Attempt, ReconcileAnswer),
    /// There may be new rows in the mailbox.
    Mail,
    Rows(u64, Vec<(u64, Row)>),
}

/// How a life begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Beginning {
    Fresh,
    /// The life before it has let go of the run.
    Released,
    AfterCrash,
    /// To be cancelled, which needs no code.
    WithoutCode,
}

/// What comes after a life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum After {
    Ended,
    Restarted,
    Parked(Millis),
    /// It was to be cancelled by somebody who may not.
    NotCancelled,
    Gone,
}

/// Where a run's task stands.
pub(super) enum Phase {
    /// To be claimed and replayed.
    Waiting(Beginning),
    Live(Box<Life>),
    /// It writes what is left to write.
    Closing(Box<Life>, After),
    Parked(Millis),
    /// It is being worked on.
    Busy,
}

impl Phase {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Phase::Waiting(_) => "waiting",
            Phase::Live(_) => "live",
            Phase::Closing(..) => "closing",
            Phase::Parked(_) => "parked",
            Phase::Busy => "busy",
        }
    }
}

/// A run's task.
pub(super) struct Cell {
    pub(super) task: u64,
    pub(super) phase: Phase,
    pub(super) inbox: VecDeque<Input>,
    pub(super) life: u64,
    pub(super) generation: Generation,
    /// Length of the log when this life began.
    pub(super) opened: Seq,
    pub(super) woken: bool,
    pub(super) wants_slot: bool,
    pub(super) armed: (Option<Millis>, Option<Millis>),
    /// Rows are being read, whether to read once more after that, and how often the life was told of new ones before.
    pub(super) reading: Option<(bool, u64)>,
    /// The last request to cancel for which a parked run was tried without its code.
    pub(super) cancel_tried: u64,
    /// The last row of others that the life was told of: one that a later claim has taken is not there to be read.
    told_of: u64,
    /// What an earlier life in this process knew of the monotonic clock.
    elapsing: Vec<(StepNo, Millis)>,
}

/// A run that has left memory.
pub(super) struct Asleep {
    pub(super) due: (Option<Millis>, Option<Millis>),
    pub(super) wait: Wait,
    elapsing: Vec<(StepNo, Millis)>,
}

pub(super) struct Process {
    /// Its number of all that there ever were.
    pub(super) no: u64,
    pub(super) up_at: Millis,
    pub(super) monotonic_from: Millis,
    pub(super) wall_ahead: Millis,
    pub(super) shutdown_until: Option<Millis>,
    pub(super) refuses_until: Millis,
    /// The store writes nothing any more in this process.
    pub(super) poisoned: bool,
    /// Its code is not the code of the logs.
    pub(super) diverged: bool,
    /// It has looked at the runs of the store.
    pub(super) opened: bool,
    pub(super) slots: Arc<Slots>,
    /// In the order submitted, not done yet.
    pub(super) writes: VecDeque<Submitted>,
    pub(super) cells: BTreeMap<usize, Cell>,
    pub(super) asleep: BTreeMap<usize, Asleep>,
    pub(super) nudges: VecDeque<usize>,
}

impl Process {
    pub(super) fn new(no: u64, rng: &mut Rng, time: Millis, control: Control) -> Process {
        let slots = if control == Control::NoSlots { 1 << 20 } else { SLOTS };
        Process {
            no,
            up_at: time,
            // A process measures its time from some moment of its own.
            monotonic_from: time - rng.below(time),
            wall_ahead: 500_000 + rng.below(1_000_000),
            shutdown_until: None,
            refuses_until: 0,
            poisoned: false,
            diverged: false,
            opened: false,
            slots: Arc::new(Slots(AtomicUsize::new(slots))),
            writes: VecDeque::new(),
            cells: BTreeMap::new(),
            asleep: BTreeMap::new(),
            nudges: VecDeque::new(),
        }
    }

    /// A digest of its code.
    fn code(&self) -> u64 {
        1 + u64::from(self.diverged)
    }
}

impl World {
    pub(super) fn cell(&mut self, p: usize, i: usize) -> &mut Cell {
        self.processes[p].cells.get_mut(&i).expect("a task that is worked on")
    }

    // ---- runs that are not in memory ----

    /// The process looks at all runs of the store.
    pub(super) fn open(&mut self, p: usize) {
        self.processes[p].opened = true;
        let code = self.processes[p].code();
        let now = self.now(p).wall;
        for (i, record) in self.live() {
            if self.is_elsewhere(p, i) {
                continue;
            }
            match record.wait {
                Some(wait) if record.is_waiting() && wait.code == code && wait.due.is_none_or(|due| due > now) => {
                    let asleep = Asleep { due: (None, wait.due), wait, elapsing: Vec::new() };
                    self.processes[p].asleep.insert(i, asleep);
                }
                _ => self.adopt(p, i, &record, false),
            }
        }
    }

    /// Whether another process that lives has the run.
    pub(super) fn is_elsewhere(&self, p: usize, i: usize) -> bool {
        self.shared && self.owners.get(&i).is_some_and(|o| o.place != p && self.processes[o.place].no == o.process)
    }

    /// Has a run in memory and going on, once.
    pub(super) fn adopt(&mut self, p: usize, i: usize, record: &RunRecord, fresh: bool) {
        if self.processes[p].shutdown_until.is_some() {
            return;
        }
        let (task, process) = (self.number(), &mut self.processes[p]);
        let elapsing = process.asleep.remove(&i).map(|asleep| asleep.elapsing).unwrap_or_default();
        if let Some(cell) = process.cells.get_mut(&i) {
            cell.inbox.push_back(Input::Mail);
            return;
        }
        let beginning = match (fresh, record.wait) {
            (true, _) => Beginning::Fresh,
            (false, Some(_)) => Beginning::Released,
            (false, None) => Beginning::AfterCrash,
        };
        let cell = Cell {
            task,
            phase: Phase::Waiting(beginning),
            inbox: VecDeque::new(),
            life: 0,
            generation: record.head.generation,
            opened: Seq(0),
            woken: false,
            wants_slot: false,
            armed: (None, None),
            reading: None,
            cancel_tried: 0,
            told_of: 0,
            elapsing,
        };
        process.cells.insert(i, cell);
    }

    /// A run has got a row, or has been made.
    pub(super) fn nudge(&mut self, p: usize, i: usize) {
        self.say(|| format!("process {p}: nudge {i}"));
        let process = &mut self.processes[p];
        if process.shutdown_until.is_some() || !process.opened {
            return;
        }
        match process.cells.get_mut(&i) {
            Some(cell) => cell.inbox.push_back(Input::Mail),
            // Null control: it is on its way out, and nobody looks again.
            None if self.control == Control::EvictCheckThenAct
                && process.writes.iter().any(|w| w.run == i && matches!(w.write, Write::Release { .. })) => {}
            None => process.nudges.push_back(i),
        }
    }

    pub(super) fn next_nudge(&mut self, p: usize) {
        let Some(i) = self.processes[p].nudges.pop_front() else { return };
        if self.is_elsewhere(p, i) {
            return;
        }
        let record = self.store.run(&self.ids[i]).unwrap();
        if let Some(record) = record.filter(|record| record.head.live) {
            // Live, in no memory and waiting for nothing: it was made a moment ago.
            let fresh = record.wait.is_none() && !self.shared;
            self.adopt(p, i, &record, fresh);
        }
    }

    /// Those who sleep until now.
    pub(super) fn wake_sleepers(&mut self, p: usize) {
        let (now, process) = (self.now(p), &mut self.processes[p]);
        if process.up_at > self.time || !process.opened {
            return;
        }
        let due = |asleep: &Asleep| {
            asleep.due.0.is_some_and(|at| at <= now.monotonic) || asleep.due.1.is_some_and(|at| at <= now.wall)
        };
        for (i, asleep) in process.asleep.iter_mut().filter(|(_, asleep)| due(asleep)) {
            // What has fired is out of the table.
            asleep.due = (None, None);
            process.nudges.push_back(*i);
        }
    }

    /// Where processes share a store each looks at it now and then. True if there is something to do.
    pub(super) fn poll(&mut self, p: usize) -> bool {
        let (process, now) = (&self.processes[p], self.now(p).wall);
        if process.up_at > self.time || !process.opened || process.shutdown_until.is_some() {
            return false;
        }
        let code = process.code();
        let mut any = false;
        for (i, record) in self.live() {
            if let Some(cell) = self.processes[p].cells.get_mut(&i) {
                // Rows that others have put.
                let news = match &cell.phase {
                    Phase::Live(life) => {
                        record.version > life.mailbox.seen().max(cell.told_of) && cell.reading.is_none()
                    }
                    Phase::Parked(_) => self.rng.one_in(50),
                    _ => false,
                };
                if news && !cell.inbox.iter().any(|input| matches!(input, Input::Mail)) {
                    cell.inbox.push_back(Input::Mail);
                    cell.told_of = record.version;
                    any = true;
                }
                continue;
            }
            let runnable = record.wait.is_none_or(|wait| {
                wait.due.is_some_and(|due| due <= now) || record.version > wait.seen || wait.code != code
            });
            if runnable && !self.is_elsewhere(p, i) {
                self.adopt(p, i, &record, false);
                any = true;
            }
        }
        any
    }

    pub(super) fn tell(&mut self, p: usize, i: usize, input: Input) {
        if let Some(cell) = self.processes[p].cells.get_mut(&i) {
            cell.inbox.push_back(input);
        }
    }

    pub(super) fn work(&mut self, p: usize, i: usize) {
        let cell = self.cell(p, i);
        cell.woken = false;
        match std::mem::replace(&mut cell.phase, Phase::Busy) {
            Phase::Waiting(_) if self.processes[p].shutdown_until.is_some() => drop(self.processes[p].cells.remove(&i)),
            Phase::Waiting(beginning) => self.begin_life(p, i, beginning),
            Phase::Live(life) => self.go_on(p, i, life),
            Phase::Closing(life, after) => self.close_on(p, i, life, after),
            Phase::Parked(until) => self.stand_by(p, i, until),
            Phase::Busy => unreachable!("nobody works now"),
        }
    }

    // ---- a life begins ----

    fn begin_life(&mut self, p: usize, i: usize, beginning: Beginning) {
        let id = self.ids[i].clone();
        if self.faulty && self.rng.one_in(20) {
            // Refused, or done and not answered: it is tried again.
            if self.rng.one_in(2) {
                let _ = self.claim(p, i);
            }
            self.cell(p, i).phase = Phase::Waiting(beginning);
            return;
        }
        if beginning == Beginning::WithoutCode {
            self.cancel_as_live(i);
        }
        let epoch = match self.claim(p, i) {
            Ok(epoch) => epoch,
            Err(e) => return self.fail(format!("run {i} cannot be claimed: {e:?}")),
        };
        let life_no = self.number();
        let cell = self.cell(p, i);
        cell.life = life_no;
        cell.wants_slot = false;
        cell.reading = None;
        let (generation, task, elapsing) = (cell.generation, cell.task, std::mem::take(&mut cell.elapsing));
        let mut setting = self.setting(p, i, generation, epoch, beginning == Beginning::AfterCrash);
        setting.again = beginning != Beginning::Fresh;
        let (store, run) = (self.store.clone(), id.clone());
        let most = 1 + self.rng.below(2_000) as usize;
        let (control, mut tail) = (self.control, self.take_tail(i, generation));
        let source = move |from: Seq| {
            let records = store.read(&run, generation, from, most)?;
            let records = if records.is_empty() { tail.take().into_iter().collect() } else { records };
            Ok(records.into_iter().map(|record| super::controls::doctored(control, record)).collect())
        };
        let mut life = Box::new(Life::new(setting, Box::new(source)));
        let stored = Stored::read(&*self.store, &id, generation).len();
        self.cell(p, i).opened = Seq(stored);
        let version = self.store.run(&id).unwrap().map_or(0, |record| record.version);
        life.mail(self.rows(p, i, 0));
        life.mailbox.has_seen(version);
        let inherited = self.outside.begun.iter();
        let inherited = inherited.filter(|b| b.listed && b.task == task && b.generation == generation);
        life.inherited = inherited.map(|begun| ((begun.step, begun.start.attempt), begun.slot)).collect();
        life.sleeps.known = elapsing.into_iter().collect();
        PANICS.set(self.faulty && self.rng.one_in(40));
        let diverged = self.processes[p].diverged;
        NOTHING_UNDOES.set(diverged);
        // The other code must meet a log, not make one.
        let lookup = move |_: &RunStarted<'_>| -> Option<&'static WorkflowMeta> {
            match diverged {
                true if stored < 2 => None,
                true => Some(&DIVERGED),
                false => Some(&WORKFLOW),
            }
        };
        let with_code = beginning != Beginning::WithoutCode;
        let opened = life.replay(self.now(p), with_code.then_some(&lookup));
        let panicked = !PANICS.replace(false);
        NOTHING_UNDOES.set(false);
        self.stats.lives += 1;
        self.say(|| format!("process {p}: run {i} life {life_no} {beginning:?} -> {opened:?} at {}", life.state().len));
        for ((step, attempt), with_slot) in &life.adopted {
            self.stats.adopted += 1;
            if let Some(begun) = self.outside.listed(task, (generation, *step), *attempt) {
                begun.slot &= !with_slot;
            }
        }
        if !matches!(opened, Opened::Live) {
            let left = life.leave();
            self.take_left(p, i, left);
        }
        match opened {
            Opened::Live => {
                match self.control {
                    Control::SettleFromIntent => super::controls::settle_from_intent(&mut life),
                    Control::CrashNotCounted => super::controls::crash_not_counted(&mut life),
                    Control::TimeoutIsFailure => super::controls::timeout_is_failure(&mut life),
                    _ => {}
                }
                match with_code {
                    true => self.check_unseen(i, &life, stored),
                    false if life.state().cancel.is_some() => drop(self.forced.insert(i)),
                    false => {}
                }
                self.note_doubts(p, i, &life);
                self.cell(p, i).phase = Phase::Live(life);
                self.cell(p, i).woken = true;
            }
            Opened::Ended => {
                let restarted = matches!(life.state().ending, Some(crate::entry::End::Restarted { .. }));
                self.after(p, i, if restarted { After::Restarted } else { After::Ended });
            }
            Opened::Stopped(Stop::Panicked { .. }) if panicked => self.park(p, i),
            Opened::Stopped(_) | Opened::NoCode { .. } if diverged => {
                self.stats.diverged += 1;
                self.park(p, i);
            }
            Opened::Stopped(stop) => self.fail(format!("run {i}: healthy code stopped on replay: {stop:?}")),
            Opened::NoCode { .. } => self.fail(format!("run {i}: no code")),
        }
    }

    /// A claim, which takes the run away from whoever has it.
    fn claim(&mut self, p: usize, i: usize) -> Result<Epoch, StoreError> {
        let before = self.owners.get(&i).copied();
        match self.apply(Write::Claim { run: self.ids[i].clone(), aside: None })? {
            Written::Claimed(epoch) => {
                let process = self.processes[p].no;
                if before
                    .is_some_and(|owner| owner.process != process && self.processes[owner.place].no == owner.process)
                {
                    self.stats.displaced += 1;
                }
                self.displaced.insert(i, self.time);
                self.owners.insert(i, Owner { place: p, process, epoch });
                Ok(epoch)
            }
            other => unreachable!("a claim answers {other:?}"),
        }
    }

    fn park(&mut self, p: usize, i: usize) {
        let until = self.time + self.rng.below(150);
        self.after(p, i, After::Parked(until));
    }

    pub(super) fn setting(
        &self,
        p: usize,
        i: usize,
        generation: Generation,
        epoch: Epoch,
        after_crash: bool,
    ) -> Setting {
        Setting {
            run: self.ids[i].clone(),
            generation,
            epoch,
            key_prefix: self.key_prefix(i, generation).into(),
            slots: self.processes[p].slots.clone(),
            value_bytes_max: VALUE_BYTES_MAX,
            cancel_grace_ms: if self.control == Control::NoTimeout { Millis::MAX / 4 } else { TIMEOUT_MS / 2 },
            settle_ms: if self.control == Control::UndoNoSettle { 0 } else { SETTLE_MS },
            effects: find,
            settles: settle_ms,
            code: self.processes[p].code(),
            after_crash,
            found: false,
            again: true,
        }
    }

    /// What the engine's own keys of a run begin with.
    pub(super) fn key_prefix(&self, i: usize, generation: Generation) -> String {
        let generation = if self.control == Control::GenNotInKey { Generation(0) } else { generation };
        format!("{}/{}/{generation}", self.store.about().id, EscapedName(self.ids[i].as_str()))
    }

    // ---- a life ----

    fn go_on(&mut self, p: usize, i: usize, mut life: Box<Life>) {
        let shutting = self.processes[p].shutdown_until.is_some();
        if shutting && self.rng.one_in(2) {
            return self.close(p, i, life, After::Gone);
        }
        self.take_inputs(p, i, &mut life);
        let most = if self.rng.one_in(3) { 1 } else { 64 };
        let mut turns = 0;
        PANICS.set(self.faulty && self.rng.one_in(120));
        if self.control == Control::ImpureCode {
            IMPURE.set(self.rng.below(2));
        }
        let diverged = self.processes[p].diverged;
        NOTHING_UNDOES.set(diverged);
        while turns < most && life.turn(self.now(p)) {
            turns += 1;
            if self.control == Control::TimeoutIsFailure {
                super::controls::timeout_is_failure(&mut life);
            }
        }
        NOTHING_UNDOES.set(false);
        IMPURE.set(0);
        PANICS.set(false);
        self.cell(p, i).wants_slot = false;
        let hold_back = self.rng.one_in(3) && life.may_hold_back();
        self.perform(p, i, &mut life, true, hold_back);
        self.check_readers(i, &life);
        self.note_doubts(p, i, &life);
        let cell = self.cell(p, i);
        cell.armed = life.due();
        cell.woken |= turns == most || hold_back;
        match &life.stop {
            None | Some(Stop::Panicked { .. }) => {}
            Some(Stop::NoEffect { .. }) if diverged => self.stats.diverged += 1,
            Some(stop) => return self.fail(format!("run {i}: healthy code stopped: {stop:?}")),
        }
        let over = life.is_over() && life.log.is_settled();
        let restarted = matches!(life.state().ending, Some(crate::entry::End::Restarted { .. }));
        if life.lost.is_some() || life.stop.is_some() || over || (shutting && turns < most) {
            let after = match &life.lost {
                Some(Lost::Fenced) if self.shared => After::Gone,
                Some(Lost::Fenced) => return self.fail(format!("run {i}: fenced, and nobody else is there")),
                _ if over && restarted => After::Restarted,
                _ if over => After::Ended,
                None if life.stop.is_none() => After::Gone,
                _ => {
                    self.stats.parked += 1;
                    After::Parked(self.time + self.rng.below(150))
                }
            };
            self.close(p, i, life, after);
        } else if life.is_without_purpose() {
            self.close(p, i, life, After::NotCancelled);
        } else if !self.falls_asleep(p, i, &life, turns < most) {
            self.cell(p, i).phase = Phase::Live(life);
        }
    }

    /// A run that waits leaves memory.
    fn falls_asleep(&mut self, p: usize, i: usize, life: &Life, quiet: bool) -> bool {
        let cell = self.cell(p, i);
        let (task, busy) = (cell.task, !quiet || cell.reading.is_some() || !cell.inbox.is_empty());
        if busy || self.outside.begun.iter().any(|b| b.listed && b.task == task) {
            return false;
        }
        let Some(mut wait) = life.wait().filter(|_| self.rng.one_in(2)) else { return false };
        let mut due = life.due();
        match self.control {
            Control::EvictNoDue => (wait.due, due) = (None, (None, None)),
            Control::EvictCheckThenAct => wait.seen = u64::MAX,
            _ => {}
        }
        self.stats.evicted += 1;
        self.left.insert(i, (life.setting.generation, looks(life)));
        let (run, epoch, elapsing) = (self.ids[i].clone(), life.setting.epoch, life.elapsing());
        self.submit(p, i, None, Write::Release { run, epoch, wait: Some(wait) });
        let process = &mut self.processes[p];
        process.cells.remove(&i);
        process.asleep.insert(i, Asleep { due, wait, elapsing });
        true
    }

    /// A run that was replayed after it had left memory is as it was.
    fn check_unseen(&mut self, i: usize, life: &Life, stored: u64) {
        let Some((generation, before)) = self.left.remove(&i) else { return };
        let same = generation == life.setting.generation && before.starts_with(&format!("{stored} "));
        // A cancel that was there comes with the replay, before anything else.
        let cancelled = life.state().cancel.is_some() && before.contains(" cancelled false ");
        let (same, now) = (same && !cancelled, looks(life));
        // Null control: it is read as if it were another.
        if same && before != now && self.control != Control::RerunInDoubt {
            self.fail(format!("run {i}: that it had left memory was seen:\n     {before}\n     {now}"));
        }
    }

    fn note_doubts(&mut self, p: usize, i: usize, life: &Life) {
        for (step, s) in life.state().steps.iter() {
            if let StepState::InDoubt(attempt, ..) = s.state {
                let key = ((i, life.setting.generation, *step), attempt, self.processes[p].no);
                self.doubts.entry(key).or_insert(self.time);
            }
        }
    }

    /// Nobody is shown what a loss of power could take back.
    fn check_readers(&mut self, i: usize, life: &Life) {
        let (generation, durable) = (life.setting.generation, life.log.durable());
        let last = Seq(durable.0.saturating_sub(1));
        if durable > Seq(0) && self.store.read(&self.ids[i], generation, last, 1).unwrap().is_empty() {
            self.fail(format!("run {i}: {durable} entries are called durable, and are not there"));
        }
    }

    fn rows(&mut self, p: usize, i: usize, after: u64) -> Vec<(u64, Row)> {
        let _ = p;
        self.store.rows(&self.ids[i], after, usize::MAX).unwrap()
    }

    fn read_mail(&mut self, p: usize, i: usize, life: &mut Life) {
        let (at_once, cell) = (self.rng.one_in(2), self.cell(p, i));
        if let Some((again, _)) = &mut cell.reading {
            *again = true;
            return;
        }
        if at_once {
            let rows = self.rows(p, i, life.mailbox.seen());
            self.mail(life, rows);
            return life.mailbox.has_read(life.mailbox.news());
        }
        cell.reading = Some((false, life.mailbox.news()));
        let life_no = cell.life;
        let rows = self.rows(p, i, life.mailbox.seen());
        self.tell(p, i, Input::Rows(life_no, rows));
    }

    fn mail(&mut self, life: &mut Life, rows: Vec<(u64, Row)>) {
        let rows = match self.control {
            Control::ResolveAnyAttempt => super::controls::about_any_attempt(life, rows),
            _ => rows,
        };
        life.mail(rows);
        if self.control == Control::TakenWhenDurable {
            self.taken_again(life);
        }
    }

    pub(super) fn take_inputs(&mut self, p: usize, i: usize, life: &mut Life) {
        let now = self.now(p);
        life.now = now;
        let cell = self.cell(p, i);
        let (mine, task) = (cell.life, cell.task);
        for input in std::mem::take(&mut cell.inbox) {
            match input {
                Input::Written(life_no, no, result) if life_no == mine => life.written(no, result, now),
                Input::ReadBack(life_no, stored) if life_no == mine => life.read_back(stored, now),
                Input::Ended(body, end) => {
                    let begun = &self.outside.begun[body];
                    let (of, step, attempt) = (begun.life, begun.step, begun.start.attempt);
                    let here = begun.task == task && begun.generation == life.setting.generation;
                    let adopted = here && life.adopted.contains_key(&(step, attempt));
                    match self.outside.forget(body) {
                        Some(_) if of == mine || adopted => life.ended(step, attempt, end),
                        Some(slot) => self.ended_late(p, body, end, slot),
                        // Null control: it has not ended.
                        None if self.control == Control::ResultBeforeBody => life.ended(step, attempt, end),
                        None => {}
                    }
                }
                Input::Reconciled(life_no, step, attempt, answer) if life_no == mine => {
                    life.reconciled(step, attempt, answer, now);
                }
                Input::Mail => {
                    life.mailbox.tell();
                    self.read_mail(p, i, life);
                }
                Input::Rows(life_no, rows) if life_no == mine => {
                    let (again, news) = self.cell(p, i).reading.take().unwrap_or_default();
                    self.mail(life, rows);
                    life.mailbox.has_read(news);
                    if again {
                        self.read_mail(p, i, life);
                    }
                }
                _ => {}
            }
        }
    }

    /// A body has returned: to its task, if that is there.
    pub(super) fn body_returns(&mut self, body: usize, end: Ended) {
        let begun = &self.outside.begun[body];
        let (p, i, task) = (begun.place, begun.run, begun.task);
        if self.processes[p].cells.get(&i).is_some_and(|cell| cell.task == task) {
            self.tell(p, i, Input::Ended(body, end));
        } else if let Some(slot) = self.outside.forget(body) {
            self.ended_late(p, body, end, slot);
        }
    }

    pub(super) fn ended_late(&mut self, p: usize, body: usize, end: Ended, slot: bool) {
        match end {
            Ok(end) => {
                let begun = &self.outside.begun[body];
                let (i, generation, step, attempt) = (begun.run, begun.generation, begun.step, begun.start.attempt);
                self.put_outcome(p, i, generation, step, attempt, end, slot);
            }
            Err(_) if slot => self.processes[p].slots.give(),
            Err(_) => {}
        }
    }

    pub(super) fn submit(&mut self, p: usize, run: usize, no: Option<BatchNo>, write: Write) {
        let life = self.processes[p].cells.get(&run).map_or(0, |cell| cell.life);
        if let (Control::NoBarrier, Some(no)) = (self.control, no) {
            self.tell(p, run, Input::Written(life, no, Ok(Written::Done)));
        }
        self.processes[p].writes.push_back(Submitted { run, life, no, write, slot: false, call: None });
    }

    pub(super) fn perform(&mut self, p: usize, i: usize, life: &mut Life, all: bool, hold_back: bool) {
        let cell = self.cell(p, i);
        let (life_no, task) = (cell.life, cell.task);
        let generation = life.setting.generation;
        for output in life.take_outputs(hold_back) {
            match output {
                Output::Append(no, batch) => self.submit(p, i, Some(no), Write::Append(batch)),
                Output::Nudge(run) => {
                    let run = self.place(&run);
                    self.nudge(p, run);
                }
                _ if !all => {}
                Output::ReadBack(from) => {
                    let stored = match self.rng.one_in(9) {
                        true => Err(StoreError::Io { doing: "read".into(), error: "not now".into() }),
                        false => read_frames(&*self.store, &self.ids[i], generation, from),
                    };
                    self.tell(p, i, Input::ReadBack(life_no, stored));
                }
                Output::Start(step, start) => self.begin(p, i, life, step, start),
                Output::Abort(step, attempt) => self.outside.abort(task, (generation, step), attempt),
                Output::Unwanted(step, _) => {
                    self.outside.unwanted(&mut self.rng, self.time, task, (generation, step));
                }
                Output::Reconcile(step, start) => {
                    let (process, step) = (self.processes[p].no, (i, generation, step));
                    if self.outside.runs(task, step, start.attempt) {
                        self.fail(format!("run {i}: asked about step {} while its body runs", step.2));
                    }
                    self.stats.reconciled += 1;
                    let due = self.time + self.rng.below(20);
                    self.asked.push(Asked { due, place: p, process, life: life_no, step, start });
                }
                Output::WantSlot => self.cell(p, i).wants_slot = true,
            }
        }
    }

    /// Whether a person has said that the attempt is to be repeated: a word counts before the doubt has settled.
    fn is_told_again(&self, i: usize, generation: Generation, step: StepNo, attempt: Attempt) -> bool {
        let log = Stored::read(&*self.store, &self.ids[i], generation);
        log.entries().iter().any(|entry| match &entry.kind {
            Kind::EffectResolved { step: s, attempt: a, how: Resolved::RunAgain, by } => {
                (*s, *a) == (step, attempt) && PEOPLE.contains(&&**by)
            }
            _ => false,
        })
    }

    fn begin(&mut self, p: usize, i: usize, life: &mut Life, step: StepNo, start: Start) {
        let (generation, process) = (life.setting.generation, self.processes[p].no);
        let mine = self.owners.get(&i).is_some_and(|owner| owner.epoch == life.setting.epoch);
        if self.shared && !mine && self.displaced.get(&i).is_some_and(|at| at + LEASE_MARGIN_MS < self.time) {
            // Its claim is so old that another's may be newer: it begins no body.
            life.lost.get_or_insert(Lost::Fenced);
            return;
        }
        let stored = life.log.durable().0;
        let before = ((i, generation, step), Attempt(start.attempt.0 - 1), process);
        if let Some(since) = self.doubts.get(&before)
            && start.meta.name == "wire_asking"
            && self.time < since + SETTLE_MS
            && !self.is_told_again(i, generation, step, before.1)
        {
            self.fail(format!("run {i}: step {step} is run again before its doubt has settled"));
        }
        let cell = self.cell(p, i);
        let (task, life) = (cell.task, cell.life);
        if self.control == Control::ResultBeforeBody && self.rng.one_in(6) {
            let end = Ok(BodyEnd::Ok { value: Value::encode(&super::effects::Out::Ok(5)).unwrap() });
            let body = self.outside.begun.len();
            self.tell(p, i, Input::Ended(body, end));
        }
        self.outside.begin(
            &mut self.rng,
            self.faulty,
            Begun {
                at: self.time,
                place: p,
                process,
                task,
                life,
                run: i,
                generation,
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
}

/// How long a process may believe that a run is its own after another has claimed it.
const LEASE_MARGIN_MS: Millis = 100;

/// All that a replay must bring back.
fn looks(life: &Life) -> String {
    let state = life.state();
    // Where the code is over there is none to be as it was.
    let code = if life.has_code() { life.core().looks() } else { String::new() };
    format!("{} {:?} {:?} {code}", state.len, state.steps, state.next_step)
}
