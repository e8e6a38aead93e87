//! A runtime: a store that is open, and the runs in it going on.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, Weak, atomic::Ordering},
};

use tokio::sync::watch;

use crate::{
    contract::WorkflowMeta,
    entry::RunStarted,
    error::{Error, Kind},
    head::Aside,
    id::{RunId, Seq},
    store::{Durability, RunRecord, StoreError},
    worker::{Code, Known, Shared, Timers},
};

mod audit;
mod cancel;
mod list;
mod look;
mod mail;
mod question;
mod resolve;
mod run;
mod signal;
mod start;
mod stop;

pub use audit::{Finding, FindingKind};
pub use cancel::CancelRequest;
pub use list::Filter;
pub use question::{AnswerRequest, Answered, Reply};
pub use resolve::{Resolution, Resolved};
pub use run::{AnyRun, Run};
pub use signal::{SignalOrStart, SignalRequest};
pub use stop::{RunningBody, ShutdownReport};

/// Runs that are listed at a time from the store.
const LIST_PAGE: usize = 1_000;

/// A request that is carried out while it is awaited.
type Request<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// An open store and the runs in it. Clones are one runtime, and every [`Run`] of it is a handle too; the last one dropped stops it as
/// a crash would, so end with [`Runtime::shutdown`].
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
    /// What all handles of users hold, and those of who only serves the runtime do not.
    _user: Option<Arc<User>>,
}

/// Stops the runtime when the last handle that holds it is dropped.
struct User(Arc<Shared>);

impl Drop for User {
    fn drop(&mut self) {
        self.0.abandon.send_replace(true);
        self.0.closing.send_replace(true);
    }
}

struct Inner {
    shared: Arc<Shared>,
    /// One word on a step in doubt at a time: the second one must find the first.
    resolving: tokio::sync::Mutex<()>,
    started_here: Arc<Mutex<HashMap<(String, String), &'static WorkflowMeta>>>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.inner.shared.store.about();
        f.debug_struct("Runtime").field("store", &about.place).field("durability", &about.durability).finish()
    }
}

/// A runtime, for those who serve it and must not keep it open.
pub(crate) struct BesideRuntime {
    inner: Weak<Inner>,
    closing: watch::Receiver<bool>,
}

impl BesideRuntime {
    /// The runtime, unless its last handle was dropped. This handle does not keep it going.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        self.inner.upgrade().map(|inner| Runtime { inner, _user: None })
    }

    /// Returns when the runtime is shut down, or its last handle was dropped.
    pub(crate) async fn closing(&self) {
        let _ = self.closing.clone().wait_for(|closing| *closing).await;
    }
}

impl Runtime {
    pub(crate) async fn begin(shared: impl FnOnce(Code) -> Arc<Shared>) -> Result<Runtime, Error> {
        let started_here: Arc<Mutex<HashMap<(String, String), &'static WorkflowMeta>>> = Arc::default();
        let known = started_here.clone();
        let shared = shared(Arc::new(move |started: &RunStarted<'_>| start::find_code(&known, started)));
        let resolving = tokio::sync::Mutex::default();
        let inner = Arc::new(Inner { shared: shared.clone(), resolving, started_here });
        let runtime = Runtime { inner, _user: Some(Arc::new(User(shared.clone()))) };
        if !shared.observing {
            shared.tokio.spawn(Timers::run(shared.clone()));
            runtime.resume_all().await?;
        }
        Ok(runtime)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    pub(crate) fn beside(&self) -> BesideRuntime {
        BesideRuntime { inner: Arc::downgrade(&self.inner), closing: self.shared().closing.subscribe() }
    }

    /// Lets every unfinished run of the store go on: those that wait, when what they wait for has come.
    async fn resume_all(&self) -> Result<(), Error> {
        let shared = self.shared();
        let mut after: Option<RunId> = None;
        let (mut waiting, mut going_on) = (0u64, 0u64);
        loop {
            let from = after.clone();
            let page = shared.read(move |store| store.runs(Some(true), from.as_ref(), LIST_PAGE)).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let now = shared.clock.wall();
            for (id, record) in page {
                match record.wait {
                    // With other code, what it waits for may not be what that code would do: it is replayed once.
                    Some(wait)
                        if record.is_waiting()
                            && wait.code == shared.code_digest
                            && wait.due.is_none_or(|due| due > now) =>
                    {
                        waiting += 1;
                        let held = record.aside.as_ref().map(|aside| Aside::read(Some(aside)).held).unwrap_or_default();
                        for words in held {
                            tracing::info_span!("run", %id).in_scope(|| tracing::warn!("{words}"));
                        }
                        shared.fall_asleep(&id, (None, wait.due), Vec::new());
                    }
                    _ => {
                        going_on += 1;
                        shared.adopt(id, &record, Known::Stored);
                    }
                }
            }
        }
        shared.resumed.store(true, Ordering::Release);
        tracing::info!(waiting, going_on, "the store is open: its unfinished runs wait, or go on now");
        Ok(())
    }

    /// What an acknowledged write of this runtime's store survives.
    pub fn durability(&self) -> Durability {
        self.inner.shared.store.about().durability
    }

    /// A run by its id, whatever its workflow.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`]; an invalid id; what the store says.
    pub async fn run(&self, id: impl AsRef<str>) -> Result<AnyRun, Error> {
        let id = RunId::new(id)?;
        let here = self.shared().runs().contains_key(&id) || self.shared().is_leaving(&id);
        if !here {
            let record = self.record(&id).await?;
            // Created a moment ago by another task of this process, which has not got further yet.
            if record.head.live && !record.is_waiting() {
                self.shared().nudge(&id);
            }
        }
        Ok(AnyRun { id, runtime: self.clone() })
    }

    async fn record(&self, id: &RunId) -> Result<RunRecord, Error> {
        let run = id.clone();
        let record = self.shared().read(move |store| store.run(&run)).await?;
        record.ok_or_else(|| Kind::RunNotFound(id.clone()).into())
    }

    fn damaged(&self, id: &RunId, seq: Seq, what: String) -> StoreError {
        let place = self.shared().store.about().place.clone();
        StoreError::Damaged { place, run: Some(id.clone()), seq: Some(seq), what: what.into() }
    }
}
