//! Going on in a fresh log.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Step, only_in_workflows, sealed::Sealed, spawn::Spawn};
use crate::{
    contract::{Site, WorkflowMeta},
    core::with,
    value::{Args, ValueError},
};

/// Ends this log, and lets the run go on with `call` in a fresh one: so an agent can live for years, and no replay gets longer than
/// its last log. It is never ready; its type is that of the call's result, so that it can be the last expression of a workflow.
///
/// Everything that is the run's stays: its id, its handles, its parent, the messages not taken yet, the compensations that were
/// registered with [`undo`](crate::undo). What is only this log's ends as at any other end: steps that are open are closed,
/// children that are not detached are cancelled, and the fresh log begins when all of them and the effects' bodies have ended. What the
/// next one must know, give it as arguments.
///
/// Where the run is being cancelled there is no fresh log: it ends as cancelled. Arguments that cannot be recorded, or that every
/// replay would see otherwise (a `HashSet` inside), park the run.
///
/// ```
/// #[durable::workflow]
/// async fn counter(sum: u64, left: u32) -> u64 {
///     let sum = sum + durable::signal::<u64>("add").await;
///     if left == 1 {
///         return sum;
///     }
///     durable::restart_as(counter(sum, left - 1)).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", counter(0, 3)).await?;
/// for n in [1, 20, 300] {
///     run.signal("add", &n).await?;
/// }
/// assert_eq!(run.returned().await?, 321);
/// # Ok(())
/// # }
/// ```
pub fn restart_as<R, C: Spawn<R>>(call: C) -> Restarting<R> {
    let call = call.into_call();
    Restarting { meta: call.meta, args: call.lasting_args(), _returns: PhantomData }
}

/// See [`restart_as`].
#[must_use = "the run goes on in a fresh log when a workflow awaits this"]
pub struct Restarting<R> {
    meta: &'static WorkflowMeta,
    /// Only if they will be the same on every replay.
    args: Result<(Args, u128), ValueError>,
    _returns: PhantomData<fn() -> R>,
}

only_in_workflows!([R] Restarting<R>);

impl<R> std::fmt::Debug for Restarting<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restarting").field("workflow", &self.meta.name).field("args", &self.args).finish()
    }
}

impl<R> Sealed for Restarting<R> {}

impl<R> Step for Restarting<R> {
    type Output = R;
    type Future = RestartFuture<R>;

    fn into_future(self, site: &'static Site) -> RestartFuture<R> {
        RestartFuture { restarting: Some(self), site }
    }
}

/// The end of a log.
#[doc(hidden)]
pub struct RestartFuture<R> {
    restarting: Option<Restarting<R>>,
    site: &'static Site,
}

impl<R> Future for RestartFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        if let Some(Restarting { meta, args, .. }) = self.restarting.take() {
            let site = self.site;
            with(|core| core.restart_as(meta, args, site));
        }
        Poll::Pending
    }
}
