//! One process at a time, its store, and the faults: what `worker.rs` does on tokio is done here by one thread from one
//! seed. A [`Life`] is told what happened, in any order that the worker allows, and what it wants is carried out.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Bytes, BytesMut};

use super::{
    Rng, Stats,
    controls::{Control, doctored},
    effects::{Out, TIMEOUT_MS},
    log::Stored,
    mix,
    outside::{Begun, Ended, Outside, ReconcileAnswer, Return},
    prog::{CONTROL, IMPURE, PANICS, WORKFLOW, start},
};
use crate::{
    clock::Millis,
    core::Stop,
    drive::{Life, Now, Opened, Output, Setting},
    effect::{BodyEnd, Start},
    entry::{Entry, EscapedName, Kind, RunStarted},
    head::HeadInfo,
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    log::{BatchNo, Lost, read_frames},
    mailbox::Message,
    store::{Row, Store, StoreError, Write, Written, memory::MemoryStore},
    value::Value,
};

/// Longest recorded value.
pub(super) const VALUE_BYTES_MAX: usize = 3_000;
/// Bodies at once.
pub(super) const SLOTS: usize = 3;
pub(super) const GENERATION: Generation = Generation(0);
/// Steps of the quiet time after which a run that has not ended never will.
const PATIENCE: u64 = 20_000;

/// The limit on bodies.
pub(super) struct Slots(pub(super) AtomicUsize);

impl crate::drive::Slots for Slots {
    fn try_take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    fn give(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Null control: no limit.
struct NoSlots;

impl crate::drive::Slots for NoSlots {
    fn try_take(&self) -> bool {
        true
    }

    fn give(&self) {}
}

/// What a run is told.
enum Input {
    Written(u64, BatchNo, Result<Written, StoreError>),
    ReadBack(u64, Result<Bytes, StoreError>),
    Ended(u64, StepNo, Attempt, Ended),
    Reconciled(u64, StepNo, Attempt, ReconcileAnswer),
    Row(Row),
}

/// Where a run stands in the process.
pub(super) enum Phase {
    /// To be opened.
    Waiting,
    Live(Box<Life>),
    /// It writes what is left to write.
    Closing(Box<Life>, Box<Phase>),
    Parked(Millis),
    Ended,
    /// The process is shutting down, or down.
    Gone,
}

pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) phase: Phase,
    inbox: VecDeque<Input>,
    life: u64,
    /// Created by this process and not opened yet.
    fresh: bool,
    /// Length of the log when this life began.
    pub(super) opened: Seq,
    woken: bool,
    wants_slot: bool,
    armed: (Option<Millis>, Option<Millis>),
    /// How often its process died while it was there, or its code panicked.
    pub(super) lives: u32,
}

impl Run {
    pub(super) fn is_told_all(&self) -> bool {
        self.inbox.is_empty()
    }

    /// What was in memory is gone.
    pub(super) fn process_died(&mut self) {
        self.inbox.clear();
        self.fresh = false;
        self.lives += 1;
        if !matches!(self.phase, Phase::Ended) {
            self.phase = Phase::Waiting;
        }
    }
}

pub(super) struct Submitted {
    pub(super) run: usize,
    pub(super) life: u64,
    pub(super) no: Option<BatchNo>,
    pub(super) write: Write,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) control: Control,
    pub(super) store: Arc<MemoryStore>,
    /// In the order submitted, not applied yet.
    pub(super) writes: VecDeque<Submitted>,
    /// Null controls: what a dead process had submitted, and what the store held before the last batch.
    pub(super) tail: Vec<Submitted>,
    pub(super) before: Option<Arc<MemoryStore>>,
    pub(super) outside: Outside,
    pub(super) runs: Vec<Run>,
    slots: Arc<dyn crate::drive::Slots>,
    pub(super) free: Arc<Slots>,
    /// True time.
    pub(super) time: Millis,
    pub(super) monotonic_from: Millis,
    pub(super) wall_ahead: Millis,
    pub(super) process: u64,
    pub(super) up_at: Millis,
    pub(super) shutdown_until: Option<Millis>,
    pub(super) refuses_until: Millis,
    pub(super) answers: Vec<(Millis, usize, u64, StepNo, Start)>,
    pub(super) bad: Vec<String>,
    pub(super) stats: Stats,
    pub(super) calm: u64,
    /// Faults still happen.
    faulty: bool,
}

impl World {
    pub(super) fn new(seed: u64, control: Control) -> World {
        let mut rng = Rng(mix(seed, 42));
        let free = Arc::new(Slots(AtomicUsize::new(SLOTS)));
        let mut world = World {
            control,
            store: Arc::new(MemoryStore::new()),
            writes: VecDeque::new(),
            tail: Vec::new(),
            before: None,
            outside: Outside::default(),
            runs: Vec::new(),
            slots: free.clone(),
            free,
            time: 1_000,
            monotonic_from: 0,
            wall_ahead: 1_000_000,
            process: 1,
            up_at: 0,
            shutdown_until: None,
            refuses_until: 0,
            answers: Vec::new(),
            bad: Vec::new(),
            stats: Stats::default(),
            calm: 1 + rng.below(6),
            faulty: true,
            rng,
        };
        if control == Control::NoSlots {
            world.slots = Arc::new(NoSlots);
        }
        CONTROL.set(control);
        for _ in 0..1 + world.rng.below(3) {
            world.create();
        }
        world
    }

    pub(super) fn create(&mut self) {
        let i = self.runs.len();
        let id = RunId::new(format!("run/{i}")).unwrap();
        let call = start(self.rng.next(), 2, 11);
        let (args, digest) = call.args.unwrap();
        let at = self.now().wall;
        let started = RunStarted {
            workflow: WORKFLOW.name.into(),
            module: WORKFLOW.module.into(),
            explicit_name: true,
            args: args.value().as_bytes().to_vec().into(),
            digest,
            build: "sim".into(),
            seed: u128::from(self.rng.next()),
        };
        let mut frames = BytesMut::new();
        Entry { at, kind: Kind::RunStarted(started) }.write(&mut frames).unwrap();
        let head = HeadInfo {
            workflow: WORKFLOW.name.into(),
            module: WORKFLOW.module.into(),
            started_at: at,
            ended_at: None,
            failure: None,
        };
        let create = Write::Create { run: id.clone(), count: 1, frames: frames.freeze(), head: head.head(GENERATION) };
        self.apply(create).unwrap();
        self.runs.push(Run {
            id,
            phase: Phase::Waiting,
            inbox: VecDeque::new(),
            life: 0,
            fresh: true,
            opened: Seq(0),
            woken: false,
            wants_slot: false,
            armed: (None, None),
            lives: 1,
        });
    }

    pub(super) fn now(&self) -> Now {
        let monotonic = match self.control {
            Control::WallAsMonotonic => self.time + self.wall_ahead,
            _ => self.time - self.monotonic_from,
        };
        Now { wall: self.time + self.wall_ahead, monotonic }
    }

    pub(super) fn fail(&mut self, what: impl Into<String>) {
        if self.bad.len() < 12 {
            self.bad.push(what.into());
        }
    }

    /// Lets the world go on until all is over.
    pub(super) fn run(mut self) -> World {
        let chaos = 100 + self.rng.below(500);
        let mut turn = 0;
        while self.bad.is_empty() {
            turn += 1;
            let faults = turn < chaos;
            self.faulty = faults;
            if turn == chaos {
                self.refuses_until = 0;
            }
            if !faults && self.is_over() {
                break;
            }
            if turn > chaos + PATIENCE {
                self.never_ends("has not ended in time");
                break;
            }
            for Return { run, life, step, attempt, end } in self.outside.happen(&mut self.rng, self.time) {
                self.stats.bodies += 1;
                if self.control == Control::EndsLost && self.rng.one_in(12) {
                    continue;
                }
                self.tell(run, Input::Ended(life, step, attempt, end));
            }
            self.reconcile();
            if faults {
                self.faults();
            }
            let acted = self.act(faults);
            if self.rng.one_in(3) || !acted {
                self.person(!acted && !faults);
            }
            if acted {
                self.time += self.rng.below(3) / 2;
            } else if !self.wait(faults) {
                self.never_ends("waits for nothing");
                break;
            }
        }
        self
    }

    fn is_over(&self) -> bool {
        self.runs.iter().all(|run| matches!(run.phase, Phase::Ended)) && self.outside.due().is_none()
    }

    fn never_ends(&mut self, how: &str) {
        for i in 0..self.runs.len() {
            let what = match &self.runs[i].phase {
                Phase::Ended => continue,
                Phase::Live(life) => format!(
                    "live: due {:?}, trouble {:?}, settled {}, steps {:?}",
                    life.due(),
                    life.log.trouble(),
                    life.log.is_settled(),
                    life.state().steps
                ),
                Phase::Closing(..) => "closing".to_owned(),
                Phase::Waiting => "waiting".to_owned(),
                Phase::Parked(_) => "parked".to_owned(),
                Phase::Gone => "gone".to_owned(),
            };
            let free = self.free.0.load(Ordering::Relaxed);
            self.fail(format!("run {i} {how}: {free} free slots, {what}"));
        }
    }

    /// Passes time until something can happen; false if nothing ever will.
    fn wait(&mut self, faults: bool) -> bool {
        let (now, time) = (self.now(), self.time);
        let mut due: Vec<Millis> = self.outside.due().into_iter().collect();
        due.extend(self.answers.iter().map(|(at, ..)| *at));
        due.extend(self.shutdown_until);
        if self.up_at > time {
            due.push(self.up_at);
        }
        for run in &self.runs {
            match &run.phase {
                Phase::Live(_) => {
                    due.extend(run.armed.0.map(|at| time.saturating_add(at.saturating_sub(now.monotonic))));
                    due.extend(run.armed.1.map(|at| time.saturating_add(at.saturating_sub(now.wall))));
                }
                Phase::Parked(until) => due.push(*until),
                _ => {}
            }
        }
        // Who waits for the end of time waits for nothing.
        let Some(next) = due.into_iter().filter(|at| *at < Millis::MAX / 2).min() else { return faults };
        self.time = next.max(time + 1);
        true
    }

    // ---- what can happen ----

    fn act(&mut self, faults: bool) -> bool {
        let up = self.up_at <= self.time;
        let now = self.now();
        let free = self.free.0.load(Ordering::Relaxed) > 0 || self.control == Control::NoSlots;
        let mut ready: Vec<usize> = Vec::new();
        for (i, run) in self.runs.iter().enumerate() {
            let is_ready = match &run.phase {
                Phase::Live(_) => {
                    run.woken
                        || !run.inbox.is_empty()
                        || (run.wants_slot && free)
                        || self.shutdown_until.is_some()
                        || run.armed.0.is_some_and(|at| at <= now.monotonic)
                        || run.armed.1.is_some_and(|at| at <= now.wall)
                }
                Phase::Closing(..) => run.woken || !run.inbox.is_empty(),
                Phase::Waiting => {
                    up && self.shutdown_until.is_none() && !self.writes.iter().any(|write| write.run == i)
                }
                Phase::Parked(until) => {
                    !run.inbox.is_empty() || *until <= self.time || self.shutdown_until.is_some()
                }
                Phase::Ended | Phase::Gone => !run.inbox.is_empty(),
            };
            if is_ready {
                ready.push(i);
            }
        }
        let stores = usize::from(!self.writes.is_empty()) * 2;
        let downs = usize::from(self.can_go_down());
        let n = ready.len() + stores + downs;
        if n == 0 {
            return false;
        }
        let choice = self.rng.below(n as u64) as usize;
        match ready.get(choice) {
            Some(i) => self.work(*i, faults),
            None if choice < ready.len() + stores => self.write(faults),
            None => self.down(),
        }
        true
    }

    fn work(&mut self, i: usize, faults: bool) {
        self.runs[i].woken = false;
        match std::mem::replace(&mut self.runs[i].phase, Phase::Gone) {
            Phase::Waiting => self.open(i, faults),
            Phase::Live(life) => self.go_on(i, life, faults),
            Phase::Closing(life, next) => self.close_on(i, life, *next),
            Phase::Parked(until) => {
                self.take_late(i);
                self.runs[i].phase = match until <= self.time {
                    _ if self.shutdown_until.is_some() => Phase::Gone,
                    true => Phase::Waiting,
                    false => Phase::Parked(until),
                };
            }
            phase => {
                self.take_late(i);
                self.runs[i].phase = phase;
            }
        }
    }

    fn open(&mut self, i: usize, faults: bool) {
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
        PANICS.set(faults && self.rng.one_in(40));
        let opened = life.replay(self.now(), &|_| Some(&WORKFLOW));
        let panicked = !PANICS.replace(false);
        self.stats.lives += 1;
        match opened {
            Opened::Live => {
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

    fn go_on(&mut self, i: usize, mut life: Box<Life>, faults: bool) {
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

    fn take_inputs(&mut self, i: usize, life: &mut Life) {
        let now = self.now();
        life.now = now;
        for input in std::mem::take(&mut self.runs[i].inbox) {
            let mine = self.runs[i].life;
            match input {
                Input::Written(life_no, no, result) if life_no == mine => life.written(no, result, now),
                Input::ReadBack(life_no, stored) if life_no == mine => life.read_back(stored, now),
                Input::Ended(life_no, step, attempt, end) if life_no == mine => life.ended(step, attempt, end),
                Input::Ended(_, step, attempt, Ok(end)) => self.put_outcome(i, step, attempt, end),
                Input::Reconciled(life_no, step, attempt, answer) if life_no == mine => {
                    life.reconciled(step, attempt, answer, now);
                }
                Input::Row(row) => life.rows.push_back(row),
                _ => {}
            }
        }
    }

    fn take_late(&mut self, i: usize) {
        for input in std::mem::take(&mut self.runs[i].inbox) {
            if let Input::Ended(_, step, attempt, Ok(end)) = input
                && !matches!(self.runs[i].phase, Phase::Ended)
            {
                self.put_outcome(i, step, attempt, end);
            }
        }
    }

    fn put_outcome(&mut self, i: usize, step: StepNo, attempt: Attempt, end: BodyEnd) {
        self.stats.outcome_rows += 1;
        let step = if self.control == Control::RowsOfOtherSteps { StepNo(step.0 + 1) } else { step };
        if self.control == Control::ShutdownAppends {
            return self.append_outcome(i, step, attempt, &end);
        }
        let row = Message::Outcome { generation: GENERATION, step, attempt, end }.row();
        let write = Write::Put { run: self.runs[i].id.clone(), row };
        self.submit(i, None, write);
    }

    pub(super) fn submit(&mut self, run: usize, no: Option<BatchNo>, write: Write) {
        let life = self.runs[run].life;
        if let (Control::NoBarrier, Some(no)) = (self.control, no) {
            self.tell(run, Input::Written(life, no, Ok(Written::Done)));
        }
        self.writes.push_back(Submitted { run, life, no, write });
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
                Output::Abort(step, attempt) => self.outside.abort(i, life_no, step, attempt),
                Output::Unwanted(step, _) => {
                    self.outside.unwanted(&mut self.rng, self.time, i, life_no, step);
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
        if self.control == Control::ResultBeforeBody && self.rng.one_in(6) {
            let end = Ok(BodyEnd::Ok { value: Value::encode(&Out::Ok(5)).unwrap() });
            self.tell(i, Input::Ended(life, step, start.attempt, end));
        }
        self.outside.begin(&mut self.rng, self.faulty, Begun {
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
        });
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

    fn tell(&mut self, i: usize, input: Input) {
        self.runs[i].inbox.push_back(input);
    }

    /// The life is over, and bodies may still be under way.
    fn close(&mut self, i: usize, mut life: Box<Life>, next: Phase) {
        life.drop_code();
        life.now = self.now();
        if !life.is_over() && self.control != Control::ShutdownForgets {
            life.drain();
        }
        self.perform(i, &mut life, false);
        self.close_on(i, life, next);
    }

    fn close_on(&mut self, i: usize, mut life: Box<Life>, next: Phase) {
        self.take_inputs(i, &mut life);
        self.perform(i, &mut life, false);
        if !life.log.is_settled() && life.lost.is_none() && life.log.trouble().is_none() {
            self.runs[i].phase = Phase::Closing(life, Box::new(next));
            return;
        }
        let settled = life.log.is_settled();
        for (step, attempt, end) in life.unsaid() {
            self.put_outcome(i, step, attempt, end);
        }
        if let Some(Lost::Rejected { reason, .. }) = &life.lost {
            for (step, attempt) in life.log.unwritten_outcomes() {
                self.put_outcome(i, step, attempt, BodyEnd::NotRecordable { reason: reason.to_string() });
            }
        }
        let (run, epoch) = (self.runs[i].id.clone(), life.setting.epoch);
        self.submit(i, None, Write::Release { run, epoch });
        if settled && !matches!(next, Phase::Ended) {
            self.check_drained(i);
        }
        self.runs[i].phase = next;
    }

    fn reconcile(&mut self) {
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
