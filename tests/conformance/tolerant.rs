//! Many steps at a time that are over early, as a user writes that: with a `Set`, in a part.

use durable::{EffectCall, Recordable};

use crate::effects::{decline, give, late};

/// When many steps are over before each of them is.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// So many successes are enough.
    pub(crate) successes: usize,
    /// More failures are too many.
    pub(crate) failures: usize,
    /// So many steps at a time.
    pub(crate) at_most: usize,
}

/// What each step gave, by its index: nothing if enough had succeeded, or too many failed, before it was over.
#[durable::part]
pub(crate) async fn until<T: Recordable>(
    limits: Limits,
    steps: Vec<EffectCall<durable::Result<T>>>,
) -> Vec<Option<durable::Result<T>>> {
    let mut ended: Vec<_> = steps.iter().map(|_| None).collect();
    let (mut successes, mut failures) = (0, 0);
    let (mut waiting, mut set) = (steps.into_iter().enumerate(), durable::Set::new());
    while successes < limits.successes && failures <= limits.failures {
        while set.len() < limits.at_most
            && let Some((i, step)) = waiting.next()
        {
            set.add(async move { (i, step.await) });
        }
        let Some((i, outcome)) = set.next().await else { break };
        *(if outcome.is_ok() { &mut successes } else { &mut failures }) += 1;
        ended[i] = Some(outcome);
    }
    ended
}

/// How many of `steps` failures do not exceed `percent`.
fn tolerated(percent: usize, steps: usize) -> usize {
    steps * percent / 100
}

/// A step per letter: `+` succeeds, `-` fails, `.` is not over before the others are.
fn steps(letters: &str) -> Vec<EffectCall<durable::Result<String>>> {
    let step = |(i, letter): (usize, char)| match letter {
        '+' => give(&i.to_string()),
        '-' => decline(&i.to_string()),
        _ => late(&i.to_string()),
    };
    letters.chars().enumerate().map(step).collect()
}

/// The letters of what came of them.
fn letters(ended: &[Option<durable::Result<String>>]) -> String {
    let letter = |outcome: &Option<durable::Result<String>>| match outcome {
        Some(Ok(_)) => '+',
        Some(Err(_)) => '-',
        None => '.',
    };
    ended.iter().map(letter).collect()
}

/// Some steps, until so many have succeeded or more than so many failed.
#[durable::workflow]
pub(crate) async fn limited(all: String, successes: usize, failures: usize, at_most: usize) -> String {
    letters(&until(Limits { successes, failures, at_most }, steps(&all)).await)
}

/// The same, the failures given as a percentage.
#[durable::workflow]
pub(crate) async fn limited_by_percent(all: String, percent: usize) -> String {
    let limits = Limits { successes: all.len(), failures: tolerated(percent, all.len()), at_most: all.len() };
    letters(&until(limits, steps(&all)).await)
}
