//! What a workflow can do about its own cancel: put it off, and hear of it.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Name, Step, named, only_in_workflows, poll_in, sealed::Sealed};
use crate::{
    contract::Site,
    core::{OpenScope, try_with, with},
};

/// Keeps a cancel away from what is inside: the steps of the block are finished as if nothing had happened, and only then the cancel
/// goes on. For what must not be left half done.
///
/// It may also be opened when the run is being cancelled already, to put things in order after [`cancelled`] told so. It
/// holds nothing else back: losing a [`race`](crate::race), or the end of the code, closes what is inside like any other step.
///
/// ```
/// # #[durable::effect(idempotent)]
/// # async fn debit(account: &str, cents: u64) -> durable::Result<()> { Ok(()) }
/// # #[durable::effect(idempotent)]
/// # async fn credit(account: &str, cents: u64) -> durable::Result<()> { Ok(()) }
/// #[durable::workflow]
/// async fn transfer(from: String, to: String, cents: u64) -> durable::Result<()> {
///     durable::shield(async {
///         debit(&from, cents).await?;
///         credit(&to, cents).await
///     })
///     .await
/// }
/// ```
pub fn shield<S: Step>(step: S) -> Shield<S> {
    Shield { name: "shield".into(), step }
}

/// Ready once the run is cancelled; to be put in a [`race`](crate::race) with the work that a cancel should end, by code that
/// wants to do something about it.
///
/// From the cancel on, nothing new is asked outside of a [`shield`] but [`undo`](crate::undo), and steps that wait are never ready;
/// effects under way are still heard of. What wants to act after a cancel does it in a `shield`, or registers it with `undo`. Code that
/// returns ends the run as it returned, completed or failed; code that waits is dropped, and the run is cancelled.
///
/// Each one that waits is told in a turn of its own, in the order asked, the same on every replay. One that is awaited when the run is
/// cancelled already is told in the next turn; a loop that asks again and again is told 10,000 times more, and then not any more, so
/// that the run can end.
///
/// ```
/// # use std::time::Duration;
/// # #[durable::effect(idempotent)]
/// # async fn write_down(found: u32) -> durable::Result<()> { Ok(()) }
/// #[durable::workflow]
/// async fn research() -> durable::Result<u32> {
///     let mut found = 0;
///     let work = async {
///         loop {
///             durable::sleep(Duration::from_secs(60)).await;
///             found += 1;
///         }
///     };
///     durable::race((work, durable::cancelled())).await;
///     durable::shield(write_down(found)).await?;
///     Ok(found)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", research()).await?;
/// let status = run.cancel("enough").await?;
/// assert_eq!(status, durable::Status::Completed);
/// assert_eq!(run.output().await?, 0);
/// # Ok(())
/// # }
/// ```
pub fn cancelled() -> Cancelled {
    Cancelled { _only_here: () }
}

/// See [`shield`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct Shield<S> {
    name: Name,
    step: S,
}

named!([S] Shield<S>);
only_in_workflows!([S] Shield<S>);

impl<S> Sealed for Shield<S> {}

impl<S: Step> Step for Shield<S> {
    type Output = S::Output;
    type Future = ShieldFuture<S::Future>;

    fn into_future(self, site: &'static Site) -> ShieldFuture<S::Future> {
        ShieldFuture { name: self.name, future: Some(Box::pin(self.step.into_future(site))), scope: None }
    }
}

/// A step under a shield.
#[doc(hidden)]
pub struct ShieldFuture<F> {
    name: Name,
    /// Before the scope, so that it is dropped before: what is asked in a scope is closed before the scope is.
    future: Option<Pin<Box<F>>>,
    scope: Option<OpenScope>,
}

impl<F: Future> Future for ShieldFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else { return Poll::Pending };
        let scope = this.scope.get_or_insert_with(|| {
            let name = std::mem::take(&mut this.name);
            with(|core| core.open_shield(name))
        });
        let polled = poll_in(scope.0, future.as_mut(), cx);
        if polled.is_ready() {
            this.future = None;
            this.scope = None;
        }
        polled
    }
}

/// See [`cancelled`].
#[must_use = "it waits for a cancel when a workflow awaits it"]
#[derive(Debug)]
pub struct Cancelled {
    _only_here: (),
}

only_in_workflows!([] Cancelled);

impl Sealed for Cancelled {}

impl Step for Cancelled {
    type Output = ();
    type Future = CancelledFuture;

    fn into_future(self, _: &'static Site) -> CancelledFuture {
        CancelledFuture(Hearing::New)
    }
}

/// A wait for a cancel.
#[doc(hidden)]
pub struct CancelledFuture(Hearing);

enum Hearing {
    New,
    /// Its number among those that wait.
    Waits(u64),
    Told,
}

impl Future for CancelledFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.0 {
            Hearing::New => {
                self.0 = Hearing::Waits(with(|core| core.wait_for_cancel()));
                Poll::Pending
            }
            Hearing::Waits(no) => {
                let told = with(|core| {
                    let told = core.is_told_of_cancel(no);
                    if told {
                        core.forget_cancel_wait(no);
                    }
                    told
                });
                if !told {
                    return Poll::Pending;
                }
                self.0 = Hearing::Told;
                Poll::Ready(())
            }
            Hearing::Told => Poll::Pending,
        }
    }
}

impl Drop for CancelledFuture {
    fn drop(&mut self) {
        if let Hearing::Waits(no) = self.0 {
            try_with(|core| core.forget_cancel_wait(no));
        }
    }
}
