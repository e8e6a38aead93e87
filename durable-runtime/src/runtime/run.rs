//! Handles of runs.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
};

use super::Runtime;
use crate::{
    entry::{End, Entry, Kind as EntryKind, decode, next_frame},
    error::{Error, Kind},
    head::{Aside, ParkedInfo},
    id::{Generation, RunId, Seq},
    store::{Record, RunRecord, Store, StoreError, Write},
    value::{Recordable, Value},
    view::{LogEntry, LogReader, RunInfo, Status, StepTable, StepView},
    worker::{Followed, Phase, key_prefix},
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
        match self.end(Patience::Output).await? {
            EndIn::Here(end) => self.ended_as(&end),
            EndIn::Store(record) => self.ended_in_store(&record).await,
        }
    }

    /// Waits until the run has ended.
    pub(super) async fn end(&self, patience: Patience) -> Result<EndIn, Error> {
        let shared = self.runtime.shared();
        loop {
            // Followed first: what happens after the look at the store is not missed.
            let Followed { phase, cell, .. } = &mut shared.follow(&self.id);
            let not_here = matches!(*phase.borrow_and_update(), Phase::Asleep | Phase::Gone | Phase::Ended(_));
            if not_here {
                let leaving = shared.is_leaving(&self.id);
                let record = self.runtime.record(&self.id).await?;
                if !record.head.live {
                    return Ok(EndIn::Store(record));
                }
                if shared.is_closing() {
                    return Err(self.not_here(patience, Some(&record)));
                }
                if !leaving && !record.is_waiting() {
                    // Not ended, in no memory, and waiting for nothing: nobody else has it go on.
                    shared.nudge(&self.id);
                }
            }
            let mut closing = shared.closing.subscribe();
            let is_over = |phase: &Phase| match phase {
                Phase::Opening | Phase::Live | Phase::Asleep => false,
                // It is tried without its code; only if that has failed it stays where it is.
                Phase::Parked(_) | Phase::NoCode { .. } if patience == Patience::Cancelled => {
                    cell.not_cancelled.load(Ordering::Relaxed)
                }
                _ => true,
            };
            let settled = tokio::select! {
                settled = phase.wait_for(is_over) => settled.map(|phase| phase.clone()).unwrap_or(Phase::Gone),
                _ = closing.wait_for(|closing| *closing) => Phase::Gone,
            };
            return match settled {
                Phase::Ended(end) => Ok(EndIn::Here(end)),
                Phase::Parked(parked) => Err(self.parked(patience, &parked)),
                Phase::NoCode { workflow, module, .. } => {
                    Err(Kind::WaitingForCode { run: self.id.clone(), workflow, module }.into())
                }
                _ if shared.is_closing() => Err(self.not_here(patience, None)),
                // Somebody else has claimed it, or the store takes nothing any more.
                _ => {
                    shared.write(Write::Barrier).await?;
                    continue;
                }
            };
        }
    }

    fn parked(&self, patience: Patience, parked: &ParkedInfo) -> Error {
        let run = self.id.clone();
        match patience {
            Patience::Output => Kind::Parked { run, parked: parked.public() }.into(),
            Patience::Cancelled => {
                let why = format!("it is parked: {}; {}", parked.why, parked.next);
                Kind::NotCancelledYet { run, why }.into()
            }
        }
    }

    /// It has not ended, and goes on elsewhere or later.
    fn not_here(&self, patience: Patience, record: Option<&RunRecord>) -> Error {
        let (run, observing) = (self.id.clone(), self.runtime.shared().observing);
        match (patience, record.and_then(|record| Aside::read(record.aside.as_ref()).parked)) {
            (Patience::Output, Some(parked)) => self.parked(patience, &parked),
            (Patience::Output, None) if observing => Kind::Observing { run }.into(),
            (Patience::Output, None) => Kind::Closed.into(),
            (Patience::Cancelled, _) => {
                let why = match observing {
                    true => "no process goes on with it, and this runtime only observes",
                    false => "the runtime is shut down",
                };
                Kind::NotCancelledYet { run, why: why.to_owned() }.into()
            }
        }
    }

    fn ended_as(&self, end: &End<'_>) -> Result<Ended, Error> {
        match end {
            End::Completed { value } => {
                Ok(Ended { ok: true, value: Value::from_bytes(value.to_vec().into()), message: String::new() })
            }
            End::Failed { value, message } => {
                Ok(Ended { ok: false, value: Value::from_bytes(value.to_vec().into()), message: message.to_string() })
            }
            End::Cancelled { reason, by } => {
                Err(Kind::RunCancelled { run: self.id.clone(), reason: reason.to_string(), by: by.to_string() }.into())
            }
            End::Restarted { .. } => unreachable!("a run that goes on in a fresh log has not ended"),
        }
    }

    /// The end of a run that is not in memory: its terminal entry.
    async fn ended_in_store(&self, record: &RunRecord) -> Result<Ended, Error> {
        let records = self.records(record.head.generation).await?;
        let mut ended = None;
        for record in records {
            let mut frames = record.frames;
            while let Ok(Some(frame)) = next_frame(&mut frames) {
                if let Ok(Entry { kind: EntryKind::RunEnded(end), .. }) = decode(&frame) {
                    ended = Some(self.ended_as(&end));
                }
            }
        }
        ended.unwrap_or_else(|| {
            Err(self.runtime.damaged(&self.id, Seq(0), "its terminal entry is missing".into()).into())
        })
    }

    async fn records(&self, generation: Generation) -> Result<Vec<Record>, Error> {
        let id = self.id.clone();
        Ok(self.runtime.shared().read(move |store| all_records(store, &id, generation)).await?)
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
        self.runtime.info(&self.id).await
    }

    /// The run's newest log as far as it is durable. Each entry is written as a line of JSON by its `Display`.
    ///
    /// # Errors
    ///
    /// There is no such run; what the store says; an entry that is damaged.
    pub async fn log(&self) -> Result<Vec<LogEntry>, Error> {
        let record = self.runtime.record(&self.id).await?;
        self.read_log(record.head.generation).await
    }

    /// How many logs the run has: one, and one more for each time that it went on in a fresh one (`durable::restart_as`).
    ///
    /// # Errors
    ///
    /// There is no such run; what the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// #[durable::workflow]
    /// async fn lives(n: u32) -> durable::Result<u32> {
    ///     if n < 2 {
    ///         return durable::restart_as(lives(n + 1)).await;
    ///     }
    ///     Ok(n)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("lives", lives(0)).await?;
    /// assert_eq!(run.output().await?, 2);
    /// assert_eq!(run.generations().await?, 3);
    /// let first = run.log_of(0).await?;
    /// assert_eq!(first.last().map(|entry| entry.name), Some("run.restarted"));
    /// assert_eq!(run.log().await?.last().map(|entry| entry.name), Some("run.completed"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn generations(&self) -> Result<u32, Error> {
        let record = self.runtime.record(&self.id).await?;
        let durable = self.durable().map_or(record.head.generation, |(generation, _)| generation);
        Ok(record.head.generation.min(durable).0.saturating_add(1))
    }

    /// One of the run's logs, as [`AnyRun::log`]; the first is number 0.
    ///
    /// # Errors
    ///
    /// As [`AnyRun::log`]; there is no such log ([`crate::Code::LogNotFound`]).
    pub async fn log_of(&self, generation: u32) -> Result<Vec<LogEntry>, Error> {
        let generation = Generation(generation);
        let newest = Generation(self.generations().await?.saturating_sub(1));
        if generation > newest {
            return Err(Kind::LogNotFound { run: self.id.clone(), log: generation, newest }.into());
        }
        self.read_log(generation).await
    }

    /// The steps of the run's newest log, in the order in which the code asked for them, as far as they are durable.
    ///
    /// # Errors
    ///
    /// As [`AnyRun::log`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Contract, Runtime, StepKind, StepState};
    /// #[durable::effect(read_only)]
    /// async fn look_up(order: &str) -> durable::Result<u32> {
    ///     Ok(order.len() as u32)
    /// }
    ///
    /// #[durable::workflow]
    /// async fn counts(order: String) -> durable::Result<u32> {
    ///     look_up(&order).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("counts", counts("ORD-3300".into())).await?;
    /// run.output().await?;
    /// let steps = run.steps().await?;
    /// assert_eq!((steps[0].kind, &*steps[0].what, steps[0].attempts), (StepKind::Effect, "look_up", 1));
    /// assert_eq!((steps[0].contract, &steps[0].state), (Some(Contract::ReadOnly), &StepState::Done));
    /// assert_eq!(steps[0].outcome, Some(8.into()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn steps(&self) -> Result<Vec<StepView>, Error> {
        let record = self.runtime.record(&self.id).await?;
        let (records, len) = self.durable_records(record.head.generation).await?;
        let mut table = StepTable::default();
        table.read(records, len).map_err(|stop| self.runtime.unreadable(&self.id, &stop))?;
        Ok(table.into_steps())
    }

    async fn read_log(&self, generation: Generation) -> Result<Vec<LogEntry>, Error> {
        let (records, len) = self.durable_records(generation).await?;
        Ok(self.log_reader(generation).read(records, len)?)
    }

    /// Reads a log of the run from its beginning on.
    pub(crate) fn log_reader(&self, generation: Generation) -> LogReader {
        let shared = self.runtime.shared();
        let (place, prefix) = (shared.store.about().place.clone(), key_prefix(shared, &self.id, generation));
        LogReader::new(self.id.clone(), place, prefix)
    }

    /// The entries of a log that follow what `reader` has read, up to about so many bytes of it, as far as they are durable.
    pub(crate) async fn log_page(
        &self,
        reader: &mut LogReader,
        generation: Generation,
        bytes: usize,
    ) -> Result<Vec<LogEntry>, Error> {
        let (id, from) = (self.id.clone(), reader.next());
        let before = self.shown(generation);
        let records = self.runtime.shared().read(move |store| store.read(&id, generation, from, bytes)).await?;
        let len = before.or_else(|| self.shown(generation)).unwrap_or(u64::MAX);
        Ok(reader.read(records, len)?)
    }

    /// A whole log, and how many of its entries are known to be durable.
    async fn durable_records(&self, generation: Generation) -> Result<(Vec<Record>, u64), Error> {
        // Before the read: what is durable now is in the store then. After it: a run that was being opened may have
        // appended since what is not durable.
        let before = self.shown(generation);
        let records = self.records(generation).await?;
        Ok((records, before.or_else(|| self.shown(generation)).unwrap_or(u64::MAX)))
    }

    /// How far a log may be shown, if it is not all that the store has of it.
    fn shown(&self, generation: Generation) -> Option<u64> {
        match self.durable()? {
            (newest, len) if newest == generation => Some(len.0),
            (newest, _) if newest < generation => Some(0),
            _ => None,
        }
    }

    /// The newest log of a run that is live, and how much of it is durable.
    fn durable(&self) -> Option<(Generation, Seq)> {
        let cell = self.runtime.shared().runs().get(&self.id).cloned()?;
        let live = matches!(*cell.phase.borrow(), Phase::Live);
        live.then(|| *cell.durable.borrow())
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

/// For what somebody waits for a run's end.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Patience {
    /// For what it gives: a run that is parked, or waits for code, gives nothing by itself.
    Output,
    /// It is to be cancelled, which needs no code.
    Cancelled,
}

/// A run's end.
pub(super) enum EndIn {
    Here(Arc<End<'static>>),
    /// In its log.
    Store(RunRecord),
}
