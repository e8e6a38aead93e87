//! Compensations: what is called if the run fails or is cancelled.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Name, Step, call::EffectCall, named, only_in_workflows, sealed::Sealed};
use crate::{
    contract::{EffectMeta, Site},
    core::with,
    value::{Args, ValueError},
};

/// What can undo something: the call of an effect.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot undo anything",
    label = "not the call of an effect",
    note = "what undoes is kept as data and called from the log alone, even if the workflow's code is gone: only the call of a `#[durable::effect]` can be kept so"
)]
pub trait Undo: Sealed {
    #[doc(hidden)]
    fn into_undoing(self) -> Undoing;
}

impl<R> Undo for EffectCall<R> {
    fn into_undoing(self) -> Undoing {
        let name = format!("undo:{}", self.name).into();
        let (meta, key) = (self.meta, self.key.clone());
        Undoing { name, meta, key, args: self.lasting_args() }
    }
}

/// Registers a compensation: a call that is made if the run fails or is cancelled. Ready at once; the call's outcome is nobody's.
///
/// The calls are made one at a time, the one registered last first, once nothing of the run is under way any more (its effects' bodies
/// have ended, or it is certain that no request of theirs can arrive any more; its children have ended). They are recorded steps like others,
/// with keys of their own and the effect's own retries; one that uses those up, or fails without, waits for a person
/// ([`Runtime::resolve`](crate::Runtime::resolve)), and the others wait for it. All this is done from the log: also if the code has changed
/// or is gone. Only the effect must be in the binary.
///
/// Register it *before* the act where undoing what never happened is harmless (then no crash can leave the act without it), else right
/// after. It is the one step that may still be asked where the run is being cancelled. A run that completes drops its list; one that
/// goes on with [`restart_as`](crate::restart_as) takes it along.
///
/// Arguments that cannot be recorded, or that every replay would see otherwise (a `HashSet` inside), park the run.
///
/// ```
/// # #[durable::effect(idempotent)]
/// # async fn book(room: &str) -> durable::Result<String> { Ok(room.to_owned()) }
/// # #[durable::effect(idempotent)]
/// # async fn cancel_booking(room: &str) -> durable::Result<()> { Ok(()) }
/// # #[durable::effect(read_only)]
/// # async fn find_flight() -> durable::Result<String> { Err(durable::Failure::new("no seat left")) }
/// #[durable::workflow]
/// async fn travel(room: String) -> durable::Result<String> {
///     durable::undo(cancel_booking(&room)).await;
///     let room = book(&room).await?;
///     let flight = find_flight().await?; // fails: then the booking is cancelled
///     Ok(format!("{room}, {flight}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", travel("12".into())).await?;
/// assert!(run.output().await.is_err());
/// let log: Vec<_> = run.log().await?.iter().map(|entry| entry.name).collect();
/// assert_eq!(log[1], "undo.added");
/// assert_eq!(log[log.len() - 4..], ["run.ending", "effect.called", "effect.result", "run.failed"]);
/// # Ok(())
/// # }
/// ```
pub fn undo<C: Undo>(call: C) -> Undoing {
    call.into_undoing()
}

/// See [`undo`].
#[must_use = "the compensation is registered when a workflow awaits this"]
#[derive(Debug)]
pub struct Undoing {
    name: Name,
    meta: &'static EffectMeta,
    key: Option<String>,
    /// Only if they will be the same on every replay.
    args: Result<(Args, u128), ValueError>,
}

named!([] Undoing);
only_in_workflows!([] Undoing);

impl Sealed for Undoing {}

impl Step for Undoing {
    type Output = ();
    type Future = UndoFuture;

    fn into_future(self, site: &'static Site) -> UndoFuture {
        UndoFuture { undoing: Some(self), site }
    }
}

/// A compensation that is being registered.
#[doc(hidden)]
pub struct UndoFuture {
    undoing: Option<Undoing>,
    site: &'static Site,
}

impl Future for UndoFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let Some(Undoing { name, meta, key, args }) = self.undoing.take() else { return Poll::Pending };
        let site = self.site;
        match with(|core| core.add_undo(name, meta, args, key, site)) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
