//! Steps in doubt, and a person's word on them.

use super::{AnyRun, Runtime, look::Looked, start::random_bits};
use crate::{
    contract::Returns,
    error::{Error, Kind},
    failure::shortened,
    id::{Attempt, RunId, StepNo},
    mailbox::{Message, Verdict},
    store::{Addressee, StoreError, Written},
    value::{Value, ValueError},
    view::{Hold, Status},
};

/// A person's word on a step in doubt.
#[derive(Clone, Debug)]
pub struct Resolution {
    verdict: Given,
    by: String,
}

#[derive(Clone, Debug)]
enum Given {
    Succeeded(Both),
    FailedWith(Both),
    Failed(String),
    RunAgain,
}

/// What became of a person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolved {
    /// It fits, and the run goes on with it.
    Taken,
    /// It is durable, and the run takes it as soon as it goes on: it is parked, waits for its code, or is in no process. Until then a later
    /// word corrects it. A value that is none of the effect's type is set aside then, and the step stays in doubt: [`Hold::set_aside`].
    Kept,
}

/// A value as it would be recorded: by itself, and as the `Ok` or `Err` of a `Result`.
#[derive(Clone, Debug)]
struct Both {
    plain: Result<Value, ValueError>,
    wrapped: Result<Value, ValueError>,
}

impl Both {
    fn of(variant: &str, value: &impl serde::Serialize) -> Both {
        let wrapped = Value::encode(&std::collections::BTreeMap::from([(variant, value)]));
        Both { plain: Value::encode(value), wrapped }
    }
}

impl Resolution {
    /// It happened, and this is what the effect would have returned: the `Ok` value, if it returns a `Result`.
    ///
    /// The value may be of the effect's own type, or JSON as a person would write it; `resolve` refuses it if it does not decode as
    /// the effect's type. Of what undoes something the value is not looked at.
    pub fn succeeded(value: impl serde::Serialize) -> Resolution {
        Resolution { verdict: Given::Succeeded(Both::of("Ok", &value)), by: "a person".into() }
    }

    /// It failed: the workflow gets a [`crate::Fault::ResolvedAsFailed`], if the effect's error type takes one, else the run is
    /// parked with it. What undoes something is given up, and the run goes on to undo the rest.
    pub fn failed(reason: impl Into<String>) -> Resolution {
        Resolution { verdict: Given::Failed(shortened(&reason.into()).into_owned()), by: "a person".into() }
    }

    /// It failed with this error value of the effect's own error type.
    pub fn failed_with(error: impl serde::Serialize) -> Resolution {
        Resolution { verdict: Given::FailedWith(Both::of("Err", &error)), by: "a person".into() }
    }

    /// It did not happen and cannot any more: the body runs once more, after the effect's `settle` time if it declares one.
    pub fn run_again() -> Resolution {
        Resolution { verdict: Given::RunAgain, by: "a person".into() }
    }

    /// Says who decided; recorded in the log.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Resolution {
        self.by = shortened(&who.into()).into_owned();
        self
    }
}

impl Runtime {
    /// All steps that are in doubt and wait for a person, over all runs, those that are not in memory included. What must not happen twice
    /// and whose process is gone is among them before another process has opened the store; with `in_doubt = error` or `reconcile` that
    /// process sees to it, unless somebody has said before what happened.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn holds(&self) -> Result<Vec<Hold>, Error> {
        let mut holds: Vec<_> = self.look_at_all().await?.into_iter().flat_map(|(_, look)| look.holds).collect();
        holds.sort_by(|a, b| (&a.run, a.step).cmp(&(&b.run, b.step)));
        Ok(holds)
    }

    /// Says what a step in doubt did. When this returns, the word is durable: [`Resolved::Taken`] if the run goes on with it, and
    /// [`Resolved::Kept`] if it is parked, waits for its code, or goes on in no process. A word that is kept counts when the run goes on,
    /// unless a later one has corrected it, or its value turns out to be none of the effect's type; then the log has
    /// `resolution.set_aside`.
    ///
    /// # Errors
    ///
    /// The step is not in doubt, or another attempt is than the one named; a word on it was given before, and the run goes on with
    /// that; the value does not fit the effect's type; what the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{EffectContext, Resolution, Runtime};
    /// #[durable::effect(at_most_once)]
    /// async fn wire(cx: &EffectContext, cents: u64) -> durable::Result<String> {
    ///     Err(cx.in_doubt(format!("no answer after sending {cents}")))?
    /// }
    ///
    /// #[durable::workflow]
    /// async fn pays(cents: u64) -> durable::Result<String> {
    ///     wire(cents).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("order-17", pays(12_000)).await?;
    /// # while runtime.holds().await?.is_empty() { tokio::task::yield_now().await; }
    /// for hold in runtime.holds().await? {
    ///     // Somebody has looked at the account.
    ///     runtime.resolve(&hold.run, hold.step, hold.attempt, Resolution::succeeded("T-1").by("ann")).await?;
    /// }
    /// assert_eq!(run.output().await?, "T-1");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resolve(
        &self,
        run: impl AsRef<str>,
        step: StepNo,
        attempt: Attempt,
        resolution: Resolution,
    ) -> Result<Resolved, Error> {
        let id = RunId::new(run)?;
        let shared = self.shared();
        self.record(&id).await?;
        let _one_at_a_time = self.inner.resolving.lock().await;
        // First the rows, then the look: a word that is in neither was never given.
        let given = id.clone();
        let given = shared.read(move |store| store.rows(&given, 0, usize::MAX)).await?;
        let (mut look, by_life) = match self.look_closely(&id).await? {
            Looked::Life(look) => (look, true),
            Looked::Log(look) => (look, false),
            Looked::Ended => Default::default(),
        };
        let hold = look.holds.into_iter().chain(look.reconciling).find(|hold| hold.step == step);
        let Some(hold) = hold else {
            let status = AnyRun { id: id.clone(), runtime: self.clone() }.status().await?;
            let state = match (&status, status.next_action()) {
                (Status::Interrupted, Some(next)) => {
                    format!("the run is interrupted, and what it did last is not known before it goes on: {next}")
                }
                _ => format!("the run is {}", status.as_str()),
            };
            return Err(Kind::NotInDoubt { run: id, step, state }.into());
        };
        if hold.attempt != attempt {
            return Err(Kind::StaleAttempt { run: id, step, given: attempt, current: hold.attempt }.into());
        }
        let generation = look.generation;
        let spoken = |state: &str| Kind::NotInDoubt { run: id.clone(), step, state: state.to_owned() }.into();
        const BEFORE: &str = "a word on it was given before, and the run has not taken it yet";
        let mut last = None;
        for (_, row) in &given {
            match Message::read(row) {
                Some(Message::Resolve { generation: g, step: s, attempt: a, how, by, kept })
                    if (g, s, a) == (generation, step, attempt) =>
                {
                    // Only what the run itself has not looked at may be corrected.
                    if by_life || kept.is_none() {
                        return Err(spoken(BEFORE));
                    }
                    last = Some((how, by));
                }
                _ => {}
            }
        }
        let returns = look.returns.remove(&step);
        let (how, kept) = match by_life {
            true => (verdict(&id, &hold, returns, resolution.verdict, shared.limits.value_bytes_max)?, None),
            false => {
                let how = unchecked(&id, &hold, resolution.verdict, shared.limits.value_bytes_max)?;
                (how, Some(random_bits()?))
            }
        };
        let word = (how, resolution.by);
        if last.as_ref() == Some(&word) {
            return Ok(Resolved::Kept);
        }
        let (how, by) = word;
        let row = Message::Resolve { generation, step, attempt, how, by, kept }.row();
        match shared.put(id.clone(), row, Addressee::Unfinished).await {
            Ok(Written::Exists) => Err(spoken(BEFORE)),
            Ok(Written::Ended) => Err(spoken("the run has ended")),
            Ok(_) => Ok(if by_life { Resolved::Taken } else { Resolved::Kept }),
            Err(StoreError::NoSuchRun) => Err(Kind::RunNotFound(id).into()),
            Err(e) => Err(e.into()),
        }
    }
}

/// A person's word, checked against what the effect can return.
fn verdict(run: &RunId, hold: &Hold, returns: Option<Returns>, given: Given, limit: usize) -> Result<Verdict, Error> {
    let fitting = |given: Both| -> Result<Value, Error> {
        let value = if returns.is_some_and(|returns| returns.is_result) { given.wrapped } else { given.plain };
        let unfit = |error| Kind::ValueDoesNotFit { run: run.clone(), effect: hold.effect.clone(), error };
        let value = value.map_err(unfit)?;
        in_limit(run, hold, &value, limit)?;
        if let Some(returns) = &returns {
            // JSON says in better words what it expected.
            let in_words = |error| (returns.check)(&Value::from_json(&value.to_json())).err().unwrap_or(error);
            (returns.check)(&value).map_err(|error| unfit(in_words(error)))?;
        }
        Ok(value)
    };
    Ok(match given {
        Given::Succeeded(given) => Verdict::Succeeded(fitting(given)?),
        Given::FailedWith(given) => Verdict::FailedWith(fitting(given)?),
        Given::Failed(reason) => Verdict::Failed(reason),
        Given::RunAgain => Verdict::RunAgain,
    })
}

/// A person's word where the code is not at hand: the run looks at the value.
fn unchecked(run: &RunId, hold: &Hold, given: Given, limit: usize) -> Result<Verdict, Error> {
    let unchecked = |ok: bool, given: Both| -> Result<Verdict, Error> {
        let unfit = |error| Kind::ValueDoesNotFit { run: run.clone(), effect: hold.effect.clone(), error };
        let (plain, wrapped) = (given.plain.map_err(unfit)?, given.wrapped.map_err(unfit)?);
        in_limit(run, hold, &wrapped, limit)?;
        Ok(Verdict::Unchecked { ok, plain, wrapped })
    };
    match given {
        Given::Succeeded(given) => unchecked(true, given),
        Given::FailedWith(given) => unchecked(false, given),
        Given::Failed(reason) => Ok(Verdict::Failed(reason)),
        Given::RunAgain => Ok(Verdict::RunAgain),
    }
}

fn in_limit(run: &RunId, hold: &Hold, value: &Value, limit: usize) -> Result<(), Error> {
    if value.len() <= limit {
        return Ok(());
    }
    let what = format!("the value for step {} of run {run}", hold.step);
    Err(Kind::TooLarge { what, size: value.len(), limit }.into())
}
