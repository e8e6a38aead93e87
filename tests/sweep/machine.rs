//! A machine on which one process after the other works at the same run, each until it dies or the run has ended.

use std::{
    pin::pin,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use durable::{AnyRun, Clock, Resolution, Runtime, Status, TestClock, WorkflowCall, store::Store};

use crate::{
    common::{
        check::{self, Logs, Shown},
        ledger::{MemoryLedger, World},
        replay,
        rng::Rng,
    },
    crash::CrashStore,
    disk::{Broken, Death, Disk},
};

/// The run that all is about.
pub(crate) const RUN: &str = "run";
/// No life takes that long, unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);
/// Polls of other tasks after which a process that did nothing waits for something.
const QUIET: usize = 24;

/// The workflow that a machine is to run, and what it returns.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) call: fn() -> WorkflowCall<durable::Result<String>>,
    pub(crate) output: fn() -> String,
    /// Bodies at a time; one lingers beside another.
    pub(crate) slots: usize,
}

/// How a life went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Died,
    Returned(String),
    /// What must not happen.
    Wrong(String),
}

pub(crate) struct Machine {
    job: Job,
    broken: Broken,
    rng: Rng,
    pub(crate) ledger: MemoryLedger,
    shown: Arc<Mutex<Shown>>,
    /// Submitted and synced in the last life.
    pub(crate) counts: (u64, u64),
    wall: u64,
    image: Option<CrashStore>,
    /// Whether somebody looks at the run all the time.
    pub(crate) curious: bool,
}

impl Machine {
    pub(crate) fn new(job: Job, broken: Broken, seed: u64) -> Machine {
        Machine {
            job,
            broken,
            rng: Rng::new(seed),
            ledger: MemoryLedger::default(),
            shown: Arc::default(),
            counts: (0, 0),
            wall: 1_700_000_000_000,
            image: Some(CrashStore::new()),
            curious: false,
        }
    }

    /// One process, from its start to its death, or until the run has ended.
    pub(crate) fn live(&mut self, death: Death) -> Fate {
        let disk = Disk::new(self.image.take().unwrap(), death, self.broken);
        let (ledger, dead) = self.ledger.of_a_process();
        let clock = TestClock::at(Duration::from_millis(self.wall));
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let process = Process {
            job: self.job,
            disk: disk.clone(),
            clock: clock.clone(),
            world: World::new(ledger),
            shown: self.shown.clone(),
            curious: self.curious,
        };
        let mut rng = self.rng.clone();
        let fate = threads.block_on(async {
            tokio::select! {
                biased;
                () = serve(&disk, death, &mut rng) => Fate::Died,
                fate = process.work() => fate,
                () = tokio::time::sleep(DEADLINE) => {
                    Fate::Wrong(format!("it hangs: {} writes, ledger {:#?}", disk.store.writes(), self.ledger.lines()))
                }
            }
        });
        // Whatever of the dead process still runs reaches nobody.
        dead.store(true, Ordering::SeqCst);
        drop(threads);
        self.rng = rng;
        self.counts = (disk.store.writes(), disk.store.syncs());
        self.wall = clock.wall() + 5;
        self.image = Some(disk.after());
        fate
    }

    /// Lives that die so, then one that does not: what is wrong in the end, and after each death.
    pub(crate) fn lives(&mut self, deaths: &[Death]) -> Vec<String> {
        for death in deaths {
            let fate = self.live(*death);
            if let Fate::Wrong(what) = fate {
                return vec![what];
            }
            let wrong = self.afterwards();
            if !wrong.is_empty() {
                return wrong;
            }
            if fate != Fate::Died {
                // The run was over before.
                break;
            }
        }
        // Somebody has mended the disk.
        self.broken = Broken::No;
        match self.live(Death::Never) {
            Fate::Returned(output) if output == (self.job.output)() => self.in_the_end(),
            Fate::Returned(output) => vec![format!("it returned {output:?}")],
            other => vec![format!("{other:?}")],
        }
    }

    /// A copy of what the next process would find.
    pub(crate) fn image(&mut self) -> Arc<dyn Store> {
        let image = self.image.take().unwrap();
        // An image that was copied by a crash is dead; its copy is not.
        let (copy, next) = (image.crash(0), image.crash(0));
        self.image = Some(next);
        Arc::new(copy)
    }

    /// The log in it, as the library shows it.
    pub(crate) fn log(&mut self) -> Vec<serde_json::Value> {
        let image = self.image();
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        threads.block_on(replay::log_in(image, RUN))
    }

    /// What was shown, and what bodies did, is in what the dead process left.
    fn afterwards(&mut self) -> Vec<String> {
        let rows = self.image().rows(&durable::RunId::new(RUN).unwrap()).unwrap().len();
        let log = self.log();
        let mut wrong = check::shown(RUN, &self.shown.lock().unwrap(), &log, rows);
        if !log.is_empty() {
            wrong.extend(check::log(RUN, &log, false));
        }
        wrong.extend(check::ledger(&self.ledger.lines(), &Logs::from([(RUN.to_owned(), log)]), 0));
        wrong
    }

    fn in_the_end(&mut self) -> Vec<String> {
        let image = self.image();
        let log = self.log();
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut wrong = check::log(RUN, &log, true);
        wrong.extend(check::shown(RUN, &self.shown.lock().unwrap(), &log, 0));
        wrong.extend(check::ledger(&self.ledger.lines(), &Logs::from([(RUN.to_owned(), log)]), 0));
        wrong.extend(threads.block_on(replay::replays(&*image, RUN)).err());
        wrong
    }
}

/// Writes and syncs in groups, each a while after something was submitted, until the process dies.
async fn serve(disk: &Disk, death: Death, rng: &mut Rng) {
    let mut a_while = async || {
        let others = if matches!(death, Death::PowerLoss { .. }) { rng.below(30) } else { 2 };
        for _ in 0..others {
            tokio::task::yield_now().await;
        }
    };
    loop {
        disk.activity.notified().await;
        loop {
            a_while().await;
            disk.apply();
            a_while().await;
            if !disk.sync() {
                return;
            }
            if !disk.is_queued() {
                break;
            }
        }
    }
}

/// Looks at the run again and again, whatever it is doing.
async fn watch(run: AnyRun, shown: Arc<Mutex<Shown>>) {
    for look in 0_u64.. {
        let Ok(status) = run.status().await else { return };
        shown.lock().unwrap().ended |= status.is_terminal();
        if let Status::Held { steps } = &status {
            shown.lock().unwrap().held.extend(steps.iter().map(|step| u64::from(step.0)));
        }
        // A log takes longer to put into words than the run takes to go on.
        if look % 8 == 0 {
            let Ok(log) = run.log().await else { return };
            let mut shown = shown.lock().unwrap();
            if log.len() > shown.log.len() {
                shown.log = log.iter().map(durable::LogEntry::to_json).collect();
            }
        }
    }
}

/// What one process does.
struct Process {
    job: Job,
    disk: Arc<Disk>,
    clock: TestClock,
    world: World,
    shown: Arc<Mutex<Shown>>,
    curious: bool,
}

impl Process {
    async fn work(&self) -> Fate {
        self.work_on().await.unwrap_or_else(|e| Fate::Wrong(format!("{e:?}")))
    }

    async fn work_on(&self) -> Result<Fate, durable::Error> {
        let builder = Runtime::builder().resource(self.world.clone()).clock(self.clock.clone());
        let builder = builder.bodies_at_once(self.job.slots);
        // Nobody waits long for a body that nobody wants.
        let builder = builder.unwanted_grace(Duration::from_secs(1));
        let runtime = builder.open_store(self.disk.clone()).await?;
        tokio::select! {
            fate = self.go_on(&runtime) => fate,
            () = self.disk.leave.notified() => {
                let patient = matches!(self.disk.death, Death::Shutdown { patient: true, .. });
                let grace = if patient { DEADLINE } else { Duration::ZERO };
                runtime.shutdown(grace).await?;
                Ok(Fate::Died)
            }
        }
    }

    async fn go_on(&self, runtime: &Runtime) -> Result<Fate, durable::Error> {
        let run = runtime.start(RUN, (self.job.call)()).await?;
        self.shown.lock().unwrap().started = true;
        if self.curious {
            tokio::spawn(watch((*run).clone(), self.shown.clone()));
        }
        let mut output = pin!(run.output());
        loop {
            self.quiet().await;
            let status = run.status().await?;
            self.shown.lock().unwrap().ended |= status.is_terminal();
            tokio::select! {
                biased;
                output = &mut output => {
                    let output = output?;
                    self.shown.lock().unwrap().output = Some(output.clone());
                    return Ok(Fate::Returned(output));
                }
                () = std::future::ready(()) => {}
            }
            match status {
                Status::Parked(_) => return Ok(Fate::Wrong(format!("{status:?}"))),
                Status::Sleeping { until: at } | Status::Retrying { at, .. } => self.pass_until(at),
                Status::Held { .. } => self.resolve(runtime).await,
                Status::Opening => tokio::time::sleep(Duration::from_micros(100)).await,
                // Nothing moves, so what is under way waits for time to pass: a body that lingers, a doubt that settles.
                _ => self.clock.advance(Duration::from_millis(20)),
            }
        }
    }

    /// Waits until nothing moves.
    async fn quiet(&self) {
        loop {
            let before = self.disk.store.writes();
            for _ in 0..QUIET {
                tokio::task::yield_now().await;
            }
            if self.disk.store.writes() == before && self.disk.is_settled() {
                return;
            }
        }
    }

    fn pass_until(&self, at: SystemTime) {
        let at = at.duration_since(UNIX_EPOCH).unwrap();
        self.clock.advance(at.saturating_sub(Duration::from_millis(self.clock.wall())));
    }

    /// What a person does about steps in doubt: looks up what happened, and says so.
    async fn resolve(&self, runtime: &Runtime) {
        for hold in runtime.holds().await {
            let resolution = match self.world.bodies(RUN, &hold.path).first() {
                Some(line) => Resolution::succeeded(format!("wired {}", line.input)),
                None => Resolution::run_again(),
            };
            if runtime.resolve(RUN, hold.step, hold.attempt, resolution).await.is_ok() {
                self.shown.lock().unwrap().resolved.push((hold.step.0.into(), hold.attempt.0.into()));
            }
        }
    }
}
