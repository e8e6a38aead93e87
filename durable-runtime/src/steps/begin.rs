//! Steps that are begun now and awaited later.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use super::{
    Step,
    call::{EffectCall, WorkflowCall},
    only_in_workflows, poll_in,
    sealed::Sealed,
    timer::Sleep,
};
use crate::{
    contract::Site,
    core::{drop_task, with},
    value::Recordable,
};

/// What can be begun: calls of effects and workflows, and sleeps.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be begun",
    label = "only calls of effects and workflows, and sleeps, can",
    note = "a wait that goes on while nobody looks would take a message that the code then never sees: put it beside the others, as in `durable::race((signal, step))` or `durable::join((signal, step))`",
    note = "a `Child` is under way already: keep it, and await it later"
)]
pub trait Begin: Step<Output: Send + 'static, Future: 'static> {}

impl<R: Recordable> Begin for EffectCall<R> {}
impl<R: Recordable> Begin for WorkflowCall<R> {}
impl Begin for Sleep {}

/// Starts a step now; awaiting that gives a handle to await later. The step goes on meanwhile; dropping the handle closes it.
///
/// Signals and questions cannot be begun: a message would be taken by a wait at which nobody looks, and dropping the handle would lose
/// it. Put them beside other steps with [`race`](crate::race) or [`join`](crate::join). Where the run is being cancelled nothing is
/// begun, and this is never ready.
///
/// ```
/// # #[durable::effect(read_only)]
/// # async fn search_policy(query: &str) -> durable::Result<String> { Ok(query.to_owned()) }
/// # #[durable::effect(read_only)]
/// # async fn load_order(id: u64) -> durable::Result<u64> { Ok(id) }
/// #[durable::workflow]
/// async fn agent(id: u64) -> durable::Result<String> {
///     let search = durable::begin(search_policy("refunds")).await;
///     let order = load_order(id).await?;
///     let policy = search.await?;
///     Ok(format!("{order}: {policy}"))
/// }
/// ```
#[must_use = "the step is begun when a workflow awaits this"]
pub fn begin<S: Begin>(step: S) -> Beginning<S> {
    Beginning(step)
}

/// See [`begin`].
#[must_use = "the step is begun when a workflow awaits this"]
#[derive(Debug)]
pub struct Beginning<S>(S);

only_in_workflows!([S: Step] Beginning<S>);

impl<S> Sealed for Beginning<S> {}

// Not `S: Begin`: it was asked for where this was made, and once is one error.
impl<S: Step<Output: Send + 'static, Future: 'static>> Step for Beginning<S> {
    type Output = Begun<S::Output>;
    type Future = BeginFuture<S>;

    fn into_future(self, site: &'static Site) -> BeginFuture<S> {
        BeginFuture(Some(Box::pin(self.0.into_future(site))))
    }
}

/// A step that is being begun.
#[doc(hidden)]
pub struct BeginFuture<S: Step>(Option<Pin<Box<S::Future>>>);

impl<S: Step<Output: Send + 'static, Future: 'static>> Future for BeginFuture<S> {
    type Output = Begun<S::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = self.0.take() else { return Poll::Pending };
        // In a closing scope nothing would be asked: code that goes on would believe that it was.
        let Some((task, scope)) = with(|core| (!core.is_closing()).then(|| core.open_task())) else {
            return Poll::Pending;
        };
        let cell = Arc::new(Mutex::new(None));
        let into = cell.clone();
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let value = future.await;
            *lock(&into) = Some(value);
        });
        let polled = poll_in(scope, work.as_mut(), cx);
        with(|core| core.put_task(task, polled.is_pending().then_some(work)));
        Poll::Ready(Begun { task, cell })
    }
}

/// A step that was begun; a step itself, to be awaited for the outcome.
#[must_use = "dropping it closes the step that was begun"]
pub struct Begun<T> {
    task: u32,
    cell: Arc<Mutex<Option<T>>>,
}

impl<T> std::fmt::Debug for Begun<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun").finish_non_exhaustive()
    }
}

only_in_workflows!([T: Send] Begun<T>);

impl<T> Sealed for Begun<T> {}

impl<T: Send> Step for Begun<T> {
    type Output = T;
    type Future = BegunFuture<T>;

    fn into_future(self, _: &'static Site) -> BegunFuture<T> {
        BegunFuture(self)
    }
}

/// A begun step that is awaited.
#[doc(hidden)]
pub struct BegunFuture<T>(Begun<T>);

impl<T: Send> Future for BegunFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        match lock(&self.0.cell).take() {
            Some(value) => Poll::Ready(value),
            None => {
                with(|core| core.await_task(self.0.task));
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Begun<T> {
    fn drop(&mut self) {
        drop_task(self.task);
    }
}

/// Only ever held for an assignment, so a poisoned lock holds a whole value.
fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
