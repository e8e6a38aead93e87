//! How often a completion has code polled.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::steps::{combine::join_all, sealed::Sealed};

/// A step that counts its polls.
struct Counted<S>(S, Arc<AtomicUsize>);

struct CountedFuture<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<S> Sealed for Counted<S> {}

impl<S: Step> Step for Counted<S> {
    type Output = S::Output;
    type Future = CountedFuture<S::Future>;

    fn into_future(self, site: &'static Site) -> Self::Future {
        CountedFuture(Box::pin(self.0.into_future(site)), self.1)
    }
}

impl<F: Future> Future for CountedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

const BRANCHES: u32 = 1_000;

/// Polls of all branches, over the asking of all and the completion of each.
fn polls_of(code: impl FnOnce(Vec<Counted<EffectCall<u64>>>) -> Pin<Box<dyn Future<Output = u64> + Send>>) -> usize {
    let polls = Arc::new(AtomicUsize::new(0));
    let branches = (0..BRANCHES).map(|n| Counted(release(&n.to_string()), polls.clone())).collect();
    let mut run = Run::of(code(branches));
    assert!(run.poll().is_pending());
    let last = (0..BRANCHES).rev().map(|n| run.after(n, Delivered::Value(bytes(&1_u64)))).last();
    assert_eq!(last, Some(Poll::Ready(u64::from(BRANCHES))));
    polls.load(Ordering::Relaxed)
}

#[test]
fn a_completion_polls_the_one_branch_that_it_is_for_however_many_there_are() {
    let polls = polls_of(|branches| Box::pin(async move { step(join_all(branches), &HERE).await.into_iter().sum() }));
    assert_eq!(polls, 2 * BRANCHES as usize, "each where it asks, and where it is over");
}

/// The control of the count: a combinator that knows no routes is seen to poll all that are open.
#[test]
fn a_combinator_that_polls_every_branch_is_seen() {
    let polls = polls_of(|branches| {
        let mut open: Vec<_> = branches.into_iter().map(|branch| Some(step(branch, &HERE))).collect();
        let mut sum = 0;
        Box::pin(std::future::poll_fn(move |cx| {
            for branch in &mut open {
                if let Some(future) = branch
                    && let Poll::Ready(value) = Pin::new(future).poll(cx)
                {
                    (sum, *branch) = (sum + value, None);
                }
            }
            if open.iter().all(Option::is_none) { Poll::Ready(sum) } else { Poll::Pending }
        }))
    });
    let all = BRANCHES as usize;
    assert_eq!(polls, all + all * (all + 1) / 2);
}
