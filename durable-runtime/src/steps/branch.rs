//! `async {}` blocks and parts: scopes of their own.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Name, Step, named, only_in_workflows, poll_in, sealed::Sealed};
use crate::{
    contract::{PartMeta, Site},
    core::{OpenScope, with},
};

/// What an `async {}` block in a workflow's body is: a step, not a future.
#[must_use = "a branch does nothing until a workflow awaits it"]
pub struct Branch<F> {
    name: Name,
    future: F,
}

named!([F] Branch<F>);
only_in_workflows!([F: Future + Send] Branch<F>);

impl<F> std::fmt::Debug for Branch<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Branch").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What `async {}` in a workflow's body becomes.
#[doc(hidden)]
pub fn branch<F: Future + Send>(future: F) -> Branch<F> {
    Branch { name: "async".into(), future }
}

impl<F> Sealed for Branch<F> {}

impl<F: Future + Send> Step for Branch<F> {
    type Output = F::Output;
    type Future = Scoped<F>;

    fn into_future(self, _: &'static Site) -> Scoped<F> {
        Scoped { name: self.name, future: Box::pin(self.future), scope: None }
    }
}

/// A call of a part: a function of a workflow that may take and return anything, since nothing of it is recorded but the steps
/// it awaits.
#[must_use = "a part does nothing until a workflow awaits it"]
pub struct Part<'a, T> {
    name: Name,
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
}

named!(['a, T] Part<'a, T>);
only_in_workflows!(['a, T] Part<'a, T>);

impl<T> std::fmt::Debug for Part<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the body of a part becomes.
#[doc(hidden)]
pub fn part<'a, T>(meta: &'static PartMeta, future: impl Future<Output = T> + Send + 'a) -> Part<'a, T> {
    Part { name: meta.name.into(), future: Box::pin(future) }
}

impl<T> Sealed for Part<'_, T> {}

impl<'a, T> Step for Part<'a, T> {
    type Output = T;
    type Future = Scoped<dyn Future<Output = T> + Send + 'a>;

    fn into_future(self, _: &'static Site) -> Self::Future {
        Scoped { name: self.name, future: self.future, scope: None }
    }
}

/// A future in a scope of its own.
#[doc(hidden)]
pub struct Scoped<F: ?Sized> {
    name: Name,
    future: Pin<Box<F>>,
    scope: Option<OpenScope>,
}

impl<F: Future + ?Sized> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let scope = this.scope.get_or_insert_with(|| {
            let name = std::mem::take(&mut this.name);
            with(|core| core.open_scope(name))
        });
        poll_in(scope.0, this.future.as_mut(), cx)
    }
}
