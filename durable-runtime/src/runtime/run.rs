//! Handles of runs.

use std::{fmt, marker::PhantomData, sync::atomic::Ordering};

use super::Runtime;
use crate::{
    entry::{End, Entry, Kind as EntryKind, decode, next_frame},
    error::{Error, Kind},
    id::{Generation, RunId, Seq},
    store::{Record, Store, StoreError},
    value::{Recordable, Value},
    view::{LogEntry, RunInfo, Status, read_log},
    worker::{Phase, key_prefix},
};

/// A run of a workflow that returns `R`.
pub struct Run<R> {
    pub(super) run: AnyRun,
    pub(super) _returns: PhantomData<fn() -> R>,
}

impl<R> Clone for Run<R> {
    fn clone(&self) -> Self {
        Run { run: self.run.clone(), _returns: PhantomData }
    }
}

impl<R> fmt::Debug for Run<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)
    }
}

impl<R> std::ops::Deref for Run<R> {
    type Target = AnyRun;

    fn deref(&self) -> &AnyRun {
        &self.run
    }
}

impl<T, E> Run<Result<T, E>>
where
    Result<T, E>: Recordable,
{
    /// Waits until the run has ended and gives what its workflow returned as `Ok`.
    ///
    /// # Errors
    ///
    /// [`Error::is_run_failed`] if it returned an `Err`; [`Error::parked`] if the run is parked, or waits for code, so that it will not end
    /// by itself; what the store says.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn output(&self) -> Result<T, Error> {
        let id = self.run.id.clone();
        match self.run.ended().await? {
            Ended { ok: true, value, .. } => match value.decode::<Result<T, E>>() {
                Ok(Ok(out)) => Ok(out),
                Ok(Err(_)) => {
                    unreachable!("run.completed holds an Ok, or the whole value of a workflow that returns no Result")
                }
                Err(error) => Err(Kind::OtherType { run: id, error }.into()),
            },
            Ended { ok: false, value, message } => Err(Kind::RunFailed { run: id, message, value }.into()),
        }
    }
}

impl<R: Recordable> Run<R> {
    /// Waits until the run has ended and gives all that its workflow returned: an `Err` of a workflow is `Ok(Err(_))`.
    ///
    /// # Errors
    ///
    /// [`Error::parked`] if the run is parked, or waits for code; what the store says.
    pub async fn returned(&self) -> Result<R, Error> {
        self.run.returned_as().await
    }
}

/// A run, whatever its workflow returns.
#[derive(Clone)]
pub struct AnyRun {
    pub(super) id: RunId,
    pub(super) runtime: Runtime,
}

impl fmt::Debug for AnyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish_non_exhaustive()
    }
}

struct Ended {
    ok: bool,
    value: Value,
    message: String,
}

impl From<&End<'_>> for Ended {
    fn from(end: &End<'_>) -> Self {
        match end {
            End::Completed { value } => {
                Ended { ok: true, value: Value::from_bytes(value.to_vec().into()), message: String::new() }
            }
            End::Failed { value, message } => {
                Ended { ok: false, value: Value::from_bytes(value.to_vec().into()), message: message.to_string() }
            }
        }
    }
}

impl AnyRun {
    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Waits until the run has ended and gives all that its workflow returned.
    ///
    /// # Errors
    ///
    /// As [`Run::returned`]; and if the run's output is no `R`.
    pub async fn returned_as<R: Recordable>(&self) -> Result<R, Error> {
        let ended = self.ended().await?;
        ended.value.decode().map_err(|error| Kind::OtherType { run: self.id.clone(), error }.into())
    }

    async fn ended(&self) -> Result<Ended, Error> {
        let cell = self.runtime.inner.shared.runs().get(&self.id).cloned();
        let Some(cell) = cell else { return self.ended_in_store().await };
        let mut phase = cell.phase.subscribe();
        let settled = phase
            .wait_for(|phase| !matches!(phase, Phase::Opening | Phase::Live))
            .await
            .map(|phase| phase.clone())
            .unwrap_or(Phase::Gone);
        match settled {
            Phase::Ended(end) => Ok(Ended::from(&*end)),
            Phase::Parked(parked) => Err(Kind::Parked { run: self.id.clone(), parked: parked.public() }.into()),
            Phase::NoCode { workflow, module, .. } => {
                Err(Kind::WaitingForCode { run: self.id.clone(), workflow, module }.into())
            }
            _ => Err(Kind::Closed.into()),
        }
    }

    /// The end of a run that is not in memory: its terminal entry.
    async fn ended_in_store(&self) -> Result<Ended, Error> {
        let record = self.runtime.record(&self.id).await?;
        if record.head.live {
            return Err(Kind::Closed.into());
        }
        let records = self.records(record.head.generation).await?;
        let mut ended = None;
        for record in records {
            let mut frames = record.frames;
            while let Ok(Some(frame)) = next_frame(&mut frames) {
                if let Ok(Entry { kind: EntryKind::RunEnded(end), .. }) = decode(&frame) {
                    ended = Some(Ended::from(&end));
                }
            }
        }
        ended.ok_or_else(|| self.runtime.damaged(&self.id, Seq(0), "its terminal entry is missing".into()).into())
    }

    async fn records(&self, generation: Generation) -> Result<Vec<Record>, Error> {
        let id = self.id.clone();
        let all = self.runtime.inner.shared.read(move |store| all_records(store, &id, generation)).await?;
        Ok(all)
    }

    /// Where the run stands.
    ///
    /// # Errors
    ///
    /// There is no such run; what the store says.
    pub async fn status(&self) -> Result<Status, Error> {
        Ok(self.info().await?.status)
    }

    /// The run as [`Runtime::runs`] lists it.
    ///
    /// # Errors
    ///
    /// As [`AnyRun::status`].
    pub async fn info(&self) -> Result<RunInfo, Error> {
        let record = self.runtime.record(&self.id).await?;
        Ok(self.runtime.info(self.id.clone(), &record).await)
    }

    /// The run's log as far as it is durable. Each entry is written as a line of JSON by its `Display`.
    ///
    /// # Errors
    ///
    /// There is no such run; what the store says; an entry that is damaged.
    pub async fn log(&self) -> Result<Vec<LogEntry>, Error> {
        let record = self.runtime.record(&self.id).await?;
        let shown = || match self.runtime.inner.shared.runs().get(&self.id) {
            Some(cell) if matches!(*cell.phase.borrow(), Phase::Live) => cell.durable.load(Ordering::Acquire),
            _ => u64::MAX,
        };
        // Before the read: what is durable now is in the store then. After it: a run that was being opened may have
        // appended since what is not durable.
        let before = shown();
        let records = self.records(record.head.generation).await?;
        let len = if before == u64::MAX { shown() } else { before };
        let shared = &self.runtime.inner.shared;
        let (place, prefix) = (&shared.store.about().place, key_prefix(shared, &self.id, record.head.generation));
        Ok(read_log(&self.id, place, records, len, &prefix)?)
    }
}

fn all_records(store: &dyn Store, run: &RunId, generation: Generation) -> Result<Vec<Record>, StoreError> {
    let (mut all, mut at) = (Vec::new(), Seq(0));
    loop {
        let page = store.read(run, generation, at, 1 << 20)?;
        let Some(last) = page.last() else { return Ok(all) };
        at = last.first.plus(last.count.into());
        all.extend(page);
    }
}
