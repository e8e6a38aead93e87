//! A set of steps that grows while it is awaited.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    Name, Step,
    combine::{Group, Kid},
    named, only_in_workflows,
    sealed::Sealed,
};
use crate::contract::Site;

/// Steps to which others may be added while some are under way, and which are taken in the order in which they end.
///
/// A step begins, and goes on, while [`Set::next`] is awaited. Dropping the set closes what is open.
///
/// ```
/// # #[durable::effect(idempotent)]
/// # async fn run_tool(tool: &str) -> String { tool[1..].to_owned() }
/// #[durable::workflow]
/// async fn agent(tools: Vec<String>) -> u32 {
///     let (mut calls, mut ended) = (durable::Set::new(), 0);
///     for tool in &tools {
///         calls.add(run_tool(tool));
///     }
///     while let Some(follow_up) = calls.next().await {
///         ended += 1;
///         if !follow_up.is_empty() {
///             calls.add(run_tool(&follow_up));
///         }
///     }
///     ended
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// # let run = runtime.start("r", agent(vec!["ab".into(), "c".into()])).await?;
/// # assert_eq!(run.returned().await?, 3);
/// # Ok(())
/// # }
/// ```
#[must_use = "steps do nothing until a workflow awaits them"]
pub struct Set<S: Step> {
    name: Name,
    kids: Vec<Kid<S>>,
    group: Option<Group>,
    open: usize,
}

named!([S: Step] Set<S>);

impl<S: Step> std::fmt::Debug for Set<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Set").field("open", &self.open).finish_non_exhaustive()
    }
}

impl<S: Step> Default for Set<S> {
    fn default() -> Self {
        Set::new()
    }
}

impl<S: Step> Set<S> {
    /// An empty set.
    pub fn new() -> Set<S> {
        Set { name: "set".into(), kids: Vec::new(), group: None, open: 0 }
    }

    /// Adds a step.
    pub fn add(&mut self, step: S) {
        self.kids.push(Kid::new(step));
        self.open += 1;
    }

    /// How many are not taken yet.
    pub fn len(&self) -> usize {
        self.open
    }

    /// Whether all were taken.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Awaits the next one that ends; `None` once the set is empty.
    #[expect(clippy::should_implement_trait, reason = "it is awaited, so it is no iterator's")]
    pub fn next(&mut self) -> Next<'_, S> {
        Next(self)
    }
}

/// See [`Set::next`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct Next<'a, S: Step>(&'a mut Set<S>);

only_in_workflows!(['a, S: Step] Next<'a, S>);

impl<S: Step> Sealed for Next<'_, S> {}

impl<'a, S: Step<Output: Send>> Step for Next<'a, S> {
    type Output = Option<S::Output>;
    type Future = NextFuture<'a, S>;

    fn into_future(self, site: &'static Site) -> NextFuture<'a, S> {
        NextFuture { set: self.0, site }
    }
}

/// A [`Next`] that is awaited.
#[doc(hidden)]
pub struct NextFuture<'a, S: Step> {
    set: &'a mut Set<S>,
    site: &'static Site,
}

impl<S: Step> Unpin for NextFuture<'_, S> {}

impl<S: Step<Output: Send>> Future for NextFuture<'_, S> {
    type Output = Option<S::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let site = self.site;
        let set = &mut *self.set;
        if set.open == 0 {
            return Poll::Ready(None);
        }
        let group = set.group.get_or_insert_with(|| Group::moving(std::mem::take(&mut set.name), site));
        group.site = site;
        let ended = group.poll(
            set.kids.len(),
            usize::MAX,
            &mut set.kids,
            |kids, i, join, site| kids.get_mut(i as usize).is_some_and(|kid| kid.poll(i, join, site, cx)),
            |_, _| true,
        );
        match ended.and_then(|i| set.kids.get_mut(i as usize)).and_then(|kid| kid.begun.out.take()) {
            Some(out) => {
                set.open -= 1;
                Poll::Ready(Some(out))
            }
            None => Poll::Pending,
        }
    }
}
