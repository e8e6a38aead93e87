//! What a workflow awaits: steps, and nothing else. One file per kind of step.

use std::{borrow::Cow, future::Future, marker::PhantomData, mem, pin::Pin, task::Context};

use bytes::Bytes;

use crate::{
    contract::{EffectMeta, Site},
    core::{Core, Delivered, ScopeNo, Stop, Takes, close, with},
    id::StepNo,
    value::{Recordable, Value, ValueError},
};

pub(crate) mod ask;
pub(crate) mod begin;
pub(crate) mod branch;
pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod combine;
pub(crate) mod fact;
pub(crate) mod restart;
pub(crate) mod send;
pub(crate) mod set;
pub(crate) mod signal;
pub(crate) mod spawn;
pub(crate) mod timer;
pub(crate) mod undo;

#[cfg(test)]
mod tests;

pub(crate) mod sealed {
    /// Only this crate makes steps: each of them is recorded, or made of what is.
    pub trait Sealed {}
}

/// Something that a workflow can await.
///
/// Calls of effects and workflows, parts, `async {}` blocks of a workflow's body, and the steps in this crate are; plain
/// futures are not, because their outcome would be in no log.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step, so a workflow cannot await it",
    label = "not a step",
    note = "a workflow awaits calls of `#[durable::effect]`, `#[durable::workflow]` and `#[durable::part]` functions, `async {{}}` blocks, and the steps in `durable`",
    note = "timers: `durable::sleep`; together: `durable::join`, `join_all`, `race`, `timeout`; in the background: `durable::begin`; a run of its own: `durable::spawn`",
    note = "from outside: `durable::signal` in place of a channel, `durable::ask` for a person's word, `durable::cancelled` in place of a cancellation token; all else belongs into an effect"
)]
pub trait Step: sealed::Sealed + Send + Sized {
    /// What awaiting it gives.
    type Output;
    /// The future that a run polls.
    #[doc(hidden)]
    type Future: Future<Output = Self::Output> + Send;
    #[doc(hidden)]
    fn into_future(self, site: &'static Site) -> Self::Future;
}

/// What every `.await` of a workflow's body becomes.
#[doc(hidden)]
#[inline]
pub fn step<S: Step>(step: S, site: &'static Site) -> S::Future {
    step.into_future(site)
}

/// Stands for a step where its `.await` is refused: the compiler says what is wrong with the type that a bound is about, and of
/// `Future` for the step itself it would say that it is none, and no more.
#[doc(hidden)]
#[derive(Debug)]
pub struct OnlyInWorkflows<S>(PhantomData<S>);

/// Implemented by nothing: what a step's `.await` asks for where no attribute has made it a future.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{S}` is a step, and only a workflow or a part can await it",
    label = "awaited by code that is neither",
    note = "a step is no future: put `#[durable::part]` or `#[durable::workflow]` on the `async fn` whose body awaits it",
    note = "outside of workflows `Runtime` and `Run` do such things: `start`, `signal`, `answer`, `cancel`"
)]
pub trait Anywhere<'a, S> {}

/// Makes a step that is taken for a future an error in words. The bound holds nowhere; it has a lifetime so that the compiler does not
/// see that at once.
macro_rules! only_in_workflows {
    ([$($generics:tt)*] $type:ty) => {
        #[doc(hidden)]
        impl<$($generics)*> std::future::Future for $type
        where
            $type: $crate::steps::Step,
            for<'any> $crate::steps::OnlyInWorkflows<$type>: $crate::steps::Anywhere<'any, $type>,
        {
            type Output = <$type as $crate::steps::Step>::Output;

            fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
                std::task::Poll::Pending
            }
        }
    };
}
use only_in_workflows;

/// A step from its first poll to its completion.
enum Wait<A> {
    /// Not asked yet.
    New(A),
    /// Asked.
    Open(Open),
    /// Nothing comes any more: it has come, or nothing was asked, because the run is being cancelled.
    Over,
}

impl<A> Wait<A> {
    /// What has come for it: never in the poll that asks, so that replay and life take the same way.
    fn poll(
        &mut self,
        ask: impl FnOnce(&mut Core, A) -> Option<StepNo>,
    ) -> Option<(Delivered, Option<&'static EffectMeta>)> {
        match self {
            Wait::New(_) => {
                if let Wait::New(asked) = mem::replace(self, Wait::Over)
                    && let Some(step) = with(|core| ask(core, asked))
                {
                    *self = Wait::Open(Open(step));
                }
                None
            }
            Wait::Open(open) => {
                let come = with(|core| core.take(open.0))?;
                if let Wait::Open(open) = mem::replace(self, Wait::Over) {
                    // Nothing is left to be closed.
                    mem::forget(open);
                }
                Some(come)
            }
            Wait::Over => None,
        }
    }
}

/// A step that was asked, closed if it is dropped before its completion was taken.
struct Open(StepNo);

impl Drop for Open {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// How what has come is read as a `T`. That the type can be recorded is asked where this is made and nowhere else, so that a type
/// that cannot be is one compile error.
struct Reads<T> {
    /// Says whether a message is one.
    takes: Takes,
    decode: fn(&Value) -> Result<T, ValueError>,
}

impl<T: Recordable> Reads<T> {
    const NEW: Reads<T> = Reads { takes: |value| value.decode::<T>().map(drop), decode: Value::decode::<T> };
}

impl<T> Reads<T> {
    /// Decodes what has come; a record that does not decode stops the run, and the step is never ready. Decoding is user code,
    /// so nothing may be borrowed meanwhile.
    fn decoded(&self, bytes: Bytes, step: impl FnOnce() -> String, site: &'static Site) -> Option<T> {
        match (self.decode)(&Value::from_bytes(bytes)) {
            Ok(value) => Some(value),
            Err(error) => {
                let stop = Stop::Undecodable { step: step(), site: Some(site), error };
                with(|core| core.halt(stop));
                None
            }
        }
    }
}

/// Polls `future` inside a scope.
fn poll_in<F: Future + ?Sized>(
    scope: ScopeNo,
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> std::task::Poll<F::Output> {
    let before = with(|core| core.enter(scope));
    let polled = future.poll(cx);
    with(|core| core.enter(before));
    polled
}

/// Gives a kind of step its `.named(..)`.
macro_rules! named {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> $type {
            /// Pins the name that the step has in its path, in place of its default.
            #[must_use = "a step does nothing until it is awaited"]
            pub fn named(mut self, name: impl Into<std::borrow::Cow<'static, str>>) -> Self {
                self.name = name.into();
                self
            }
        }
    };
}
use named;

type Name = Cow<'static, str>;
