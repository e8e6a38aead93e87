//! Several steps together: `join`, `try_join`, `join_all`, `try_join_all`, `race`, `timeout`.
//!
//! Each branch is a scope of its own. Branches are begun in the order given, and dropped in that order when a combinator
//! is over before they are, all within one poll: so what a log says of them does not depend on which came first.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    Name, Step, named, only_in_workflows, poll_in,
    sealed::Sealed,
    timer::{Sleep, sleep},
};
use crate::{
    contract::Site,
    core::{OpenJoin, OpenScope, with},
    failure::Elapsed,
};

/// One branch.
#[doc(hidden)]
pub struct Kid<S: Step> {
    new: Option<S>,
    pub(super) begun: Begun<S>,
}

impl<S: Step> Kid<S> {
    pub(super) fn new(step: S) -> Kid<S> {
        Kid { new: Some(step), begun: Begun { open: None, out: None } }
    }

    /// Polls it, if it is not over; true if it is over now.
    pub(super) fn poll(&mut self, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool {
        if let Some(step) = self.new.take() {
            self.begun = Begun::new(step, i, join, site);
        }
        self.begun.poll(cx)
    }

    fn close(&mut self) {
        self.new = None;
        self.begun.open = None;
    }
}

/// One branch that was begun.
pub(crate) struct Begun<S: Step> {
    /// Until it is over.
    open: Option<(Pin<Box<S::Future>>, OpenScope)>,
    pub(super) out: Option<S::Output>,
}

impl<S: Step> Begun<S> {
    fn new(step: S, i: u32, join: &OpenJoin, site: &'static Site) -> Begun<S> {
        let scope = with(|core| core.open_branch(join, i));
        Begun { open: Some((Box::pin(step.into_future(site)), scope)), out: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let Some((future, scope)) = &mut self.open else { return false };
        match poll_in(scope.0, future.as_mut(), cx) {
            Poll::Ready(out) => {
                self.out = Some(out);
                self.open = None;
                true
            }
            Poll::Pending => false,
        }
    }
}

/// The branches of a combinator: which one to poll next.
#[doc(hidden)]
pub struct Group {
    name: Name,
    pub(super) site: &'static Site,
    join: Option<OpenJoin>,
    /// Whether it may be awaited in one place and then in another.
    moves: bool,
    begun: u32,
    running: u32,
}

impl Group {
    pub(super) fn new(name: Name, site: &'static Site) -> Group {
        Group { name, site, join: None, moves: false, begun: 0, running: 0 }
    }

    /// One that may be awaited in one place and then in another.
    pub(super) fn moving(name: Name, site: &'static Site) -> Group {
        Group { moves: true, ..Group::new(name, site) }
    }

    /// The next branch to poll: one not begun yet, if fewer than `at_most` are under way, else one that has something to do.
    fn next(&mut self, len: usize, at_most: usize) -> Option<(u32, &OpenJoin)> {
        let join = self.join.get_or_insert_with(|| {
            let (name, moves) = (std::mem::take(&mut self.name), self.moves);
            with(|core| core.open_join(name, moves))
        });
        let join = &*join;
        // Before a branch is begun in it: a set may be awaited in another place than before, and the scope it was in be gone.
        with(|core| core.reach(join));
        if (self.begun as usize) < len && (self.running as usize) < at_most {
            self.begun += 1;
            self.running += 1;
            return Some((self.begun - 1, join));
        }
        loop {
            let i = with(|core| core.next_child(join))?;
            // A step of a set that nobody awaits reports up through scopes that may have become somebody else's.
            if i < self.begun {
                return Some((i, join));
            }
        }
    }

    /// Polls what has something to do until `over` answers true for a branch that ended, or nothing is left to poll.
    pub(super) fn poll<T>(
        &mut self,
        len: usize,
        at_most: usize,
        branches: &mut T,
        mut poll: impl FnMut(&mut T, u32, &OpenJoin, &'static Site) -> bool,
        mut over: impl FnMut(&mut T, u32) -> bool,
    ) -> Option<u32> {
        let site = self.site;
        while let Some((i, join)) = self.next(len, at_most) {
            if poll(branches, i, join, site) {
                self.running -= 1;
                if over(branches, i) {
                    return Some(i);
                }
            }
        }
        None
    }

    fn all_over(&self, len: usize) -> bool {
        self.running == 0 && self.begun as usize == len
    }
}

/// Steps of different kinds, to be awaited together: a tuple of 2 to 8.
pub trait Together: Sealed + Send {
    #[doc(hidden)]
    type Kids: Send;
    /// What they give, in order.
    type Outputs;
    #[doc(hidden)]
    const LEN: usize;
    #[doc(hidden)]
    fn kids(self) -> Self::Kids;
    #[doc(hidden)]
    fn poll(kids: &mut Self::Kids, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool;
    #[doc(hidden)]
    fn take(kids: &mut Self::Kids) -> Option<Self::Outputs>;
    #[doc(hidden)]
    fn close(kids: &mut Self::Kids);
}

/// [`Together`] where each gives a `Result` with one error type.
pub trait TryTogether: Together {
    /// What they give if each of them succeeds.
    type Oks;
    /// The error of the first that fails.
    type Error;
    #[doc(hidden)]
    fn failed(kids: &Self::Kids, i: u32) -> bool;
    #[doc(hidden)]
    fn take_error(kids: &mut Self::Kids, i: u32) -> Option<Self::Error>;
    #[doc(hidden)]
    fn take_oks(kids: &mut Self::Kids) -> Option<Self::Oks>;
}

/// Steps that give one type and may race: a tuple of 2 to 8, or a `Vec`.
pub trait Racing: Sealed + Send {
    #[doc(hidden)]
    type Kids: Send;
    /// What the winner gives.
    type Output;
    #[doc(hidden)]
    fn into_kids(self) -> Self::Kids;
    #[doc(hidden)]
    fn len(kids: &Self::Kids) -> usize;
    #[doc(hidden)]
    fn poll_kid(kids: &mut Self::Kids, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool;
    #[doc(hidden)]
    fn take_winner(kids: &mut Self::Kids, i: u32) -> Option<Self::Output>;
    #[doc(hidden)]
    fn close_all(kids: &mut Self::Kids);
}

macro_rules! tuples {
    ($($S:ident $T:ident $i:tt),+) => {
        impl<$($S: Step),+> Sealed for ($($S,)+) {}

        impl<$($S: Step<Output: Send>),+> Together for ($($S,)+) {
            type Kids = ($(Kid<$S>,)+);
            type Outputs = ($($S::Output,)+);
            const LEN: usize = [$($i),+].len();

            fn kids(self) -> Self::Kids {
                ($(Kid::new(self.$i),)+)
            }

            fn poll(kids: &mut Self::Kids, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool {
                match i {
                    $($i => kids.$i.poll(i, join, site, cx),)+
                    _ => false,
                }
            }

            fn take(kids: &mut Self::Kids) -> Option<Self::Outputs> {
                Some(($(kids.$i.begun.out.take()?,)+))
            }

            fn close(kids: &mut Self::Kids) {
                $(kids.$i.close();)+
            }
        }

        impl<Err: Send, $($T: Send, $S: Step<Output = Result<$T, Err>>),+> TryTogether for ($($S,)+) {
            type Oks = ($($T,)+);
            type Error = Err;

            fn failed(kids: &Self::Kids, i: u32) -> bool {
                match i {
                    $($i => matches!(kids.$i.begun.out, Some(Err(_))),)+
                    _ => false,
                }
            }

            fn take_error(kids: &mut Self::Kids, i: u32) -> Option<Err> {
                match i {
                    $($i => kids.$i.begun.out.take()?.err(),)+
                    _ => None,
                }
            }

            fn take_oks(kids: &mut Self::Kids) -> Option<Self::Oks> {
                Some(($(kids.$i.begun.out.take()?.ok()?,)+))
            }
        }

        impl<Out: Send, $($S: Step<Output = Out>),+> Racing for ($($S,)+) {
            type Kids = ($(Kid<$S>,)+);
            type Output = Out;

            fn into_kids(self) -> Self::Kids {
                ($(Kid::new(self.$i),)+)
            }

            fn len(_: &Self::Kids) -> usize {
                [$($i),+].len()
            }

            fn poll_kid(kids: &mut Self::Kids, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool {
                match i {
                    $($i => kids.$i.poll(i, join, site, cx),)+
                    _ => false,
                }
            }

            fn take_winner(kids: &mut Self::Kids, i: u32) -> Option<Out> {
                match i {
                    $($i => kids.$i.begun.out.take(),)+
                    _ => None,
                }
            }

            fn close_all(kids: &mut Self::Kids) {
                $(kids.$i.close();)+
            }
        }
    };
}
tuples!(A TA 0, B TB 1);
tuples!(A TA 0, B TB 1, C TC 2);
tuples!(A TA 0, B TB 1, C TC 2, D TD 3);
tuples!(A TA 0, B TB 1, C TC 2, D TD 3, E TE 4);
tuples!(A TA 0, B TB 1, C TC 2, D TD 3, E TE 4, F TF 5);
tuples!(A TA 0, B TB 1, C TC 2, D TD 3, E TE 4, F TF 5, G TG 6);
tuples!(A TA 0, B TB 1, C TC 2, D TD 3, E TE 4, F TF 5, G TG 6, H TH 7);

impl<S: Step> Sealed for Vec<S> {}

impl<S: Step<Output: Send>> Racing for Vec<S> {
    type Kids = Vec<Kid<S>>;
    type Output = S::Output;

    fn into_kids(self) -> Vec<Kid<S>> {
        self.into_iter().map(Kid::new).collect()
    }

    fn len(kids: &Vec<Kid<S>>) -> usize {
        kids.len()
    }

    fn poll_kid(kids: &mut Vec<Kid<S>>, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool {
        kids.get_mut(i as usize).is_some_and(|kid| kid.poll(i, join, site, cx))
    }

    fn take_winner(kids: &mut Vec<Kid<S>>, i: u32) -> Option<S::Output> {
        kids.get_mut(i as usize)?.begun.out.take()
    }

    fn close_all(kids: &mut Vec<Kid<S>>) {
        kids.iter_mut().for_each(Kid::close);
    }
}

/// A combinator that is awaited: its branches, and how it ends.
#[doc(hidden)]
pub struct Combined<K, T, F> {
    kids: K,
    group: Group,
    poll: F,
    _gives: std::marker::PhantomData<fn() -> T>,
}

impl<K, T, F> Unpin for Combined<K, T, F> {}

/// Polls a group's branches; `Some` once the combinator is over.
#[doc(hidden)]
pub(crate) type PollGroup<K, T> = fn(&mut Group, &mut K, &mut Context<'_>) -> Option<T>;

impl<K, T> Future for Combined<K, T, PollGroup<K, T>> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        match (this.poll)(&mut this.group, &mut this.kids, cx) {
            Some(out) => {
                this.group.join = None;
                Poll::Ready(out)
            }
            None => Poll::Pending,
        }
    }
}

fn combined<K, T>(kids: K, name: Name, site: &'static Site, poll: PollGroup<K, T>) -> Combined<K, T, PollGroup<K, T>> {
    Combined { kids, group: Group::new(name, site), poll, _gives: std::marker::PhantomData }
}

/// See [`join`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct Join<S> {
    name: Name,
    steps: S,
}

named!([S] Join<S>);
only_in_workflows!([S: Together] Join<S>);

/// Awaits several steps together and gives all their outputs, in order.
///
/// ```
/// # #[durable::effect(read_only)]
/// # async fn search_policy(query: &str) -> durable::Result<String> { Ok(query.to_owned()) }
/// # #[durable::effect(read_only)]
/// # async fn load_order(id: u64) -> u64 { id }
/// #[durable::workflow]
/// async fn agent(id: u64) -> durable::Result<String> {
///     let (policy, order) = durable::join((search_policy("refunds"), load_order(id))).await;
///     Ok(format!("{order}: {}", policy?))
/// }
/// ```
pub fn join<S: Together>(steps: S) -> Join<S> {
    Join { name: "join".into(), steps }
}

impl<S> Sealed for Join<S> {}

impl<S: Together> Step for Join<S> {
    type Output = S::Outputs;
    type Future = Combined<S::Kids, S::Outputs, PollGroup<S::Kids, S::Outputs>>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        combined(self.steps.kids(), self.name, site, |group, kids, cx| {
            group.poll(S::LEN, S::LEN, kids, |kids, i, join, site| S::poll(kids, i, join, site, cx), |_, _| false);
            if group.all_over(S::LEN) { S::take(kids) } else { None }
        })
    }
}

/// See [`try_join`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct TryJoin<S> {
    name: Name,
    steps: S,
}

named!([S] TryJoin<S>);
only_in_workflows!([S: TryTogether] TryJoin<S>);

/// Awaits several steps together; the first `Err` ends it and closes the others.
pub fn try_join<S: TryTogether>(steps: S) -> TryJoin<S> {
    TryJoin { name: "try_join".into(), steps }
}

impl<S> Sealed for TryJoin<S> {}

impl<S: TryTogether> Step for TryJoin<S> {
    type Output = Result<S::Oks, S::Error>;
    type Future = Combined<S::Kids, Self::Output, PollGroup<S::Kids, Self::Output>>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        combined(self.steps.kids(), self.name, site, |group, kids, cx| {
            let failed = group.poll(
                S::LEN,
                S::LEN,
                kids,
                |kids, i, join, site| S::poll(kids, i, join, site, cx),
                |kids, i| S::failed(kids, i),
            );
            if let Some(i) = failed {
                let error = S::take_error(kids, i);
                S::close(kids);
                return error.map(Err);
            }
            if group.all_over(S::LEN) { S::take_oks(kids).map(Ok) } else { None }
        })
    }
}

/// See [`race`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct Race<S> {
    name: Name,
    steps: S,
}

named!([S] Race<S>);
only_in_workflows!([S: Racing] Race<S>);

/// Awaits the first of several steps and closes the others. A race without steps is never over.
pub fn race<S: Racing>(steps: S) -> Race<S> {
    Race { name: "race".into(), steps }
}

impl<S> Sealed for Race<S> {}

impl<S: Racing> Step for Race<S> {
    type Output = S::Output;
    type Future = Combined<S::Kids, S::Output, PollGroup<S::Kids, S::Output>>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        combined(self.steps.into_kids(), self.name, site, |group, kids, cx| {
            let len = S::len(kids);
            let winner =
                group.poll(len, len, kids, |kids, i, join, site| S::poll_kid(kids, i, join, site, cx), |_, _| true)?;
            let out = S::take_winner(kids, winner);
            S::close_all(kids);
            out
        })
    }
}

/// See [`join_all`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct JoinAll<S> {
    name: Name,
    steps: Vec<S>,
    at_most: usize,
}

named!([S] JoinAll<S>);
only_in_workflows!([S: Step] JoinAll<S>);

/// Awaits all steps of an iterator together and gives their outputs, in the iterator's order.
///
/// The iterator's order must be the same on every replay: a `BTreeMap`'s is, a `HashMap`'s is not.
pub fn join_all<S: Step>(steps: impl IntoIterator<Item = S>) -> JoinAll<S> {
    JoinAll { name: "join_all".into(), steps: steps.into_iter().collect(), at_most: usize::MAX }
}

impl<S> JoinAll<S> {
    /// Has at most `n` of them under way at a time; 0 counts as 1.
    pub fn at_most(mut self, n: usize) -> Self {
        self.at_most = n.max(1);
        self
    }
}

/// The branches of a [`JoinAll`], and how many at a time.
#[doc(hidden)]
pub struct Many<S: Step> {
    begun: Vec<Begun<S>>,
    /// Those not begun yet.
    new: std::vec::IntoIter<S>,
    len: usize,
    at_most: usize,
}

fn many<S: Step>(steps: Vec<S>, at_most: usize) -> Many<S> {
    let len = steps.len();
    Many { begun: Vec::with_capacity(len), new: steps.into_iter(), len, at_most }
}

impl<S: Step> Many<S> {
    fn poll(&mut self, i: u32, join: &OpenJoin, site: &'static Site, cx: &mut Context<'_>) -> bool {
        // They are begun in order.
        if i as usize == self.begun.len() {
            self.begun.extend(self.new.next().map(|step| Begun::new(step, i, join, site)));
        }
        self.begun.get_mut(i as usize).is_some_and(|begun| begun.poll(cx))
    }

    fn close(&mut self) {
        self.begun.iter_mut().for_each(|begun| begun.open = None);
        self.new = Vec::new().into_iter();
    }
}

fn poll_many<S: Step>(
    group: &mut Group,
    many: &mut Many<S>,
    cx: &mut Context<'_>,
    over: impl FnMut(&mut Many<S>, u32) -> bool,
) -> Option<u32> {
    let (len, at_most) = (many.len, many.at_most);
    if many.begun.is_empty() {
        with(|core| core.make_room(len.min(at_most)));
    }
    group.poll(len, at_most, many, |many, i, join, site| many.poll(i, join, site, cx), over)
}

impl<S> Sealed for JoinAll<S> {}

impl<S: Step<Output: Send>> Step for JoinAll<S> {
    type Output = Vec<S::Output>;
    type Future = Combined<Many<S>, Self::Output, PollGroup<Many<S>, Self::Output>>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        combined(many(self.steps, self.at_most), self.name, site, |group, many, cx| {
            poll_many(group, many, cx, |_, _| false);
            if group.all_over(many.len) { many.begun.iter_mut().map(|begun| begun.out.take()).collect() } else { None }
        })
    }
}

/// See [`try_join_all`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct TryJoinAll<S>(JoinAll<S>);

/// As [`join_all`]; the first `Err` ends it, closes those under way, and begins no other.
pub fn try_join_all<S: Step>(steps: impl IntoIterator<Item = S>) -> TryJoinAll<S> {
    TryJoinAll(join_all(steps).named("try_join_all"))
}

impl<S> TryJoinAll<S> {
    /// Has at most `n` of them under way at a time; 0 counts as 1.
    pub fn at_most(self, n: usize) -> Self {
        TryJoinAll(self.0.at_most(n))
    }

    /// Pins the name that the step has in its path, in place of its default.
    pub fn named(self, name: impl Into<Name>) -> Self {
        TryJoinAll(self.0.named(name))
    }
}

only_in_workflows!([S: Step] TryJoinAll<S>);

impl<S> Sealed for TryJoinAll<S> {}

impl<T: Send, E: Send, S: Step<Output = Result<T, E>>> Step for TryJoinAll<S> {
    type Output = Result<Vec<T>, E>;
    type Future = Combined<Many<S>, Self::Output, PollGroup<Many<S>, Self::Output>>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        combined(many(self.0.steps, self.0.at_most), self.0.name, site, |group, many, cx| {
            let failed = poll_many(group, many, cx, |many, i| matches!(many.begun[i as usize].out, Some(Err(_))));
            if let Some(i) = failed {
                let error = many.begun[i as usize].out.take();
                many.close();
                return error.and_then(Result::err).map(Err);
            }
            if !group.all_over(many.len) {
                return None;
            }
            many.begun.iter_mut().map(|begun| begun.out.take()).collect()
        })
    }
}

/// See [`timeout`].
#[must_use = "steps do nothing until a workflow awaits them"]
#[derive(Debug)]
pub struct Timeout<S> {
    name: Name,
    limit: Duration,
    step: S,
}

named!([S] Timeout<S>);
only_in_workflows!([S: Step] Timeout<S>);

/// Awaits a step for at most `limit`, whatever attempts it takes; [`Elapsed`] closes the step. (One attempt of an effect is limited by
/// the option `timeout` of its attribute.)
pub fn timeout<S: Step>(limit: Duration, step: S) -> Timeout<S> {
    Timeout { name: "timeout".into(), limit, step }
}

impl<S> Sealed for Timeout<S> {}

impl<S: Step<Output: Send>> Step for Timeout<S> {
    type Output = Result<S::Output, Elapsed>;
    type Future =
        Combined<(Kid<S>, Kid<Sleep>, Duration), Self::Output, PollGroup<(Kid<S>, Kid<Sleep>, Duration), Self::Output>>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        let kids = (Kid::new(self.step), Kid::new(sleep(self.limit)), self.limit);
        combined(kids, self.name, site, |group, kids, cx| {
            group.poll(
                2,
                2,
                kids,
                |kids, i, join, site| match i {
                    0 => kids.0.poll(i, join, site, cx),
                    _ => kids.1.poll(i, join, site, cx),
                },
                |_, _| true,
            )?;
            kids.0.close();
            kids.1.close();
            Some(
                kids.0
                    .begun
                    .out
                    .take()
                    .ok_or_else(|| Elapsed::new(u64::try_from(kids.2.as_millis()).unwrap_or(u64::MAX))),
            )
        })
    }
}
