//! Child runs.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    Name, Step,
    call::{WorkflowCall, received},
    named, only_in_workflows,
    sealed::Sealed,
};
use crate::{
    contract::{Site, WorkflowMeta},
    core::{AskChild, close, try_with, with},
    id::{RunId, RunIdError, StepNo},
    value::{Args, Recordable, ValueError},
};

/// What can be a run of its own, whose code returns an `R`: the call of a workflow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a run of its own",
    label = "not the call of a workflow",
    note = "a run is a run of a `#[durable::workflow]`; to start an effect now and await it later: `durable::begin(call).await`"
)]
pub trait Spawn<R>: Sealed {
    #[doc(hidden)]
    fn into_call(self) -> WorkflowCall<R>;
}

impl<R> Spawn<R> for WorkflowCall<R> {
    fn into_call(self) -> WorkflowCall<R> {
        self
    }
}

/// Starts a run of another workflow, as a child of this one. Ready at once, with a [`Child`] that is a step: await it for what
/// the child's code returns.
///
/// The child and the entry that says so are made in one batch: a crash leaves both or neither. Its id is made of this run's id and
/// the place in it, unless [`Spawning::id`] gives one. It has a log, a mailbox, questions and compensations of its own, is listed
/// by `Runtime::runs`, and may outlive this process, but not this run: unless it is [`Spawning::detached`] it is cancelled when its
/// `Child` is dropped, when this run is cancelled, and when it ends; and this run has ended only when its children have.
///
/// A child that fails gives the `Err` that it returned. One that was cancelled, and one whose given id names a run that is not this
/// step's, is a [`Fault`](crate::Fault) (`ChildCancelled`, `ChildIdTaken`): the error type takes it with `From<Fault>`, as
/// [`Failure`](crate::Failure) does; where it takes none the run is parked.
///
/// Where the run is being cancelled no child is made, and this is never ready. Arguments that cannot be recorded, or that every
/// replay would see otherwise (a `HashSet` inside), park the run.
///
/// ```
/// #[durable::workflow]
/// async fn researcher(topic: String) -> durable::Result<String> {
///     Ok(format!("all about {topic}"))
/// }
///
/// #[durable::workflow]
/// async fn editor(topics: Vec<String>) -> durable::Result<Vec<String>> {
///     let mut children = Vec::new();
///     for topic in topics {
///         children.push(durable::spawn(researcher(topic)).await);
///     }
///     durable::try_join_all(children).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", editor(vec!["owls".into(), "bees".into()])).await?;
/// assert_eq!(run.output().await?, ["all about owls", "all about bees"]);
/// # Ok(())
/// # }
/// ```
pub fn spawn<R, C: Spawn<R>>(call: C) -> Spawning<R> {
    let call = call.into_call();
    let (name, meta) = (format!("spawn:{}", call.name).into(), call.meta);
    Spawning { name, meta, args: call.lasting_args(), id: None, detached: false, _returns: PhantomData }
}

/// See [`spawn`].
#[must_use = "the child is made when a workflow awaits this"]
pub struct Spawning<R> {
    name: Name,
    meta: &'static WorkflowMeta,
    /// Only if they will be the same on every replay.
    args: Result<(Args, u128), ValueError>,
    id: Option<Result<RunId, RunIdError>>,
    detached: bool,
    _returns: PhantomData<fn() -> R>,
}

named!([R] Spawning<R>);
only_in_workflows!([R] Spawning<R>);

impl<R> Spawning<R> {
    /// Gives the child its id. A run of that id that is not this step's child is left alone, and the child's outcome is
    /// [`Fault::ChildIdTaken`](crate::Fault::ChildIdTaken). A text that is no run id parks the run.
    pub fn id(mut self, id: impl AsRef<str>) -> Spawning<R> {
        self.id = Some(RunId::new(id));
        self
    }

    /// Lets the child go on when its `Child` is dropped, and when this run is cancelled or ends. Then nobody but its own
    /// `Runtime::cancel` cancels it. Its outcome can be awaited all the same.
    pub fn detached(mut self) -> Spawning<R> {
        self.detached = true;
        self
    }
}

impl<R> std::fmt::Debug for Spawning<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Spawning");
        f.field("workflow", &self.meta.name).field("args", &self.args).field("id", &self.id);
        f.field("detached", &self.detached).finish_non_exhaustive()
    }
}

impl<R> Sealed for Spawning<R> {}

impl<R> Step for Spawning<R> {
    type Output = Child<R>;
    type Future = SpawnFuture<R>;

    fn into_future(self, site: &'static Site) -> SpawnFuture<R> {
        SpawnFuture { spawning: Some(self), site }
    }
}

/// A child that is being made.
#[doc(hidden)]
pub struct SpawnFuture<R> {
    spawning: Option<Spawning<R>>,
    site: &'static Site,
}

impl<R> Future for SpawnFuture<R> {
    type Output = Child<R>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Child<R>> {
        let Some(Spawning { name, meta, args, id, detached, .. }) = self.spawning.take() else { return Poll::Pending };
        let site = self.site;
        match with(|core| core.ask_child(AskChild { name, meta, args, id, detached }, site)) {
            Some((step, run)) => Poll::Ready(Child { step: Some(step), run, meta, _returns: PhantomData }),
            None => Poll::Pending,
        }
    }
}

/// A child run; a step, to be awaited for what its code returns. See [`spawn`].
///
/// `child.await` takes it, and dropping that await (a lost [`race`](crate::race)) drops the child. `(&mut child).await` only
/// looks: dropping that await leaves the child as it is, to be awaited again. Once its outcome was taken there is no other:
/// awaiting it once more is never ready.
///
/// ```
/// # use std::time::Duration;
/// # #[durable::workflow]
/// # async fn researcher(topic: String) -> durable::Result<String> { Ok(format!("all about {topic}")) }
/// #[durable::workflow]
/// async fn editor(topic: String) -> durable::Result<String> {
///     let mut child = durable::spawn(researcher(topic)).await;
///     for _ in 0..3 {
///         match durable::timeout(Duration::from_secs(3_600), &mut child).await {
///             Ok(found) => return found,
///             Err(_elapsed) => durable::send(child.id(), "hurry", &()).await,
///         }
///     }
///     child.await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// # let run = runtime.start("r", editor("owls".into())).await?;
/// # assert_eq!(run.output().await?, "all about owls");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it cancels the child, unless it is detached"]
pub struct Child<R> {
    /// `None`: its outcome was taken.
    step: Option<StepNo>,
    run: RunId,
    meta: &'static WorkflowMeta,
    _returns: PhantomData<fn() -> R>,
}

only_in_workflows!([R: Recordable] Child<R>);

impl<R> Child<R> {
    /// The child's id, for [`send`](crate::send), and for people.
    pub fn id(&self) -> &RunId {
        &self.run
    }
}

impl<R: Recordable> Child<R> {
    fn poll_outcome(&mut self, site: &'static Site) -> Poll<R> {
        let Some(step) = self.step else { return Poll::Pending };
        let Some((delivered, _)) = with(|core| core.take(step)) else { return Poll::Pending };
        self.step = None;
        let named = || format!("child run {} of {}", self.run, self.meta.name);
        received(delivered, Some(self.meta.returns), named, site).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<R> std::fmt::Debug for Child<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("run", &self.run).field("workflow", &self.meta.name).finish_non_exhaustive()
    }
}

impl<R> Drop for Child<R> {
    fn drop(&mut self) {
        if let Some(step) = self.step {
            close(step);
        }
    }
}

impl<R> Sealed for Child<R> {}

impl<R: Recordable> Step for Child<R> {
    type Output = R;
    type Future = ChildFuture<R>;

    fn into_future(self, site: &'static Site) -> ChildFuture<R> {
        ChildFuture { child: self, site }
    }
}

/// A child that is awaited, and dropped with that.
#[doc(hidden)]
pub struct ChildFuture<R> {
    child: Child<R>,
    site: &'static Site,
}

impl<R: Recordable> Future for ChildFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        let site = self.site;
        self.child.poll_outcome(site)
    }
}

impl<R> Sealed for &mut Child<R> {}

impl<'c, R: Recordable> Step for &'c mut Child<R> {
    type Output = R;
    type Future = ChildLook<'c, R>;

    fn into_future(self, site: &'static Site) -> ChildLook<'c, R> {
        ChildLook { child: self, site }
    }
}

/// A child that is awaited, and left as it is when nobody waits any more.
#[doc(hidden)]
pub struct ChildLook<'c, R> {
    child: &'c mut Child<R>,
    site: &'static Site,
}

impl<R: Recordable> Future for ChildLook<'_, R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        let site = self.site;
        self.child.poll_outcome(site)
    }
}

impl<R> Drop for ChildLook<'_, R> {
    fn drop(&mut self) {
        if let Some(step) = self.child.step {
            try_with(|core| core.unawait(step));
        }
    }
}
