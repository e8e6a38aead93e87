//! Runs on tokio: one task per run, which tells its [`Life`] what happened and carries out what it wants.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore, oneshot, watch},
};
use tracing::Instrument;

use crate::{
    clock::{Clock, Millis},
    contract::{ReconcileEnd, WorkflowMeta},
    core::Takes,
    drive::Now,
    effect::{BodyEnd, Resources},
    entry::{End, RunStarted},
    head::{Aside, ParkedInfo},
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    log::BatchNo,
    store::{Addressee, Row, RunRecord, Store, StoreError, Wait, Write, Written},
    value::ValueError,
    view::Look,
};

mod slots;
mod task;
mod timers;

pub(crate) use slots::{Bodies, BodyInfo, BodySlots};
use task::{Beginning, RunTask};
pub(crate) use task::{Made, New};
pub(crate) use timers::Timers;

/// Wait before what the store refused is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// How many runs may be marked as being replayed at a time.
const REPLAYS_MARKED_MAX: usize = 64;
/// How many new runs may be on their way to their first step; who starts more of them waits. So memory does not grow with the
/// number of runs that somebody starts, but with the number that can be gone on with.
const STARTS_AT_ONCE: usize = 256;
/// How many runs that only wait may stay in memory for a while; another one leaves at once.
const LINGERING_MAX: usize = 500;

/// What all runs of a runtime share.
pub(crate) struct Shared {
    /// The tokio runtime that `open` was called in: runs live there, whoever starts them.
    pub(crate) tokio: Handle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) slots: Arc<BodySlots>,
    pub(crate) limits: Limits,
    /// Finds the code of stored runs.
    pub(crate) code: Code,
    /// Stands for the code in what waiting runs leave in the store: see [`Wait::code`].
    ///
    /// [`Wait::code`]: crate::store::Wait::code
    pub(crate) code_digest: u64,
    /// Nothing runs: only what a store that nobody holds is looked at and written to with.
    pub(crate) observing: bool,
    /// All runs that were in the store when it was opened have been looked at.
    pub(crate) resumed: AtomicBool,
    pub(crate) runs: Mutex<HashMap<RunId, Arc<RunCell>>>,
    /// Runs that are not in memory and are due at a time.
    asleep: Mutex<HashMap<RunId, Asleep>>,
    /// Runs that have left memory, and the claims that they have let go of without the store having said so.
    leaving: Mutex<HashMap<RunId, Epoch>>,
    /// Runs that are being looked at because something has come for them, and whether something has come since.
    waking: Mutex<HashMap<RunId, bool>>,
    pub(crate) timers: Timers,
    /// Replays under way.
    pub(crate) replays: Semaphore,
    pub(crate) marked: Arc<Semaphore>,
    /// New runs before their first step.
    pub(crate) starts: Arc<Semaphore>,
    /// Runs in memory that only wait.
    pub(crate) lingering: Arc<Semaphore>,
    /// Runs whose replay may have killed the process are replayed alone.
    pub(crate) suspects: Semaphore,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) closing: watch::Sender<bool>,
    /// Set when the grace of a shutdown is over: bodies are dropped.
    pub(crate) abandon: watch::Sender<bool>,
    pub(crate) tasks: AtomicUsize,
    pub(crate) idle: Notify,
}

/// What a [`Shared`] is told by its builder.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) value_bytes_max: usize,
    pub(crate) log_entries_warn: u64,
    pub(crate) cancel_grace: Duration,
    pub(crate) settle: Duration,
    pub(crate) evict_after: Duration,
}

/// A run that is not in memory and is due at a time.
struct Asleep {
    /// On the monotonic clock, and on the wall clock.
    due: (Option<Millis>, Option<Millis>),
    /// What its last life knew of the monotonic clock.
    elapsing: Box<[(StepNo, Millis)]>,
}

impl Shared {
    pub(crate) fn now(&self) -> Now {
        Now { wall: self.clock.wall(), monotonic: self.clock.monotonic() }
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Arc<RunCell>>> {
        lock(&self.runs)
    }

    /// Submits a write, at the call, and waits for it.
    pub(crate) fn write(&self, write: Write) -> impl Future<Output = Result<Written, StoreError>> + use<> {
        let (done, wait) = oneshot::channel();
        self.store.submit(
            write,
            Box::new(move |result| {
                let _ = done.send(result);
            }),
        );
        async move { wait.await.unwrap_or(Err(StoreError::Closed)) }
    }

    /// Reads from the store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.store.clone();
        match self.tokio.spawn_blocking(move || read(&*store)).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Closed),
        }
    }
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "each is one part of what all runs share")]
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        resources: Resources,
        bodies_at_once: usize,
        runs_at_once: usize,
        limits: Limits,
        code: Code,
        observing: bool,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            tokio: Handle::current(),
            store,
            clock,
            resources: Arc::new(resources),
            slots: Arc::new(BodySlots::new(bodies_at_once)),
            limits,
            code,
            code_digest: crate::contract::code_digest(),
            observing,
            resumed: AtomicBool::new(false),
            runs: Mutex::default(),
            asleep: Mutex::default(),
            leaving: Mutex::default(),
            waking: Mutex::default(),
            timers: Timers::default(),
            replays: Semaphore::new(runs_at_once.max(1)),
            marked: Arc::new(Semaphore::new(REPLAYS_MARKED_MAX)),
            starts: Arc::new(Semaphore::new(STARTS_AT_ONCE)),
            lingering: Arc::new(Semaphore::new(LINGERING_MAX)),
            suspects: Semaphore::new(1),
            bodies: Arc::new(Bodies::default()),
            closing: watch::Sender::new(false),
            abandon: watch::Sender::new(false),
            tasks: AtomicUsize::new(0),
            idle: Notify::new(),
        })
    }

    /// Whether no run goes on here, or none any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.observing || *self.closing.borrow()
    }

    /// Has a run in memory and going on, once.
    pub(crate) fn adopt(self: &Arc<Shared>, id: RunId, record: &RunRecord, known: Known) {
        self.adopt_with(id, record, known, None);
    }

    /// [`Shared::adopt`] for a run that was made a moment ago.
    pub(crate) fn adopt_new(self: &Arc<Shared>, id: RunId, record: &RunRecord, new: New) {
        self.adopt_with(id, record, Known::Made, Some(new));
    }

    fn adopt_with(self: &Arc<Shared>, id: RunId, record: &RunRecord, known: Known, new: Option<New>) {
        if self.is_closing() {
            return;
        }
        let elapsing = self.wake_up(&id);
        let cell = {
            let mut runs = self.runs();
            match runs.get(&id) {
                Some(cell) if cell.asleep.swap(false, Ordering::Relaxed) => {
                    cell.phase.send_replace(Phase::Opening);
                    cell.clone()
                }
                Some(cell) => return cell.tell(Input::Mail),
                None => {
                    let cell = RunCell::new(id.clone());
                    runs.insert(id, cell.clone());
                    cell
                }
            }
        };
        cell.found.store(!self.resumed.load(Ordering::Acquire), Ordering::Relaxed);
        cell.durable.send_replace((record.head.generation, Seq(u64::from(known == Known::Made))));
        let aside = match known {
            Known::Left => {
                lock(&self.leaving).remove(&cell.id);
                Aside::default()
            }
            Known::Made | Known::Stored => Aside::read(record.aside.as_ref()),
        };
        let beginning = match (known, record.wait) {
            (Known::Made, _) => Beginning::Fresh,
            (Known::Left, _) | (Known::Stored, Some(_)) => Beginning::Released,
            (Known::Stored, None) => Beginning::AfterCrash,
        };
        spawn(self, cell, aside, record.head.generation, beginning, elapsing, new);
    }

    /// A run has got a row, has been made, or is due: it goes on, in memory or not.
    pub(crate) fn nudge(self: &Arc<Shared>, id: &RunId) {
        if self.is_closing() {
            return;
        }
        {
            let runs = self.runs();
            if let Some(cell) = runs.get(id)
                && !cell.asleep.load(Ordering::Relaxed)
            {
                return cell.tell(Input::Mail);
            }
        }
        // One at a time: what another one has read of the run is old when this one acts on it.
        match lock(&self.waking).entry(id.clone()) {
            Entry::Occupied(mut again) => return *again.get_mut() = true,
            Entry::Vacant(first) => drop(first.insert(false)),
        }
        let (shared, id) = (self.clone(), id.clone());
        self.tokio.spawn(async move {
            loop {
                shared.wake(&id).await;
                let mut waking = lock(&shared.waking);
                match waking.get_mut(&id) {
                    // Nudged again meanwhile.
                    Some(again) if *again => *again = false,
                    _ => {
                        waking.remove(&id);
                        return;
                    }
                }
            }
        });
    }

    /// Keeps everybody else from waking a run that is about to be made, until [`Shared::has_made`]: what comes with its making,
    /// the claim and the log, is as new when it is adopted. False if somebody may be at it.
    pub(crate) fn makes(&self, id: &RunId) -> bool {
        // The runs that were there when the store was opened are still being looked through.
        if !self.resumed.load(Ordering::Acquire) {
            return false;
        }
        match lock(&self.waking).entry(id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(first) => {
                first.insert(false);
                true
            }
        }
    }

    /// The run has been made and adopted, or not; it is woken if it was nudged meanwhile.
    pub(crate) fn has_made(self: &Arc<Shared>, id: &RunId) {
        if lock(&self.waking).remove(id) == Some(true) {
            self.nudge(id);
        }
    }

    /// Has a run in memory that has something to do; a store that refuses for now is asked again, so that no run is forgotten.
    async fn wake(self: &Arc<Shared>, id: &RunId) {
        let shared = self;
        loop {
            let left = {
                let runs = shared.runs();
                if let Some(cell) = runs.get(id)
                    && !cell.asleep.load(Ordering::Relaxed)
                {
                    return cell.tell(Input::Mail);
                }
                shared.is_leaving(id)
            };
            let run = id.clone();
            let look = move |store: &dyn Store| {
                let Some(record) = store.run(&run)? else { return Ok(None) };
                let made = !left
                    && record.wait.is_none()
                    && store.read(&run, record.head.generation, Seq(1), 1).is_ok_and(|asked| asked.is_empty());
                Ok(Some((record, made)))
            };
            match shared.read(look).await {
                Ok(Some((record, made))) if record.head.live => {
                    let known = match left {
                        true => Known::Left,
                        // Live, in no memory and at its beginning: it was made a moment ago.
                        false if made && shared.resumed.load(Ordering::Acquire) => Known::Made,
                        false => Known::Stored,
                    };
                    return shared.adopt(id.clone(), &record, known);
                }
                // Ended, or not made yet.
                Ok(_) | Err(StoreError::Closed | StoreError::Poisoned { .. }) => return,
                Err(e) => tracing::warn!(run = %id, "cannot look at a run that is to go on, and tries again: {e}"),
            }
            let mut closing = shared.closing.subscribe();
            tokio::select! {
                () = shared.clock.sleep(STORE_AGAIN) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    /// A run leaves memory, and lets go of its claim. Until that is written its record says of it what it said in the last replay;
    /// so it does if the store has not taken it that the replay is over: `survived`.
    fn release(self: &Arc<Shared>, run: RunId, epoch: Epoch, wait: Wait, survived: Arc<AtomicBool>) {
        lock(&self.leaving).insert(run.clone(), epoch);
        let (shared, id) = (self.clone(), run.clone());
        let written = move |result: Result<Written, StoreError>| {
            let mut leaving = lock(&shared.leaving);
            if result.is_ok() && survived.load(Ordering::Relaxed) && leaving.get(&id) == Some(&epoch) {
                leaving.remove(&id);
            }
        };
        self.store.submit(Write::Release { run, epoch, wait: Some(wait) }, Box::new(written));
    }

    /// Whether a run has left memory without its record saying so, as far as is known. Asked before the record is read: what is written
    /// by then is read as it was written.
    pub(crate) fn is_leaving(&self, id: &RunId) -> bool {
        lock(&self.leaving).contains_key(id)
    }

    /// Lets a run that waits go on at its time, while it is not in memory.
    pub(crate) fn fall_asleep(
        self: &Arc<Shared>,
        id: &RunId,
        due: (Option<Millis>, Option<Millis>),
        elapsing: Vec<(StepNo, Millis)>,
    ) {
        if due == (None, None) {
            return;
        }
        for (on_wall, at) in [(false, due.0), (true, due.1)] {
            at.inspect(|at| self.timers.set(on_wall, *at, id, None));
        }
        lock(&self.asleep).insert(id.clone(), Asleep { due, elapsing: elapsing.into() });
    }

    /// A run comes back to memory: nothing wakes it any more but its own task.
    fn wake_up(&self, id: &RunId) -> Box<[(StepNo, Millis)]> {
        let Some(Asleep { due, elapsing }) = lock(&self.asleep).remove(id) else { return Box::default() };
        for (on_wall, at) in [(false, due.0), (true, due.1)] {
            at.inspect(|at| self.timers.unset(on_wall, *at, id));
        }
        elapsing
    }

    /// Puts a row into a run's mailbox, durably, and wakes the run. The run is woken where the row is known to be durable: a caller
    /// that stops waiting changes nothing.
    pub(crate) async fn put(self: &Arc<Shared>, run: RunId, row: Row, to: Addressee) -> Result<Written, StoreError> {
        let (done, wait) = oneshot::channel();
        let (shared, id) = (self.clone(), run.clone());
        let put = move |result: Result<Written, StoreError>| {
            // What is there already may have been put without an answer, and so without waking anybody.
            if matches!(result, Ok(Written::Done | Written::Exists) | Err(StoreError::Unknown { .. })) {
                shared.nudge(&id);
            }
            let _ = done.send(result);
        };
        self.store.submit(Write::Put { run, row, to }, Box::new(put));
        wait.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Takes a run out of the table, unless another cell has its place.
    fn forget(&self, cell: &Arc<RunCell>) {
        let mut runs = self.runs();
        if runs.get(&cell.id).is_some_and(|there| Arc::ptr_eq(there, cell)) {
            runs.remove(&cell.id);
        }
    }

    /// Follows what a run does, whether or not it is in memory.
    pub(crate) fn follow(self: &Arc<Shared>, id: &RunId) -> Followed {
        let mut runs = self.runs();
        let cell = runs.entry(id.clone()).or_insert_with(|| {
            let cell = RunCell::new(id.clone());
            cell.asleep.store(true, Ordering::Relaxed);
            cell.phase.send_replace(Phase::Asleep);
            cell
        });
        cell.followers.fetch_add(1, Ordering::Relaxed);
        let (phase, durable) = (cell.phase.subscribe(), cell.durable.subscribe());
        Followed { phase, durable, cell: cell.clone(), shared: self.clone() }
    }

    /// Whether a run that is not in memory is in the table of timers.
    pub(crate) fn is_armed(&self, id: &RunId) -> bool {
        lock(&self.asleep).contains_key(id)
    }
}

/// A run that somebody follows.
pub(crate) struct Followed {
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) durable: watch::Receiver<(Generation, Seq)>,
    pub(crate) cell: Arc<RunCell>,
    shared: Arc<Shared>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        let mut runs = self.shared.runs();
        let last = self.cell.followers.fetch_sub(1, Ordering::Relaxed) == 1;
        // A run that sleeps is here only for those who follow it.
        if last
            && self.cell.asleep.load(Ordering::Relaxed)
            && runs.get(&self.cell.id).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell))
        {
            runs.remove(&self.cell.id);
        }
    }
}

/// Only ever held for a moment by code that does not panic; a poisoned lock holds a whole value.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a run stands, as far as others may know.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Claimed, and being replayed, or waiting for that.
    Opening,
    /// Goes on.
    Live,
    /// Its terminal entry is durable.
    Ended(Arc<End<'static>>),
    Parked(ParkedInfo),
    NoCode {
        workflow: String,
        module: String,
        since: Millis,
    },
    /// It waits for a time, a message, a person or another run, and is not in memory.
    Asleep,
    /// This process has let go of it: shut down, or somebody else claimed it.
    Gone,
}

/// A run that is in memory.
pub(crate) struct RunCell {
    pub(crate) id: RunId,
    inbox: Mutex<VecDeque<Input>>,
    wake: Notify,
    pub(crate) phase: watch::Sender<Phase>,
    /// The run's newest log, and how many of its entries are known to be durable. Sent again whenever the run has done something,
    /// also if that is no entry.
    pub(crate) durable: watch::Sender<(Generation, Seq)>,
    /// Its cancel was tried while it was parked, and it is parked still.
    pub(crate) not_cancelled: AtomicBool,
    /// It has no task: it is here for those who follow it. Changed only under the lock of all runs.
    asleep: AtomicBool,
    /// How many follow it. Changed only under that lock as well.
    followers: AtomicUsize,
    /// It was there when the store was opened, and has not begun since.
    found: AtomicBool,
    /// It is in the queue for a slot.
    wants_slot: AtomicBool,
    /// It was woken because a slot is free.
    offered: AtomicBool,
    /// It was woken because it was due, and is not in the table of timers any more.
    fired: AtomicBool,
}

/// What a run's task is told.
pub(crate) enum Input {
    Written(u64, BatchNo, Result<Written, StoreError>),
    ReadBack(u64, Result<Bytes, StoreError>),
    Ended(u64, StepNo, Attempt, Result<BodyEnd, ValueError>),
    /// A body was dropped before it came to an end.
    Dropped(u64, StepNo, Attempt),
    Reconciled(u64, StepNo, Attempt, Result<ReconcileEnd, ValueError>),
    /// There may be new rows in the mailbox.
    Mail,
    /// Those rows.
    Rows(u64, Result<Vec<(u64, Row)>, StoreError>),
    /// Go on with a parked run.
    Retry,
    /// A workflow is here that this process did not know: a run that waits for its code may go on.
    Code,
    Look(oneshot::Sender<Look>),
    /// What the next message of that name must decode as: see [`Life::takes_next`].
    ///
    /// [`Life::takes_next`]: crate::drive::Life::takes_next
    Takes(String, oneshot::Sender<Option<Takes>>),
}

impl RunCell {
    pub(crate) fn new(id: RunId) -> Arc<RunCell> {
        Arc::new(RunCell {
            id,
            inbox: Mutex::default(),
            wake: Notify::new(),
            phase: watch::Sender::new(Phase::Opening),
            durable: watch::Sender::default(),
            not_cancelled: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            followers: AtomicUsize::new(0),
            found: AtomicBool::new(false),
            wants_slot: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            fired: AtomicBool::new(false),
        })
    }

    pub(crate) fn tell(&self, input: Input) {
        lock(&self.inbox).push_back(input);
        self.wake.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// Finds the code of a stored run among what link-time registration knows and what was started here.
pub(crate) type Code = Arc<dyn Fn(&RunStarted<'_>) -> Option<&'static WorkflowMeta> + Send + Sync>;

/// What this process knows of a run that is to go on, beside its record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its log was made a moment ago.
    Made,
    /// It has left memory in good order; the record may be older than that.
    Left,
    /// No more than the record says.
    Stored,
}

/// Starts the task of a run that is in the store.
fn spawn(
    shared: &Arc<Shared>,
    cell: Arc<RunCell>,
    aside: Aside,
    generation: Generation,
    beginning: Beginning,
    elapsing: Box<[(StepNo, Millis)]>,
    new: Option<New>,
) {
    shared.tasks.fetch_add(1, Ordering::SeqCst);
    let guard = TaskGuard { shared: shared.clone(), cell: cell.clone(), returned: false };
    let shared = shared.clone();
    let span = tracing::info_span!("run", id = %cell.id);
    let tokio = shared.tokio.clone();
    let task = async move {
        // Taken in whole, so that it stands for the task also before its first poll.
        let mut guard = guard;
        let New { turn, made } = new.unwrap_or_default();
        // After a crash, or with other code, that may be every run of the store: what waits for its turn is small.
        let turn = match beginning {
            Beginning::Released | Beginning::AfterCrash if !aside.replaying => {
                shared.marked.clone().acquire_owned().await.ok()
            }
            _ => turn,
        };
        Box::pin(RunTask::new(shared, cell, aside, generation, elapsing, turn, made).run(beginning)).await;
        guard.returned = true;
    };
    tokio.spawn(task.instrument(span));
}

/// Tells that a run's task is gone, however it went: nobody waits for one that is.
struct TaskGuard {
    shared: Arc<Shared>,
    cell: Arc<RunCell>,
    /// It has said itself where the run stands. What the cell says by now may be the word of the task after it.
    returned: bool,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if !self.returned {
            self.shared.forget(&self.cell);
            self.cell.phase.send_replace(Phase::Gone);
        }
        self.shared.tasks.fetch_sub(1, Ordering::SeqCst);
        self.shared.idle.notify_waiters();
    }
}

/// What the engine's own keys of a run begin with.
pub(crate) fn key_prefix(shared: &Shared, run: &RunId, generation: Generation) -> String {
    crate::entry::key_prefix(shared.store.about().id, run, generation)
}
