//! A runtime: a store that is open, and the runs in it going on.

use std::{
    collections::HashMap,
    fmt,
    marker::PhantomData,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, oneshot, watch};

use crate::{
    builder::Builder,
    clock::{Millis, pass, system_time},
    contract::{Registered, Returns, WorkflowMeta},
    entry::{End, Entry, Kind as EntryKind, RunStarted, decode, next_frame},
    error::{Error, Kind},
    failure::shortened,
    head::{Aside, HeadInfo},
    id::{Attempt, Generation, RunId, Seq, StepNo},
    mailbox::{Message, Verdict},
    steps::call::WorkflowCall,
    store::{Durability, RunRecord, Store, StoreError, Write, Written},
    value::{Args, Recordable, Value, ValueError},
    view::{Hold, Look, RunInfo, Status},
    worker::{BodyInfo, Code, Input, Phase, RunCell, Shared, Timers, lock, spawn},
};

mod run;

pub use run::{AnyRun, Run};

/// Runs that are listed at a time from the store.
const LIST_PAGE: usize = 1_000;

/// An open store and the runs in it. Clones are one runtime, and every [`Run`] of it is a handle too; the last one dropped stops it as
/// a crash would, so end with [`Runtime::shutdown`].
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// One word on a step in doubt at a time: the second one must find the first.
    resolving: tokio::sync::Mutex<()>,
    started_here: Arc<Mutex<HashMap<(String, String), &'static WorkflowMeta>>>,
    code: Code,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.abandon.send_replace(true);
        self.shared.closing.send_replace(true);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.inner.shared.store.about();
        f.debug_struct("Runtime").field("store", &about.place).field("durability", &about.durability).finish()
    }
}

/// What [`Runtime::shutdown`] left behind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Bodies that did not return within the grace and were dropped: their steps are in doubt, or run again, at the next
    /// start.
    pub abandoned: Vec<RunningBody>,
}

/// A body of an effect that is under way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunningBody {
    /// The run.
    pub run: RunId,
    /// The effect.
    pub effect: &'static str,
    /// The step's path.
    pub path: String,
    /// The attempt.
    pub attempt: Attempt,
    /// Since when.
    pub since: SystemTime,
}

impl From<BodyInfo> for RunningBody {
    fn from(info: BodyInfo) -> Self {
        let BodyInfo { run, effect, path, attempt, since } = info;
        RunningBody { run, effect, path, attempt, since: system_time(since) }
    }
}

/// Which runs [`Runtime::runs`] lists; all by default.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    live: Option<bool>,
    workflow: Option<String>,
    status: Option<&'static str>,
}

impl Filter {
    /// All runs.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Only runs that have not ended.
    pub fn unfinished() -> Filter {
        Filter { live: Some(true), ..Filter::default() }
    }

    /// Only runs that have ended.
    pub fn finished() -> Filter {
        Filter { live: Some(false), ..Filter::default() }
    }

    /// Only runs of the workflow with this recorded name.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>) -> Filter {
        self.workflow = Some(name.into());
        self
    }

    /// Only runs in the state that [`Status::as_str`] names.
    #[must_use]
    pub fn status(mut self, status: &'static str) -> Filter {
        self.status = Some(status);
        self
    }
}

/// A person's word on a step in doubt.
#[derive(Clone, Debug)]
pub struct Resolution {
    verdict: Given,
    by: String,
}

#[derive(Clone, Debug)]
enum Given {
    Succeeded(Both),
    FailedWith(Both),
    Failed(String),
    RunAgain,
}

/// A value as it would be recorded: by itself, and as the `Ok` or `Err` of a `Result`.
#[derive(Clone, Debug)]
struct Both {
    plain: Result<Value, ValueError>,
    wrapped: Result<Value, ValueError>,
}

impl Both {
    fn of(variant: &str, value: &impl serde::Serialize) -> Both {
        let wrapped = Value::encode(&std::collections::BTreeMap::from([(variant, value)]));
        Both { plain: Value::encode(value), wrapped }
    }
}

impl Resolution {
    /// It happened, and this is what the effect would have returned: the `Ok` value, if it returns a `Result`.
    ///
    /// The value may be of the effect's own type, or JSON as a person would write it; `resolve` refuses it if it does not decode as
    /// the effect's type.
    pub fn succeeded(value: impl serde::Serialize) -> Resolution {
        Resolution { verdict: Given::Succeeded(Both::of("Ok", &value)), by: "a person".into() }
    }

    /// It failed: the workflow gets a [`crate::Fault::ResolvedAsFailed`], if the effect's error type takes one, else the run is
    /// parked with it.
    pub fn failed(reason: impl Into<String>) -> Resolution {
        Resolution { verdict: Given::Failed(shortened(&reason.into()).into_owned()), by: "a person".into() }
    }

    /// It failed with this error value of the effect's own error type.
    pub fn failed_with(error: impl serde::Serialize) -> Resolution {
        Resolution { verdict: Given::FailedWith(Both::of("Err", &error)), by: "a person".into() }
    }

    /// It did not happen and cannot any more: the body runs once more, after the effect's `settle` time if it declares one.
    pub fn run_again() -> Resolution {
        Resolution { verdict: Given::RunAgain, by: "a person".into() }
    }

    /// Says who decided; recorded in the log.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Resolution {
        self.by = shortened(&who.into()).into_owned();
        self
    }
}

impl Runtime {
    /// Prepares a runtime.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) async fn begin(shared: Arc<Shared>) -> Result<Runtime, Error> {
        let started_here: Arc<Mutex<HashMap<(String, String), &'static WorkflowMeta>>> = Arc::default();
        let known = started_here.clone();
        let code: Code = Arc::new(move |started: &RunStarted<'_>| find_code(&known, started));
        shared.tokio.spawn(Timers::run(shared.clone()));
        let runtime =
            Runtime { inner: Arc::new(Inner { shared, resolving: tokio::sync::Mutex::default(), started_here, code }) };
        runtime.resume_all().await?;
        Ok(runtime)
    }

    /// Lets every unfinished run of the store go on.
    async fn resume_all(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let mut after: Option<RunId> = None;
        loop {
            let from = after.clone();
            let page = shared.read(move |store| store.runs(Some(true), from.as_ref(), LIST_PAGE)).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for (id, record) in page {
                self.adopt(id, record.head.generation, Aside::read(record.aside.as_ref()), false);
            }
        }
    }

    /// Has the run in memory and going on, once.
    fn adopt(&self, id: RunId, generation: Generation, aside: Aside, fresh: bool) {
        let shared = &self.inner.shared;
        let mut runs = shared.runs();
        if runs.contains_key(&id) {
            return;
        }
        let cell = RunCell::new(id.clone());
        cell.durable.store(u64::from(fresh), Ordering::Release);
        runs.insert(id, cell.clone());
        spawn(shared, cell, self.inner.code.clone(), aside, generation, fresh);
    }

    /// What an acknowledged write of this runtime's store survives.
    pub fn durability(&self) -> Durability {
        self.inner.shared.store.about().durability
    }

    /// Starts a run, durably: when this returns, the run goes on whatever happens to the process.
    ///
    /// The same id with the same workflow and equal arguments is the same run, however often it is started, also after it has
    /// ended.
    ///
    /// # Errors
    ///
    /// A conflict ([`Error::is_conflict`]) if the id names a run with another workflow or other arguments; an invalid id;
    /// arguments that cannot be recorded or are longer than the limit; what the store says.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped the run may or may not be started, and goes on if it is; starting it again tells.
    pub async fn start<R: Recordable>(&self, id: impl AsRef<str>, call: WorkflowCall<R>) -> Result<Run<R>, Error> {
        let id = RunId::new(id)?;
        let meta = call.meta;
        let unfit = |error| Kind::Argument { workflow: meta.name.to_owned(), error };
        call.check().map_err(unfit)?;
        let (args, digest) = call.args.map_err(unfit)?;
        let shared = &self.inner.shared;
        if *shared.closing.borrow() {
            return Err(Kind::Closed.into());
        }
        let limit = shared.value_bytes_max;
        if args.value().len() > limit {
            let what = format!("the arguments of workflow {}", meta.name);
            return Err(Kind::TooLarge { what, size: args.value().len(), limit }.into());
        }
        if lock(&self.inner.started_here).insert((meta.name.to_owned(), meta.module.to_owned()), meta).is_none() {
            self.code_is_here(meta);
        }
        let at = shared.clock.wall();
        let (head, frames) = first_record(meta, &args, digest, at)?;
        let generation = head.generation;
        // In a task of its own: a caller that stops waiting must not leave a run in the store that nobody goes on with.
        let (runtime, new) = (self.clone(), id.clone());
        let create = async move {
            let write = Write::Create { run: new.clone(), count: 1, frames, head };
            let written = runtime.inner.shared.write(write).await?;
            if written != Written::Exists {
                runtime.adopt(new, generation, Aside::default(), true);
            }
            Ok::<_, StoreError>(written)
        };
        let written = shared.tokio.spawn(create).await.unwrap_or(Err(StoreError::Closed))?;
        let run = match written {
            Written::Exists => self.existing(&id, meta, &args, digest).await?,
            _ => AnyRun { id, runtime: self.clone() },
        };
        Ok(Run { run, _returns: PhantomData })
    }

    /// Runs that waited for this code go on.
    fn code_is_here(&self, meta: &WorkflowMeta) {
        for cell in self.inner.shared.runs().values() {
            if matches!(&*cell.phase.borrow(), Phase::NoCode { workflow, .. } if *workflow == meta.name) {
                cell.tell(Input::Retry);
            }
        }
    }

    /// A run that was started before, if it is the same.
    async fn existing(&self, id: &RunId, meta: &WorkflowMeta, args: &Args, digest: u128) -> Result<AnyRun, Error> {
        let frame = self.first_frame(id).await?;
        let entry = decode(&frame).map_err(|e| self.damaged(id, Seq(0), e.to_string()))?;
        let EntryKind::RunStarted(started) = &entry.kind else {
            return Err(self.damaged(id, Seq(0), "the log does not begin with run.started".into()).into());
        };
        if !is_code_of(meta, started) {
            let (recorded, given) = (started.workflow.to_string(), meta.name.to_owned());
            let (recorded, given) = match recorded == given {
                true => (format!("{}::{recorded}", started.module), format!("{}::{given}", meta.module)),
                false => (recorded, given),
            };
            return Err(Kind::OtherWorkflow { run: id.clone(), recorded, given }.into());
        }
        if started.digest != digest {
            let recorded = Value::from_bytes(Bytes::copy_from_slice(&started.args)).to_json().to_string();
            let given = args.to_json().to_string();
            let workflow = meta.name.to_owned();
            return Err(Kind::OtherArguments { run: id.clone(), workflow, recorded, given }.into());
        }
        self.run(id.as_str()).await
    }

    async fn first_frame(&self, id: &RunId) -> Result<Bytes, Error> {
        let run = id.clone();
        let records = self.inner.shared.read(move |store| store.read(&run, Generation(0), Seq(0), 1)).await?;
        let mut frames = records.into_iter().next().map(|record| record.frames).unwrap_or_default();
        match next_frame(&mut frames) {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(self.damaged(id, Seq(0), "its log is empty".into()).into()),
            Err(e) => Err(self.damaged(id, Seq(0), e.to_string()).into()),
        }
    }

    fn damaged(&self, id: &RunId, seq: Seq, what: String) -> StoreError {
        let place = self.inner.shared.store.about().place.clone();
        StoreError::Damaged { place, run: Some(id.clone()), seq: Some(seq), what: what.into() }
    }

    /// A run by its id, whatever its workflow.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`]; an invalid id; what the store says.
    pub async fn run(&self, id: impl AsRef<str>) -> Result<AnyRun, Error> {
        let id = RunId::new(id)?;
        if !self.inner.shared.runs().contains_key(&id) {
            let record = self.record(&id).await?;
            // Created a moment ago by another task of this process, which has not got further yet.
            if record.head.live && !*self.inner.shared.closing.borrow() {
                self.adopt(id.clone(), record.head.generation, Aside::read(record.aside.as_ref()), false);
            }
        }
        Ok(AnyRun { id, runtime: self.clone() })
    }

    async fn record(&self, id: &RunId) -> Result<RunRecord, Error> {
        let run = id.clone();
        let record = self.inner.shared.read(move |store| store.run(&run)).await?;
        record.ok_or_else(|| Kind::RunNotFound(id.clone()).into())
    }

    /// Lists runs, in the order of their ids.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn runs(&self, filter: Filter) -> Result<Vec<RunInfo>, Error> {
        let shared = &self.inner.shared;
        let (mut all, mut after) = (Vec::new(), None::<RunId>);
        loop {
            let (from, live) = (after.clone(), filter.live);
            let page = shared.read(move |store| store.runs(live, from.as_ref(), LIST_PAGE)).await?;
            let Some((last, _)) = page.last() else { return Ok(all) };
            after = Some(last.clone());
            for (id, record) in page {
                let info = self.info(id, &record).await;
                let fits = filter.workflow.as_ref().is_none_or(|name| *name == info.workflow)
                    && filter.status.is_none_or(|status| status == info.status.as_str());
                if fits {
                    all.push(info);
                }
            }
        }
    }

    async fn info(&self, id: RunId, record: &RunRecord) -> RunInfo {
        let head = HeadInfo::read(&record.head);
        let (workflow, module) = head.as_ref().map(|h| (h.workflow.clone(), h.module.clone())).unwrap_or_default();
        let started_at = head.as_ref().map_or(0, |h| h.started_at);
        let cell = self.inner.shared.runs().get(&id).cloned();
        let (status, since) = match cell {
            // Its head may say more than is durable: its task knows.
            Some(cell) => live_status(&cell, started_at).await,
            None => self.stored_status(&id, record, started_at).await,
        };
        RunInfo { id, workflow, module, status, started_at: system_time(started_at), since: system_time(since) }
    }

    /// Where a run stands that is not in memory.
    async fn stored_status(&self, id: &RunId, record: &RunRecord, started_at: Millis) -> (Status, Millis) {
        // It may have ended, and left memory, since the record was read.
        let newer = if record.head.live { self.record(id).await.ok() } else { None };
        let record = newer.as_ref().unwrap_or(record);
        let ended = HeadInfo::read(&record.head).and_then(|head| Some((head.ended_at?, head.failure)));
        match (ended, Aside::read(record.aside.as_ref()).parked) {
            (Some((at, None)), _) => (Status::Completed, at),
            (Some((at, Some(message))), _) => (Status::Failed { message }, at),
            (None, Some(parked)) => (Status::Parked(parked.public()), parked.since),
            (None, None) => (Status::Opening, started_at),
        }
    }

    /// All steps that are in doubt and wait for a person, over all runs.
    pub async fn holds(&self) -> Vec<Hold> {
        let cells: Vec<_> = self.inner.shared.runs().values().cloned().collect();
        let mut holds = Vec::new();
        for cell in cells {
            if matches!(*cell.phase.borrow(), Phase::Live) {
                holds.extend(look(&cell).await.holds);
            }
        }
        holds.sort_by(|a, b| (&a.run, a.step).cmp(&(&b.run, b.step)));
        holds
    }

    /// Bodies of effects that are under way in this process, those that nobody waits for any more included.
    pub fn bodies(&self) -> Vec<RunningBody> {
        self.inner.shared.bodies.all().into_iter().map(RunningBody::from).collect()
    }

    /// Says what a step in doubt did. When this returns, the word is durable, and the run goes on with it.
    ///
    /// # Errors
    ///
    /// The step is not in doubt, or another attempt is than the one named; the value does not fit the effect's type; what
    /// the store says.
    pub async fn resolve(
        &self,
        run: impl AsRef<str>,
        step: StepNo,
        attempt: Attempt,
        resolution: Resolution,
    ) -> Result<(), Error> {
        let id = RunId::new(run)?;
        let shared = &self.inner.shared;
        let record = self.record(&id).await?;
        let _one_at_a_time = self.inner.resolving.lock().await;
        let cell = shared.runs().get(&id).cloned();
        // First the rows, then the look: a word that is in neither was never given.
        let given = id.clone();
        let given = shared.read(move |store| store.rows(&given)).await?;
        let mut look = match &cell {
            Some(cell) => look(cell).await,
            None => Look::default(),
        };
        let hold = look.holds.into_iter().chain(look.reconciling).find(|hold| hold.step == step);
        let Some(hold) = hold else {
            let state = self.info(id.clone(), &record).await.status.as_str().to_owned();
            return Err(Kind::NotInDoubt { run: id, step, state: format!("the run is {state}") }.into());
        };
        if hold.attempt != attempt {
            return Err(Kind::StaleAttempt { run: id, step, given: attempt, current: hold.attempt }.into());
        }
        let how = verdict(&id, &hold, look.returns.remove(&step), resolution.verdict, shared.value_bytes_max)?;
        let row = Message::Resolve { generation: record.head.generation, step, attempt, how, by: resolution.by }.row();
        if given.iter().any(|given| given.id == row.id) {
            let state = "a word on it was given before, and the run has not taken it yet".into();
            return Err(Kind::NotInDoubt { run: id, step, state }.into());
        }
        let (done, wait) = oneshot::channel();
        let told = row.clone();
        // The run is told where the word is known to be durable: a caller that stops waiting changes nothing.
        let put = move |result: Result<Written, StoreError>| {
            if let (Ok(_), Some(cell)) = (&result, cell) {
                cell.tell(Input::Row(told));
            }
            let _ = done.send(result);
        };
        shared.store.submit(Write::Put { run: id, row }, Box::new(put));
        wait.await.unwrap_or(Err(StoreError::Closed))?;
        Ok(())
    }

    /// Goes on with a parked run. If the reason is still there it is parked again.
    ///
    /// # Errors
    ///
    /// There is no such run, or it is not parked.
    pub async fn retry(&self, run: impl AsRef<str>) -> Result<(), Error> {
        let id = RunId::new(run)?;
        let cell = self.inner.shared.runs().get(&id).cloned();
        if let Some(cell) = cell
            && matches!(*cell.phase.borrow(), Phase::Parked(_) | Phase::NoCode { .. })
        {
            let mut phase = cell.phase.subscribe();
            phase.mark_unchanged();
            cell.tell(Input::Retry);
            // It is not parked any more when this returns; where it gets to is another question.
            let _ = phase.changed().await;
            return Ok(());
        }
        let record = self.record(&id).await?;
        let state = self.info(id.clone(), &record).await.status.as_str().to_owned();
        Err(Kind::NotParked { run: id, state }.into())
    }

    /// Stops: no run is polled any more, no body begins; bodies under way have `grace` to return, and what they return is kept. Then the store
    /// is closed and can be opened again.
    ///
    /// # Errors
    ///
    /// What the store says when it is closed.
    pub async fn shutdown(&self, grace: Duration) -> Result<ShutdownReport, Error> {
        let shared = &self.inner.shared;
        shared.closing.send_replace(true);
        tokio::select! {
            () = idle(shared) => {}
            () = pass(&*shared.clock, grace) => {}
        }
        let abandoned: Vec<RunningBody> = self.bodies();
        shared.abandon.send_replace(true);
        idle(shared).await;
        shared.read(|store| store.close()).await?;
        Ok(ShutdownReport { abandoned })
    }
}

/// A person's word, checked against what the effect can return.
fn verdict(run: &RunId, hold: &Hold, returns: Option<Returns>, given: Given, limit: usize) -> Result<Verdict, Error> {
    let fitting = |given: Both| -> Result<Value, Error> {
        let value = if returns.is_some_and(|returns| returns.is_result) { given.wrapped } else { given.plain };
        let unfit = |error| Kind::ValueDoesNotFit { run: run.clone(), effect: hold.effect.clone(), error };
        let value = value.map_err(unfit)?;
        if value.len() > limit {
            let what = format!("the value for step {} of run {run}", hold.step);
            return Err(Kind::TooLarge { what, size: value.len(), limit }.into());
        }
        if let Some(returns) = &returns {
            // JSON says in better words what it expected.
            let in_words = |error| (returns.check)(&Value::from_json(&value.to_json())).err().unwrap_or(error);
            (returns.check)(&value).map_err(|error| unfit(in_words(error)))?;
        }
        Ok(value)
    };
    Ok(match given {
        Given::Succeeded(given) => Verdict::Succeeded(fitting(given)?),
        Given::FailedWith(given) => Verdict::FailedWith(fitting(given)?),
        Given::Failed(reason) => Verdict::Failed(reason),
        Given::RunAgain => Verdict::RunAgain,
    })
}

/// Waits until no run has a task.
async fn idle(shared: &Shared) {
    loop {
        let idle = shared.idle.notified();
        if shared.tasks.load(Ordering::SeqCst) == 0 {
            return;
        }
        idle.await;
    }
}

/// Where a run in memory stands.
async fn live_status(cell: &RunCell, started_at: Millis) -> (Status, Millis) {
    loop {
        let phase = cell.phase.borrow().clone();
        return match phase {
            Phase::Parked(parked) => (Status::Parked(parked.public()), parked.since),
            Phase::NoCode { workflow, module, since } => (Status::WaitingForCode { workflow, module }, since),
            Phase::Ended(end) => (status_of(&end), started_at),
            Phase::Opening | Phase::Gone => (Status::Opening, started_at),
            Phase::Live => {
                let look = look(cell).await;
                match look.status {
                    Some(status) => (status, look.last_at.max(started_at)),
                    // Its life is over: it gets further at once.
                    None => {
                        let _ = cell.phase.subscribe().wait_for(|phase| !matches!(phase, Phase::Live)).await;
                        continue;
                    }
                }
            }
        };
    }
}

async fn look(cell: &RunCell) -> Look {
    let (answer, wait) = oneshot::channel();
    let mut phase = cell.phase.subscribe();
    cell.tell(Input::Look(answer));
    tokio::select! {
        look = wait => look.unwrap_or_default(),
        // Its task is over, and does not answer any more.
        _ = phase.wait_for(|phase| matches!(phase, Phase::Ended(_) | Phase::Gone)) => Look::default(),
    }
}

fn status_of(end: &End<'_>) -> Status {
    match end {
        End::Completed { .. } => Status::Completed,
        End::Failed { message, .. } => Status::Failed { message: message.to_string() },
    }
}

/// Whether a stored run was started with this workflow: by its explicit name, or by its name and module.
fn is_code_of(meta: &WorkflowMeta, started: &RunStarted<'_>) -> bool {
    meta.name == started.workflow && (meta.explicit_name || started.explicit_name || meta.module == started.module)
}

fn find_code(
    started_here: &Mutex<HashMap<(String, String), &'static WorkflowMeta>>,
    started: &RunStarted<'_>,
) -> Option<&'static WorkflowMeta> {
    let linked = inventory::iter::<Registered>.into_iter().find_map(|r| match r {
        Registered::Workflow(meta) if is_code_of(meta, started) => Some(*meta),
        _ => None,
    });
    linked.or_else(|| lock(started_here).values().copied().find(|meta| is_code_of(meta, started)))
}

/// The first entry of a run's log, and its head.
fn first_record(
    meta: &WorkflowMeta,
    args: &Args,
    digest: u128,
    at: Millis,
) -> Result<(crate::store::Head, Bytes), Error> {
    let mut seed = [0u8; 16];
    getrandom::fill(&mut seed)
        .map_err(|e| StoreError::Io { doing: "read the system's entropy".into(), error: e.to_string().into() })?;
    let entry = Entry {
        at,
        kind: EntryKind::RunStarted(RunStarted {
            workflow: meta.name.into(),
            module: meta.module.into(),
            explicit_name: meta.explicit_name,
            args: (&**args.value().as_bytes()).into(),
            digest,
            build: env!("CARGO_PKG_VERSION").into(),
            seed: u128::from_le_bytes(seed),
        }),
    };
    let mut frames = BytesMut::new();
    entry.write(&mut frames).map_err(|e| StoreError::Rejected { reason: e.to_string().into() })?;
    let head = HeadInfo {
        workflow: meta.name.to_owned(),
        module: meta.module.to_owned(),
        started_at: at,
        ended_at: None,
        failure: None,
    };
    Ok((head.head(Generation(0)), frames.freeze()))
}

pub(crate) fn signals() -> (watch::Sender<bool>, watch::Sender<bool>, AtomicUsize, Notify) {
    (watch::Sender::new(false), watch::Sender::new(false), AtomicUsize::new(0), Notify::new())
}
