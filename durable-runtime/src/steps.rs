//! What a workflow awaits: steps, and nothing else. One file per kind of step.

use std::{borrow::Cow, future::Future, pin::Pin, task::Context};

use crate::{
    contract::Site,
    core::{ScopeNo, with},
};

pub(crate) mod begin;
pub(crate) mod branch;
pub(crate) mod call;
pub(crate) mod combine;
pub(crate) mod fact;
pub(crate) mod set;
pub(crate) mod timer;

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
    note = "timers: `durable::sleep`; together: `durable::join`, `join_all`, `race`, `timeout`; in the background: `durable::begin`; all else belongs into an effect"
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
