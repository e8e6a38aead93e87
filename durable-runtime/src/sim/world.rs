//! Processes over one store, their clients, and the outside: what `worker.rs` does on tokio is done here by one thread from
//! one seed. A [`Life`] is told what happened, in any order that the worker allows, and what it wants is carried out.
//!
//! [`Life`]: crate::drive::Life

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    CARRYING, Rng, Stats,
    clients::Clients,
    controls::Control,
    mix,
    outside::{Outside, ReconcileAnswer, Return, StepOf},
    process::{Input, Phase, Process},
    prog::{CARRIES, CONTROL, PEERS},
    store::{Owner, Submitted, Told},
};
use crate::{
    clock::Millis,
    drive::Now,
    effect::Start,
    fold::RunState,
    id::{Attempt, Generation, RunId, StepNo, StoreId},
    store::{Write, memory::MemoryStore},
};

/// Longest recorded value.
pub(super) const VALUE_BYTES_MAX: usize = 3_000;
/// Bodies at once, per process.
pub(super) const SLOTS: usize = 3;
/// Steps of the quiet time after which a run that has not ended never will.
const PATIENCE: u64 = 30_000;

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

/// A question to a reconcile function that is under way.
pub(super) struct Asked {
    pub(super) due: Millis,
    pub(super) place: usize,
    pub(super) process: u64,
    pub(super) life: u64,
    pub(super) step: StepOf,
    pub(super) start: Start,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) control: Control,
    pub(super) store: Arc<MemoryStore>,
    /// Two processes share the store, each with claims of its own; else one has it for itself.
    pub(super) shared: bool,
    /// All runs that anybody has spoken of.
    pub(super) ids: Vec<RunId>,
    places: HashMap<RunId, usize>,
    pub(super) processes: Vec<Process>,
    pub(super) clients: Clients,
    pub(super) outside: Outside,
    /// Requests to the store that arrive some time later, though nobody counts on it.
    pub(super) late: Vec<(Millis, Write)>,
    /// Null controls: what a dead process had submitted, and what the store held before the last batch.
    pub(super) tail: Vec<Submitted>,
    pub(super) before: Option<Arc<MemoryStore>>,
    /// What the store was told and did.
    pub(super) told: Told,
    /// Who has claimed a run last and not given it back; and when somebody else's claim was taken away.
    pub(super) owners: HashMap<usize, Owner>,
    pub(super) displaced: HashMap<usize, Millis>,
    /// When a process first saw that an attempt is in doubt.
    pub(super) doubts: HashMap<(StepOf, Attempt, u64), Millis>,
    /// Outcomes that the store did not take.
    pub(super) lost: Vec<(StepOf, Attempt)>,
    /// Runs that were cancelled without their code, though it had been told of a cancel.
    pub(super) forced: BTreeSet<usize>,
    /// How a run looked when it left memory.
    pub(super) left: HashMap<usize, (Generation, String)>,
    /// The states of the logs in the store.
    pub(super) states: HashMap<usize, (Generation, RunState)>,
    pub(super) asked: Vec<Asked>,
    /// True time.
    pub(super) time: Millis,
    /// Numbers of processes, tasks and lives.
    pub(super) numbers: u64,
    pub(super) bad: Vec<String>,
    pub(super) stats: Stats,
    pub(super) calm: u64,
    /// Faults still happen.
    pub(super) faulty: bool,
    loud: bool,
}

impl World {
    pub(super) fn new(seed: u64, control: Control) -> World {
        let mut rng = Rng(mix(seed, 42));
        let shared = rng.one_in(4);
        let mut world = World {
            control,
            store: Arc::new(MemoryStore::with_id(StoreId(seed.into()))),
            shared,
            ids: Vec::new(),
            places: HashMap::new(),
            processes: Vec::new(),
            clients: Clients::default(),
            outside: Outside::default(),
            late: Vec::new(),
            tail: Vec::new(),
            before: None,
            told: Told::default(),
            owners: HashMap::new(),
            displaced: HashMap::new(),
            doubts: HashMap::new(),
            lost: Vec::new(),
            forced: BTreeSet::new(),
            left: HashMap::new(),
            states: HashMap::new(),
            asked: Vec::new(),
            time: 1_000,
            numbers: 0,
            bad: Vec::new(),
            stats: Stats::default(),
            calm: 1 + rng.below(6),
            faulty: true,
            loud: std::env::var("SIM_SEED").is_ok(),
            rng,
        };
        CONTROL.set(control);
        CARRIES.set(seed >= CARRYING);
        for run in 0..PEERS {
            world.place(&RunId::new(format!("run/{run}")).unwrap());
        }
        for _ in 0..1 + usize::from(shared) {
            let no = world.number();
            let process = Process::new(no, &mut world.rng, world.time, control);
            world.processes.push(process);
        }
        let peers = 1 + world.rng.below(3) as usize;
        (0..peers).for_each(|run| world.call_start(run));
        world
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The number of a run here.
    pub(super) fn place(&mut self, id: &RunId) -> usize {
        if let Some(place) = self.places.get(id) {
            return *place;
        }
        self.ids.push(id.clone());
        self.places.insert(id.clone(), self.ids.len() - 1);
        self.ids.len() - 1
    }

    pub(super) fn now(&self, p: usize) -> Now {
        let process = &self.processes[p];
        let wall = self.time + process.wall_ahead;
        let monotonic = match self.control {
            Control::WallAsMonotonic => wall,
            _ => self.time - process.monotonic_from,
        };
        Now { wall, monotonic }
    }

    /// Says what happens, where one seed is looked at.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.loud {
            println!("{:6} {}", self.time, what());
        }
    }

    pub(super) fn fail(&mut self, what: impl Into<String>) {
        if self.bad.len() < 12 {
            self.bad.push(what.into());
        }
    }

    /// Lets the world go on until all is over.
    pub(super) fn run(mut self) -> World {
        let chaos = 150 + self.rng.below(900);
        let mut turn = 0;
        while self.bad.is_empty() {
            turn += 1;
            let faults = turn < chaos;
            self.faulty = faults;
            if turn == chaos {
                self.calm_down();
            }
            if !faults && self.is_over() {
                break;
            }
            if turn > chaos + PATIENCE {
                self.never_ends("has not ended in time");
                break;
            }
            for Return { body, end } in self.outside.happen(&mut self.rng, self.time) {
                self.stats.bodies += 1;
                if self.control == Control::EndsLost && self.rng.one_in(12) {
                    continue;
                }
                self.body_returns(body, end);
            }
            self.reconcile();
            self.arrive_late();
            if faults {
                self.faults();
            }
            let acted = self.act();
            if self.rng.one_in(4) || !acted {
                self.clients(!acted && !faults);
            }
            self.check_nothing_is_forgotten();
            self.check_slots_are_kept();
            if acted || self.processes.iter().any(|process| !process.writes.is_empty()) {
                self.time += self.rng.below(3) / 2;
            } else if !self.wait(faults) && !self.is_over() {
                self.never_ends("waits for nothing");
                break;
            }
        }
        self
    }

    fn is_over(&mut self) -> bool {
        self.clients.is_idle() && self.outside.due().is_none() && self.late.is_empty() && !self.is_any_live()
    }

    fn never_ends(&mut self, how: &str) {
        let live = self.live();
        for (i, record) in live {
            let mut whats = Vec::new();
            for process in &self.processes {
                let free = process.slots.0.load(Ordering::Relaxed);
                let what = match process.cells.get(&i).map(|cell| (cell, &cell.phase)) {
                    None => format!("not in memory, asleep {:?}", process.asleep.get(&i).map(|asleep| asleep.due)),
                    Some((cell, Phase::Live(life))) => format!(
                        "live: due {:?}, wait {:?}, trouble {:?}, settled {}, reading {:?}, code {}, ending {:?}, steps {:?}",
                        life.due(),
                        life.wait(),
                        life.log.trouble(),
                        life.log.is_settled(),
                        cell.reading,
                        life.has_code(),
                        life.state().ending.is_some(),
                        life.state().steps
                    ),
                    Some((_, phase)) => phase.name().to_owned(),
                };
                whats.push(format!("{free} free slots, {what}"));
            }
            let (wait, version) = (record.wait, record.version);
            self.fail(format!("run {i} {how}: wait {wait:?} version {version}: {}", whats.join("; ")));
        }
        if self.bad.is_empty() {
            self.fail(format!("the world {how}: {} calls of clients", self.clients.open()));
        }
    }

    /// Passes time until something can happen; false if nothing ever will.
    fn wait(&mut self, faults: bool) -> bool {
        let time = self.time;
        let mut due: Vec<Millis> = self.outside.due().into_iter().collect();
        due.extend(self.asked.iter().map(|asked| asked.due));
        due.extend(self.late.iter().map(|(at, _)| *at));
        due.extend(self.clients.due());
        if self.shared {
            // Until then nobody says that a body may run again.
            due.extend(self.displaced.values().map(|at| at + 151).filter(|at| *at > time));
        }
        for p in 0..self.processes.len() {
            let (now, process) = (self.now(p), &self.processes[p]);
            due.extend(process.shutdown_until);
            if process.up_at > time {
                due.push(process.up_at);
            }
            let mut at = |(monotonic, wall): (Option<Millis>, Option<Millis>)| {
                due.extend(monotonic.map(|at| time.saturating_add(at.saturating_sub(now.monotonic))));
                due.extend(wall.map(|at| time.saturating_add(at.saturating_sub(now.wall))));
            };
            process.asleep.values().for_each(|asleep| at(asleep.due));
            for cell in process.cells.values() {
                match &cell.phase {
                    Phase::Live(_) => at(cell.armed),
                    Phase::Parked(until) => at((Some(now.monotonic + until.saturating_sub(time)), None)),
                    _ => {}
                }
            }
            if self.shared {
                // What another process has left is found by looking.
                at((None, self.due_in_store(p)));
            }
        }
        // Who waits for the end of time waits for nothing.
        let Some(next) = due.into_iter().filter(|at| *at < Millis::MAX / 2).min() else { return faults };
        self.time = next.max(time + 1);
        true
    }

    // ---- what can happen ----

    fn act(&mut self) -> bool {
        let mut ready: Vec<Ready> = Vec::new();
        for p in 0..self.processes.len() {
            self.wake_sleepers(p);
            let now = self.now(p);
            let process = &self.processes[p];
            if process.up_at > self.time {
                continue;
            }
            let shutting = process.shutdown_until.is_some();
            if !process.opened {
                ready.push(Ready::Open(p));
                continue;
            }
            let free = process.slots.0.load(Ordering::Relaxed) > 0;
            for (i, cell) in &process.cells {
                let is_ready = match &cell.phase {
                    Phase::Live(_) => {
                        cell.woken
                            || !cell.inbox.is_empty()
                            || (cell.wants_slot && free)
                            || shutting
                            || cell.armed.0.is_some_and(|at| at <= now.monotonic)
                            || cell.armed.1.is_some_and(|at| at <= now.wall)
                    }
                    Phase::Closing(..) => cell.woken || !cell.inbox.is_empty(),
                    Phase::Waiting(_) => shutting || !process.writes.iter().any(|write| write.run == *i),
                    Phase::Parked(until) => !cell.inbox.is_empty() || *until <= self.time || shutting,
                    Phase::Busy => unreachable!("nobody works now"),
                };
                if is_ready {
                    ready.push(Ready::Work(p, *i));
                }
            }
            if !process.nudges.is_empty() && !shutting {
                ready.push(Ready::Nudge(p));
            }
            if !process.writes.is_empty() {
                ready.extend([Ready::Write(p), Ready::Write(p)]);
            }
            if self.can_go_down(p) {
                ready.push(Ready::Down(p));
            }
        }
        if self.shared && (ready.is_empty() || self.rng.one_in(10)) {
            let mut looked = false;
            for p in 0..self.processes.len() {
                looked |= self.poll(p);
            }
            if looked && ready.is_empty() {
                return true;
            }
        }
        if ready.is_empty() {
            return false;
        }
        let choice = self.rng.below(ready.len() as u64) as usize;
        self.say(|| format!("{ready:?}"));
        match ready[choice] {
            Ready::Work(p, i) => self.work(p, i),
            Ready::Write(p) => self.write(p),
            Ready::Nudge(p) => self.next_nudge(p),
            Ready::Open(p) => self.open(p),
            Ready::Down(p) => self.down(p),
        }
        true
    }

    fn reconcile(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        for asked in asked {
            if self.processes[asked.place].no != asked.process {
                continue;
            }
            if asked.due > self.time {
                self.asked.push(asked);
                continue;
            }
            let lies = self.control == Control::ReconcileLies;
            let answer: ReconcileAnswer = self.outside.reconcile(&mut self.rng, lies, asked.step, &asked.start);
            let (run, _, step): (usize, Generation, StepNo) = asked.step;
            self.tell(asked.place, run, Input::Reconciled(asked.life, step, asked.start.attempt, answer));
        }
    }

    /// The state of a run's newest log as it is in the store.
    pub(super) fn durable_state(&mut self, i: usize) -> Option<(Generation, RunState)> {
        super::store::durable_state(&*self.store, &self.ids[i], self.states.entry(i).or_default())
    }

    pub(super) fn show(&self) {
        for (i, id) in self.ids.iter().enumerate() {
            for (generation, log) in super::log::Stored::all(&*self.store, id).iter().enumerate() {
                println!("== run {i} {id} log {generation}\n{}", log.show());
            }
        }
        for (n, b) in self.outside.begun.iter().enumerate() {
            let landed: Vec<_> = self.outside.landed.iter().filter(|(_, i, _)| *i == n).map(|(at, ..)| *at).collect();
            println!(
                "at {} process {} run {} log {} step {} attempt {} {} no {} landed {landed:?} {:?}",
                b.at, b.process, b.run, b.generation, b.step, b.start.attempt, b.start.meta.name, b.no, b.end
            );
        }
    }
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Work(usize, usize),
    Write(usize),
    Nudge(usize),
    Open(usize),
    Down(usize),
}

/// Runs of the store that have not ended.
impl World {
    pub(super) fn live(&mut self) -> BTreeMap<usize, crate::store::RunRecord> {
        use crate::store::Store;
        let live = self.store.runs(Some(true), None, usize::MAX).unwrap();
        live.into_iter().map(|(id, record)| (self.place(&id), record)).collect()
    }

    fn is_any_live(&self) -> bool {
        use crate::store::Store;
        !self.store.runs(Some(true), None, 1).unwrap().is_empty()
    }
}
