//! A person's word, as one step.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Name, Reads, Step, Wait, named, only_in_workflows, sealed::Sealed};
use crate::{
    contract::Site,
    core::{AskQuestion, Core, Delivered},
    failure::shortened,
    value::{Recordable, Value, ValueError},
};

/// Asks a person, and waits for the answer: [`Answer::Granted`] with a `T`, [`Answer::Refused`] with a reason, or
/// [`Answer::Expired`] if nobody answered in time. A text is a question with that title and nothing else.
///
/// The question is recorded: `Runtime::questions` (and `durable ask`) lists it with a token that stays the same over restarts, and
/// `Runtime::answer` (and `durable answer`) answers it. The first answer wins, later ones are told so. One that does not decode as `T`, or
/// by somebody who may not answer, is refused, and the question stays open. Nothing that ran before the question runs
/// again after its answer, and a run that only waits for people costs nothing, for days.
///
/// A question that is dropped (a lost [`race`](crate::race)) is closed, and so is every one outside of a
/// [`shield`](crate::shield) when the run is cancelled; later answers are told so. What cannot be recorded as
/// [`Question::about`] parks the run.
///
/// ```
/// use durable::{Answer, Question, Reply};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Order { id: String, cents: u64 }
/// # #[durable::effect(idempotent)]
/// # async fn refund(order: &str, cents: u64) -> durable::Result<u64> { Ok(cents) }
///
/// #[durable::workflow]
/// async fn refund_agent(order: Order) -> durable::Result<u64> {
///     let question = Question::new(format!("refund {} cents?", order.cents)).about(&order).by(["ann", "lead"]);
///     match durable::ask::<u64>(question).await {
///         Answer::Granted(most) => refund(&order.id, order.cents.min(most)).await,
///         Answer::Refused(reason) => Err(durable::Failure::new(reason)),
///         Answer::Expired => Err(durable::Failure::new("nobody answered")),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", refund_agent(Order { id: "ORD-1".into(), cents: 12_000 })).await?;
/// let question = loop {
///     if let Some(question) = runtime.questions().await?.pop() {
///         break question;
///     }
///     tokio::task::yield_now().await;
/// };
/// assert_eq!(question.about["cents"], 12_000);
/// runtime.answer(&question.token, Reply::granted(&10_000)).by("ann").await?;
/// assert_eq!(run.output().await?, 10_000);
/// # Ok(())
/// # }
/// ```
pub fn ask<T: Recordable>(question: impl Into<Question>) -> Asking<T> {
    Asking { name: "ask".into(), question: question.into(), reads: Reads::NEW }
}

/// What a person is asked with [`ask`].
///
/// Title, subject and names are part of the recorded command: on replay they must come out the same.
#[derive(Clone, Debug)]
pub struct Question {
    title: String,
    about: Option<Result<Value, ValueError>>,
    by: Vec<String>,
    within: Option<Duration>,
}

impl Question {
    /// A question that anybody may answer, at any time.
    pub fn new(title: impl Into<String>) -> Question {
        Question { title: title.into(), about: None, by: Vec::new(), within: None }
    }

    /// What is to be approved: give all that whoever answers must know, such as the whole arguments of the call that a yes allows.
    #[must_use]
    pub fn about<T: Serialize + ?Sized>(mut self, subject: &T) -> Question {
        self.about = Some(Value::encode(subject));
        self
    }

    /// Who may answer; without this, anybody. The names mean what your front end takes them for: the library compares them with
    /// the one that an answer gives.
    #[must_use]
    pub fn by<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Question {
        self.by.extend(names.into_iter().map(Into::into));
        self
    }

    /// How long it may be answered, also over restarts of the process; then it is [`Answer::Expired`]. Measured like a
    /// [`sleep`](crate::sleep); the recorded deadline rules, whatever the code says on replay.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Question {
        self.within = Some(limit);
        self
    }
}

impl From<&str> for Question {
    fn from(title: &str) -> Question {
        Question::new(title)
    }
}

impl From<String> for Question {
    fn from(title: String) -> Question {
        Question::new(title)
    }
}

/// How a question that was put with [`ask`] ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a refusal is no error by itself"]
pub enum Answer<T> {
    /// Yes, and with what.
    Granted(T),
    /// No, and why.
    Refused(String),
    /// Nobody answered in time.
    Expired,
}

impl<T> Answer<T> {
    /// What was granted, if it was.
    pub fn granted(self) -> Option<T> {
        match self {
            Answer::Granted(value) => Some(value),
            Answer::Refused(_) | Answer::Expired => None,
        }
    }

    /// Whether it was granted.
    pub fn is_granted(&self) -> bool {
        matches!(self, Answer::Granted(_))
    }
}

/// See [`ask`].
#[must_use = "the question is asked when a workflow awaits this"]
pub struct Asking<T> {
    name: Name,
    question: Question,
    reads: Reads<T>,
}

named!([T] Asking<T>);
only_in_workflows!([T] Asking<T>);

impl<T> std::fmt::Debug for Asking<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("question", &self.question).finish_non_exhaustive()
    }
}

impl<T> Sealed for Asking<T> {}

impl<T> Step for Asking<T> {
    type Output = Answer<T>;
    type Future = AskFuture<T>;

    fn into_future(self, site: &'static Site) -> AskFuture<T> {
        let Question { title, about, by, within } = self.question;
        let shown = shortened(&title).into_owned();
        let ask = AskQuestion { name: self.name, title, about, by, within, takes: self.reads.takes };
        AskFuture { wait: Wait::New(ask), title: shown, site, reads: self.reads }
    }
}

/// A question that is open.
#[doc(hidden)]
pub struct AskFuture<T> {
    wait: Wait<AskQuestion>,
    /// For messages.
    title: String,
    site: &'static Site,
    reads: Reads<T>,
}

impl<T> Future for AskFuture<T> {
    type Output = Answer<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer<T>> {
        let this = &mut *self;
        let site = this.site;
        let ask = |core: &mut Core, ask| core.ask_question(ask, site);
        let Some((delivered, _)) = this.wait.poll(ask) else { return Poll::Pending };
        match delivered {
            Delivered::Granted(value) => {
                let value = this.reads.decoded(value, || format!("question {:?}", this.title), site);
                value.map_or(Poll::Pending, |value| Poll::Ready(Answer::Granted(value)))
            }
            Delivered::Refused(reason) => Poll::Ready(Answer::Refused(reason)),
            Delivered::Expired => Poll::Ready(Answer::Expired),
            _ => unreachable!("a question's completion is an answer: the fold refuses another"),
        }
    }
}
