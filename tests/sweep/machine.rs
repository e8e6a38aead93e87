//! A machine on which one process after the other works at the same runs, each until it dies or the runs have ended.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use durable::{Clock, Error, Run, Runtime, Status, TestClock, WorkflowCall, store::Store};

use crate::{
    common::{
        check::{self, Runs},
        company::WORDS,
        ledger::{MemoryLedger, World},
        outside::{self, Known},
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
/// So often time may pass without anything being written.
const IDLE: usize = 1_000;
/// Polls of other tasks after which a process that did nothing waits for something.
const QUIET: usize = 24;

/// The workflow that a machine is to run, and what it returns.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) call: fn() -> WorkflowCall<durable::Result<String>>,
    pub(crate) output: fn() -> Result<String, String>,
    /// Bodies at a time; one lingers beside another.
    pub(crate) slots: usize,
    /// How long a run that waits stays in memory.
    pub(crate) evict_after: Duration,
    /// Whether clients outside send the words of a company.
    pub(crate) speaks: bool,
    /// The run is cancelled when so many writes were submitted in a life; by each life again.
    pub(crate) cancel_at: Option<u64>,
}

impl Job {
    pub(crate) const fn new(
        call: fn() -> WorkflowCall<durable::Result<String>>,
        output: fn() -> Result<String, String>,
    ) -> Job {
        Job { call, output, slots: 1_000, evict_after: Duration::from_millis(500), speaks: false, cancel_at: None }
    }
}

/// How a life went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Died,
    /// All runs have ended, and this one so.
    Ended(Ended),
    /// What must not happen.
    Wrong(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned(Result<String, String>),
    Cancelled,
}

pub(crate) struct Machine {
    job: Job,
    broken: Broken,
    rng: Rng,
    pub(crate) ledger: MemoryLedger,
    known: Known,
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
            known: Known::default(),
            counts: (0, 0),
            wall: 1_700_000_000_000,
            image: Some(CrashStore::new()),
            curious: false,
        }
    }

    /// One process, from its start to its death, or until the runs have ended.
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
            known: self.known.clone(),
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
            let wrong = self.afterwards(false);
            if !wrong.is_empty() {
                return wrong;
            }
            if fate != Fate::Died {
                // The runs were over before.
                break;
            }
        }
        // Somebody has mended the disk.
        self.broken = Broken::No;
        match self.live(Death::Never) {
            Fate::Ended(Ended::Returned(output)) if output == (self.job.output)() => self.in_the_end(),
            Fate::Ended(Ended::Cancelled) if self.job.cancel_at.is_some() => self.in_the_end(),
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

    /// What is in it, as the library shows it.
    pub(crate) fn runs(&mut self) -> Runs {
        let image = self.image();
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        threads.block_on(replay::runs_in(image))
    }

    /// What was shown, and what bodies did, is in what the dead process left; `ended`: and everything is over.
    fn afterwards(&mut self, ended: bool) -> Vec<String> {
        let (image, runs, lines) = (self.image(), self.runs(), self.ledger.lines());
        let mut wrong = Vec::new();
        for (run, seen) in &runs {
            wrong.extend(seen.check(run, ended));
        }
        let nothing = check::Seen::default();
        for (run, shown) in &*self.known.all() {
            let rows = image.rows(&durable::RunId::new(run).unwrap(), 0, usize::MAX).unwrap().len();
            wrong.extend(check::shown(run, shown, runs.get(run).unwrap_or(&nothing), if ended { 0 } else { rows }));
        }
        wrong.extend(check::ledger(&lines, &runs, 0));
        let mut sent = Vec::new();
        for name in ["word", "steer"] {
            let values = WORDS.iter().filter(|(of, ..)| *of == name).map(|(.., value)| *value).collect();
            sent.push((RUN, name, values, self.known.accepted(RUN, name)));
        }
        wrong.extend(check::company(&runs, &lines, &sent));
        wrong
    }

    fn in_the_end(&mut self) -> Vec<String> {
        let mut wrong = self.afterwards(true);
        let (image, runs) = (self.image(), self.runs());
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for run in runs.keys() {
            wrong.extend(threads.block_on(replay::replays(&*image, run)).err());
        }
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

/// Looks at all runs again and again, whatever they are doing.
async fn watch(runtime: Runtime, known: Known) {
    for look in 0_u64.. {
        let Ok(runs) = runtime.runs(durable::Filter::all()).await else { return };
        for run in runs {
            let id = run.id.as_str();
            if outside::look(&runtime, id, &known).await.is_err() {
                return;
            }
            // A log takes longer to put into words than the run takes to go on.
            if look % 8 == 0 && outside::read(&runtime, id, &known).await.is_err() {
                return;
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
    known: Known,
    curious: bool,
}

impl Process {
    async fn work(&self) -> Fate {
        self.work_on().await.unwrap_or_else(|e| Fate::Wrong(format!("{e:?}")))
    }

    async fn work_on(&self) -> Result<Fate, Error> {
        let builder = Runtime::builder().resource(self.world.clone()).clock(self.clock.clone());
        let builder = builder.bodies_at_once(self.job.slots).evict_after(self.job.evict_after);
        // Nobody waits long for a body that nobody wants, or for a request that may be under way.
        let builder = builder.cancel_grace(Duration::from_secs(1)).settle(Duration::from_millis(50));
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

    async fn go_on(&self, runtime: &Runtime) -> Result<Fate, Error> {
        if self.job.speaks {
            // The first word makes the run.
            let (name, id, value) = WORDS[0];
            match runtime.signal_or_start(RUN, (self.job.call)(), name, value).id(id).await {
                Ok(_) => {}
                Err(e) if e.is_run_ended() => {}
                Err(e) => return Err(e),
            }
        }
        let run = runtime.start(RUN, (self.job.call)()).await?;
        self.known.of(RUN, |shown| shown.started = true);
        if self.curious {
            tokio::spawn(watch(runtime.clone(), self.known.clone()));
        }
        if self.job.speaks {
            outside::speak(runtime, RUN, &self.known).await?;
        }
        let (mut cancelled, mut doomed) = (false, false);
        let (mut idle, mut written) = (0, 0);
        loop {
            self.quiet().await;
            (idle, written) = match self.disk.store.writes() {
                writes if writes == written => (idle + 1, written),
                writes => (0, writes),
            };
            if idle > IDLE {
                return Ok(Fate::Wrong(format!("nothing moves any more: {:?}", outside::unfinished(runtime).await?)));
            }
            outside::look(runtime, RUN, &self.known).await?;
            let before = self.disk.store.writes();
            let unfinished = outside::unfinished(runtime).await?;
            if unfinished.is_empty() {
                // The list is no snapshot: a run that was looked at last may have made another one, and ended meanwhile.
                if self.disk.is_settled() && self.disk.store.writes() == before {
                    return Ok(Fate::Ended(self.ended(&run).await?));
                }
                continue;
            }
            if !cancelled && self.job.cancel_at.is_some_and(|at| self.disk.store.writes() >= at) {
                cancelled = true;
                tokio::spawn(outside::cancel(runtime.clone(), RUN.to_owned(), self.known.clone()));
                continue;
            }
            if self.job.speaks && !doomed && outside::is_doomed(runtime, RUN).await? {
                doomed = true;
                let run = crate::common::company::doomed(RUN);
                tokio::spawn(outside::cancel(runtime.clone(), run, self.known.clone()));
                continue;
            }
            if let Some((run, status)) = unfinished.iter().find(|(_, status)| matches!(status, Status::Parked(_))) {
                return Ok(Fate::Wrong(format!("{run}: {status:?}")));
            }
            if outside::answer(runtime, &self.known).await? || outside::resolve(runtime, &self.world, &self.known).await
            {
                continue;
            }
            if unfinished.iter().any(|(_, status)| *status == Status::Opening) {
                tokio::time::sleep(Duration::from_micros(100)).await;
                continue;
            }
            self.pass_time(unfinished.into_iter().map(|(_, status)| status));
        }
    }

    /// How the run has ended.
    async fn ended(&self, run: &Run<durable::Result<String>>) -> Result<Ended, Error> {
        let output = match run.returned().await {
            Ok(returned) => returned.map_err(|failure| failure.message().to_owned()),
            Err(e) if e.is_run_cancelled() => return Ok(Ended::Cancelled),
            Err(e) => return Err(e),
        };
        self.known.of(RUN, |shown| shown.output = Some(output.clone()));
        Ok(Ended::Returned(output))
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

    /// Nothing moves, so what is under way waits for time to pass: until the first of what the runs name, or, a body that lingers or
    /// a doubt that settles, a little.
    fn pass_time(&self, statuses: impl Iterator<Item = Status>) {
        let due = statuses.filter_map(|status| match status {
            Status::Sleeping { until: at } | Status::Retrying { at, .. } => Some(at),
            _ => None,
        });
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.wall());
        let little = now + Duration::from_millis(20);
        let at = due.min().filter(|at| *at > now).unwrap_or(little).min(little);
        self.clock.advance(since(at).saturating_sub(since(now)));
    }
}

fn since(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap()
}
