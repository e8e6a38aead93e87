//! Runs on tokio: one task per run, which tells its [`Life`] what happened and carries out what it wants.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
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
    drive::Now,
    effect::{BodyEnd, Resources},
    entry::{End, EscapedName, RunStarted},
    head::{Aside, ParkedInfo},
    id::{Attempt, Generation, RunId, StepNo},
    log::BatchNo,
    store::{Row, Store, StoreError, Write, Written},
    value::ValueError,
    view::Look,
};

mod slots;
mod task;
mod timers;

pub(crate) use slots::{Bodies, BodyInfo, BodySlots};
use task::RunTask;
pub(crate) use timers::Timers;

/// How many runs may be marked as being replayed at a time.
const REPLAYS_MARKED_MAX: usize = 64;

/// What all runs of a runtime share.
pub(crate) struct Shared {
    /// The tokio runtime that `open` was called in: runs live there, whoever starts them.
    pub(crate) tokio: Handle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) slots: Arc<BodySlots>,
    pub(crate) value_bytes_max: usize,
    pub(crate) log_entries_warn: u64,
    pub(crate) unwanted_grace: Duration,
    pub(crate) runs: Mutex<HashMap<RunId, Arc<RunCell>>>,
    pub(crate) timers: Timers,
    /// Replays under way.
    pub(crate) replays: Semaphore,
    pub(crate) marked: Semaphore,
    /// Runs whose replay may have killed the process are replayed alone.
    pub(crate) suspects: Semaphore,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) closing: watch::Sender<bool>,
    /// Set when the grace of a shutdown is over: bodies are dropped.
    pub(crate) abandon: watch::Sender<bool>,
    pub(crate) tasks: AtomicUsize,
    pub(crate) idle: Notify,
}

impl Shared {
    pub(crate) fn now(&self) -> Now {
        Now { wall: self.clock.wall(), monotonic: self.clock.monotonic() }
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Arc<RunCell>>> {
        lock(&self.runs)
    }

    /// Submits a write and waits for it.
    pub(crate) async fn write(&self, write: Write) -> Result<Written, StoreError> {
        let (done, wait) = oneshot::channel();
        self.store.submit(
            write,
            Box::new(move |result| {
                let _ = done.send(result);
            }),
        );
        wait.await.unwrap_or(Err(StoreError::Closed))
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
    /// This process has let go of it: shut down, or somebody else claimed it.
    Gone,
}

/// A run that is in memory.
pub(crate) struct RunCell {
    pub(crate) id: RunId,
    inbox: Mutex<VecDeque<Input>>,
    wake: Notify,
    pub(crate) phase: watch::Sender<Phase>,
    /// Entries known to be durable.
    pub(crate) durable: AtomicU64,
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
    Row(Row),
    /// Go on with a parked run.
    Retry,
    Look(oneshot::Sender<Look>),
}

impl RunCell {
    pub(crate) fn new(id: RunId) -> Arc<RunCell> {
        Arc::new(RunCell {
            id,
            inbox: Mutex::default(),
            wake: Notify::new(),
            phase: watch::Sender::new(Phase::Opening),
            durable: AtomicU64::new(0),
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

/// Starts the task of a run that is in the store.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    cell: Arc<RunCell>,
    code: Code,
    aside: Aside,
    generation: Generation,
    fresh: bool,
) {
    shared.tasks.fetch_add(1, Ordering::SeqCst);
    let guard = TaskGuard { shared: shared.clone(), cell: cell.clone() };
    let shared = shared.clone();
    let span = tracing::info_span!("run", id = %cell.id);
    let tokio = shared.tokio.clone();
    let task = async move {
        RunTask::new(shared, cell, code, aside, generation).run(fresh).await;
        drop(guard);
    };
    tokio.spawn(task.instrument(span));
}

/// Tells that a run's task is gone, however it went: nobody waits for one that is.
struct TaskGuard {
    shared: Arc<Shared>,
    cell: Arc<RunCell>,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if matches!(*self.cell.phase.borrow(), Phase::Opening | Phase::Live) {
            self.shared.runs().remove(&self.cell.id);
            self.cell.phase.send_replace(Phase::Gone);
        }
        self.shared.tasks.fetch_sub(1, Ordering::SeqCst);
        self.shared.idle.notify_waiters();
    }
}

/// What the engine's own keys of a run begin with: store, run and generation, each escaped so that `/` stands only between them.
pub(crate) fn key_prefix(shared: &Shared, run: &RunId, generation: Generation) -> String {
    format!("{}/{}/{generation}", shared.store.about().id, EscapedName(run.as_str()))
}

pub(crate) fn new_shared_semaphores(replays: usize) -> (Semaphore, Semaphore, Semaphore) {
    (Semaphore::new(replays.max(1)), Semaphore::new(REPLAYS_MARKED_MAX), Semaphore::new(1))
}
