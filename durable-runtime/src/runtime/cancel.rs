//! Cancelling runs.

use std::{fmt, future::IntoFuture, sync::atomic::Ordering};

use super::{
    AnyRun, Request, Runtime,
    run::{EndIn, Patience},
};
use crate::{
    error::{Error, Kind},
    failure::shortened,
    id::{RunId, RunIdError},
    mailbox::Message,
    store::{Addressee, Row, StoreError, Written},
    view::{Status, status_of_end},
};

/// A request to cancel a run, made when this is awaited: see [`Runtime::cancel`].
#[must_use = "it is made when it is awaited"]
pub struct CancelRequest {
    runtime: Runtime,
    run: Result<RunId, RunIdError>,
    reason: String,
    by: String,
}

impl fmt::Debug for CancelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelRequest").field("run", &self.run).field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl CancelRequest {
    fn new(runtime: Runtime, run: Result<RunId, RunIdError>, reason: String) -> CancelRequest {
        CancelRequest { runtime, run, reason: shortened(&reason).into_owned(), by: "a person".into() }
    }

    /// Says who asks; recorded in the log.
    pub fn by(mut self, who: impl Into<String>) -> CancelRequest {
        self.by = shortened(&who.into()).into_owned();
        self
    }
}

impl CancelRequest {
    /// Makes the request, and does not wait for what comes of it: it stands when this returns.
    pub(crate) async fn stand(&self) -> Result<AnyRun, Error> {
        let (runtime, id) = (self.runtime.clone(), self.run.clone()?);
        let row = Message::Cancel { reason: self.reason.clone(), by: self.by.clone(), parent: None }.row();
        if let Some(cell) = runtime.shared().runs().get(&id) {
            // Of what comes of this request nothing is known yet.
            cell.not_cancelled.store(false, Ordering::Relaxed);
        }
        let put = |row| runtime.shared().put(id.clone(), row, Addressee::Unfinished);
        let mut put_it = put(row.clone()).await;
        if let Ok(Written::Exists) = put_it {
            // The run has taken one, and may have been parked since: another one makes it end without its code.
            let mut fresh = [0; 16];
            getrandom::fill(&mut fresh).map_err(|e| StoreError::Io {
                doing: "read the system's entropy".into(),
                error: e.to_string().into(),
            })?;
            put_it = put(Row { id: u128::from_le_bytes(fresh), ..row }).await;
        }
        match put_it {
            Ok(_) => Ok(AnyRun { id, runtime }),
            Err(StoreError::NoSuchRun) => Err(Kind::RunNotFound(id).into()),
            Err(e) => Err(e.into()),
        }
    }
}

impl IntoFuture for CancelRequest {
    type Output = Result<Status, Error>;
    type IntoFuture = Request<Status>;

    fn into_future(self) -> Request<Status> {
        Box::pin(async move {
            let run = self.stand().await?;
            run.cancelled().await
        })
    }
}

impl AnyRun {
    /// Waits for the end of a run that is to be cancelled.
    pub(crate) async fn cancelled(&self) -> Result<Status, Error> {
        match self.end(Patience::Cancelled).await? {
            EndIn::Here(end) => Ok(status_of_end(&end)),
            EndIn::Store(_) => self.status().await,
        }
    }
}

impl Runtime {
    /// Cancels a run, and waits until it has ended. The answer is its end: [`Status::Cancelled`], or, if its code returned before the
    /// cancel reached it, [`Status::Completed`] or [`Status::Failed`]. A run that has ended already is answered for at once, and cancelling
    /// twice is cancelling.
    ///
    /// A cancelled run asks for nothing new outside of a `durable::shield`; bodies of effects that others could notice come to their end
    /// first ([`crate::Builder::cancel_grace`]), so do the runs that it has spawned, and what it registered with `durable::undo` is called.
    /// A run that is parked or waits for code is cancelled too, without its code. A step in doubt is not waited for: it is left so, and
    /// nobody is asked about it any more.
    ///
    /// # Errors
    ///
    /// There is no such run; what the store says; and [`crate::Code::NotCancelledYet`] if the run cannot end now: its log is damaged, what is to be undone
    /// needs an effect that is not in this binary, the runtime only observes, or is shut down. Then the request stands, and the run is
    /// cancelled as soon as it can be. So does that of a run whose code has taken the cancel and is parked in a shield: mended code does what
    /// it still has to do there, and another request ends the run without its code.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped once the request is durable, the request stands.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Runtime, Status};
    /// # use std::time::Duration;
    /// #[durable::workflow]
    /// async fn patient() -> durable::Result<()> {
    ///     durable::sleep(Duration::from_secs(86_400)).await;
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// runtime.start("p-1", patient()).await?;
    /// let end = runtime.cancel("p-1", "no longer needed").by("ann").await?;
    /// assert_eq!(end, Status::Cancelled { reason: "no longer needed".into() });
    /// assert_eq!(runtime.cancel("p-1", "again").await?, end);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, run: impl AsRef<str>, reason: impl Into<String>) -> CancelRequest {
        CancelRequest::new(self.clone(), RunId::new(run), reason.into())
    }
}

impl AnyRun {
    /// Cancels this run: see [`Runtime::cancel`].
    ///
    /// # Errors
    ///
    /// As [`Runtime::cancel`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Runtime, Status};
    /// #[durable::workflow]
    /// async fn waits() -> durable::Result<String> {
    ///     Ok(durable::signal("go").await)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("w-1", waits()).await?;
    /// assert!(matches!(run.cancel("enough").await?, Status::Cancelled { .. }));
    /// assert!(run.output().await.unwrap_err().is_run_cancelled());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, reason: impl Into<String>) -> CancelRequest {
        CancelRequest::new(self.runtime.clone(), Ok(self.id.clone()), reason.into())
    }
}
