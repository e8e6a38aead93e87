//! One process at a time, its store, and the faults: what `worker.rs` does on tokio is done here by one thread from one
//! seed. A [`Life`] is told what happened, in any order that the worker allows, and what it wants is carried out.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Bytes, BytesMut};

use super::{
    Rng, Stats,
    controls::Control,
    mix,
    outside::{Ended, Outside, ReconcileAnswer, Return},
    prog::{CONTROL, WORKFLOW, start},
};
use crate::{
    clock::Millis,
    drive::{Life, Now},
    effect::Start,
    entry::{Entry, Kind, RunStarted},
    head::HeadInfo,
    id::{Attempt, Generation, RunId, Seq, StepNo},
    log::BatchNo,
    store::{Row, StoreError, Write, Written, memory::MemoryStore},
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
pub(super) enum Input {
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
    pub(super) inbox: VecDeque<Input>,
    pub(super) life: u64,
    /// Created by this process and not opened yet.
    pub(super) fresh: bool,
    /// Length of the log when this life began.
    pub(super) opened: Seq,
    pub(super) woken: bool,
    pub(super) wants_slot: bool,
    pub(super) armed: (Option<Millis>, Option<Millis>),
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
    /// A body holds a slot until this is done.
    pub(super) slot: bool,
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
    /// When a process first saw that an attempt is in doubt.
    pub(super) doubts: HashMap<(usize, StepNo, Attempt, u64), Millis>,
    /// Outcomes that the store did not take.
    pub(super) lost: Vec<(usize, StepNo, Attempt)>,
    pub(super) outside: Outside,
    pub(super) runs: Vec<Run>,
    pub(super) slots: Arc<dyn crate::drive::Slots>,
    pub(super) free: Arc<Slots>,
    /// True time.
    pub(super) time: Millis,
    pub(super) monotonic_from: Millis,
    pub(super) wall_ahead: Millis,
    pub(super) process: u64,
    pub(super) up_at: Millis,
    pub(super) shutdown_until: Option<Millis>,
    pub(super) refuses_until: Millis,
    /// The store writes nothing any more in this process.
    pub(super) poisoned: bool,
    pub(super) answers: Vec<(Millis, usize, u64, StepNo, Start)>,
    pub(super) bad: Vec<String>,
    pub(super) stats: Stats,
    pub(super) calm: u64,
    /// Faults still happen.
    pub(super) faulty: bool,
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
            doubts: HashMap::new(),
            lost: Vec::new(),
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
            poisoned: false,
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
        let depth = if self.rng.one_in(8) { 3 } else { 2 };
        let call = start(self.rng.next(), depth, 11);
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
                if self.poisoned {
                    self.crash();
                }
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
            if acted || !self.writes.is_empty() {
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
                Phase::Parked(until) => !run.inbox.is_empty() || *until <= self.time || self.shutdown_until.is_some(),
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
}
