//! Open questions, and who answers them.

use std::{
    fmt,
    future::IntoFuture,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::Serialize;

use super::{Request, Runtime, look::Looked, start::random_bits};
use crate::{
    core::{Stop, Takes},
    error::{Code, Error, Kind},
    failure::shortened,
    mailbox::{self, Message},
    store::{Addressee, Row, Store, StoreError, Write, Written},
    value::{Value, ValueError},
    view::{AskedEnd, AskedLog, OpenAsk, OpenQuestion, Stored, Token},
    worker::Phase,
};

/// An answer to a question.
#[derive(Clone, Debug)]
pub struct Reply {
    verdict: Result<Result<Value, ValueError>, String>,
}

impl Reply {
    /// Yes, with a value of the type that was asked for, or JSON as a person would write it.
    pub fn granted<T: Serialize + ?Sized>(value: &T) -> Reply {
        Reply { verdict: Ok(Value::encode(value)) }
    }

    /// No, and why.
    pub fn refused(reason: impl Into<String>) -> Reply {
        Reply { verdict: Err(shortened(&reason.into()).into_owned()) }
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answered {
    /// The run has taken it.
    Taken,
    /// It is durable, and the run takes it as soon as it goes on: it is parked, waits for its code, or is in no process. Nobody can say until
    /// then whether a value is of the type that was asked for; of several answers that are kept the run takes the first that is.
    Kept,
}

/// An answer that is given when this is awaited: see [`Runtime::answer`].
#[must_use = "it is given when it is awaited"]
pub struct AnswerRequest {
    runtime: Runtime,
    token: String,
    reply: Reply,
    by: Option<String>,
}

impl fmt::Debug for AnswerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerRequest").field("token", &self.token).field("by", &self.by).finish_non_exhaustive()
    }
}

impl AnswerRequest {
    /// Says who answers; recorded in the log. Needed where the question names who may.
    pub fn by(mut self, who: impl Into<String>) -> AnswerRequest {
        self.by = Some(shortened(&who.into()).into_owned());
        self
    }
}

impl IntoFuture for AnswerRequest {
    type Output = Result<Answered, Error>;
    type IntoFuture = Request<Answered>;

    fn into_future(self) -> Request<Answered> {
        Box::pin(async move {
            let AnswerRequest { runtime, token, reply, by } = self;
            let at = Token::read(&token).ok_or_else(|| Kind::QuestionNotFound { token: token.clone() })?;
            let verdict = match reply.verdict {
                Ok(value) => {
                    let what = format!("the answer to question {token}");
                    let value = match value {
                        Ok(value) => value,
                        Err(error) => return Err(Kind::NotRecordable { what, error }.into()),
                    };
                    let limit = runtime.shared().limits.value_bytes_max;
                    if value.len() > limit {
                        return Err(Kind::TooLarge { what, size: value.len(), limit }.into());
                    }
                    Ok(value)
                }
                Err(reason) => Err(reason),
            };
            Answering { runtime, token, at, verdict, by }.give().await
        })
    }
}

impl Runtime {
    /// The open questions of all runs, by when they were asked, those of runs that are not in memory included.
    ///
    /// # Errors
    ///
    /// What the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Answer, Question, Reply, Runtime};
    /// #[durable::workflow]
    /// async fn refunds(cents: u32) -> durable::Result<String> {
    ///     let question = Question::new("refund?").about(&cents).by(["ann", "bob"]);
    ///     Ok(match durable::ask::<u32>(question).await {
    ///         Answer::Granted(cents) => format!("refunded {cents}"),
    ///         Answer::Refused(why) => format!("refused: {why}"),
    ///         Answer::Expired => "nobody answered".into(),
    ///     })
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("order-17", refunds(12_000)).await?;
    /// # while runtime.questions().await?.is_empty() { tokio::task::yield_now().await; }
    /// let open = runtime.questions().await?;
    /// assert_eq!((&*open[0].token, &open[0].about), ("order-17:0:ask@0", &12_000.into()));
    /// runtime.answer(&open[0].token, Reply::granted(&10_000)).by("ann").await?;
    /// assert_eq!(run.output().await?, "refunded 10000");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn questions(&self) -> Result<Vec<OpenQuestion>, Error> {
        let all = self.look_at_all().await?;
        let mut open: Vec<_> = all.into_iter().flat_map(|(_, look)| look.questions).map(|ask| ask.question).collect();
        open.sort_by(|a, b| (a.asked_at, &a.run, &a.token).cmp(&(b.asked_at, &b.run, &b.token)));
        Ok(open)
    }

    /// Answers a question. The first answer that fits counts, and whoever comes later is told so. When the answer is [`Answered::Taken`] the
    /// run goes on with it; [`Answered::Kept`] says that it is durable, and that the run is parked, waits for its code, or is in no
    /// process: it is taken when that is over, unless one before it fits.
    ///
    /// # Errors
    ///
    /// By [`Error::code`]: [`QuestionNotFound`](crate::Code::QuestionNotFound); [`QuestionAnswered`](crate::Code::QuestionAnswered), with
    /// [`Error::answered_by`]; [`QuestionExpired`](crate::Code::QuestionExpired); [`QuestionClosed`](crate::Code::QuestionClosed): the run
    /// waits for no answer any more; [`MayNotAnswer`](crate::Code::MayNotAnswer);
    /// [`AnswerDoesNotFit`](crate::Code::AnswerDoesNotFit): the question stays open; a value that cannot be recorded or is longer than the
    /// limit; what the store says.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped the answer may or may not be given; answering again tells.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Answered, Code, Reply, Runtime};
    /// #[durable::workflow]
    /// async fn asks() -> durable::Result<bool> {
    ///     Ok(matches!(durable::ask::<()>("shall it be done?").await, durable::Answer::Granted(())))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("asks", asks()).await?;
    /// # while runtime.questions().await?.is_empty() { tokio::task::yield_now().await; }
    /// let token = runtime.questions().await?[0].token.clone();
    /// assert_eq!(runtime.answer(&token, Reply::refused("too early")).by("bob").await?, Answered::Taken);
    /// let late = runtime.answer(&token, Reply::granted(&())).by("ann").await.unwrap_err();
    /// assert_eq!((late.code(), late.answered_by()), (Code::QuestionAnswered, Some("bob")));
    /// assert!(!run.output().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn answer(&self, token: impl Into<String>, reply: Reply) -> AnswerRequest {
        AnswerRequest { runtime: self.clone(), token: token.into(), reply, by: None }
    }
}

/// An answer on its way.
struct Answering {
    runtime: Runtime,
    token: String,
    at: Token,
    verdict: Result<Value, String>,
    by: Option<String>,
}

impl Answering {
    async fn give(self) -> Result<Answered, Error> {
        let shared = self.runtime.shared().clone();
        loop {
            let (log, live) = self.read(AskedLog::new(self.fresh(), self.at.path.clone())).await?;
            let Some(asked) = &log.asked else { return Err(self.not_found()) };
            if let Some(end) = &asked.end {
                return Err(self.too_late(end));
            }
            if !live {
                return Err(Kind::QuestionClosed { token: self.token.clone() }.into());
            }
            let may: Vec<String> = asked.question.by.iter().map(ToString::to_string).collect();
            if !may.is_empty() && !self.by.as_ref().is_some_and(|by| may.contains(by)) {
                return Err(Kind::MayNotAnswer { token: self.token.clone(), who: self.by.clone(), may }.into());
            }
            let (round, checked) = match self.runtime.look_closely(&self.at.run).await? {
                // Its log says how the question came to its end.
                Looked::Ended => continue,
                Looked::Life(look) => match self.open(&look.questions) {
                    // Its code asked, and does not wait any more, in a way that its log alone does not tell: it is cancelled.
                    None if look.generation == self.at.generation && self.is_open(&log).await? => {
                        return Err(Kind::QuestionClosed { token: self.token.clone() }.into());
                    }
                    None => continue,
                    Some(ask) if ask.expired => return Err(self.over().await?),
                    Some(ask) => (ask.round, self.check(ask)?),
                },
                Looked::Log(look) => match self.open(&look.questions) {
                    None => continue,
                    Some(ask) if ask.expired => return Err(self.over().await?),
                    Some(ask) => (ask.round, self.check(ask)?),
                },
            };
            let given = self.given().await?;
            if let Some(first) = given.iter().find(|first| first.unchecked.is_none()) {
                return Err(self.answered(&first.by));
            }
            let reply = self.reply(round, if checked { None } else { Some(random_bits()?) });
            let same = |before: &mailbox::Reply| (&before.verdict, &before.by) == (&reply.verdict, &reply.by);
            if !checked && given.iter().any(same) {
                return Ok(Answered::Kept);
            }
            // Whatever comes now is put behind this.
            let seen = self.runtime.record(&self.at.run).await?.version;
            let row = Message::Reply(reply).row();
            match shared.put(self.at.run.clone(), row.clone(), Addressee::Unfinished).await {
                Ok(Written::Done) => return self.taken(log, row.id, seen).await,
                // Somebody was faster; or it was taken, or was of no use, and the log says so.
                Ok(_) => {}
                Err(StoreError::NoSuchRun) => return Err(self.not_found()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn open<'a>(&self, open: &'a [OpenAsk]) -> Option<&'a OpenAsk> {
        open.iter().find(|ask| ask.question.token == self.token)
    }

    /// A question whose time is over: somebody may have answered it in time, and the run has not got to that yet.
    async fn over(&self) -> Result<Error, Error> {
        // First the rows, then the log: what has taken a row stands in the log then.
        if let Some(first) = self.given().await?.iter().find(|first| first.unchecked.is_none()) {
            return Ok(self.answered(&first.by));
        }
        let (log, _) = self.read(AskedLog::new(self.fresh(), self.at.path.clone())).await?;
        Ok(match log.asked.and_then(|asked| asked.end) {
            Some(end) => self.too_late(&end),
            None => Kind::QuestionExpired { token: self.token.clone() }.into(),
        })
    }

    /// Whether an open question is known to take this answer.
    fn check(&self, ask: &OpenAsk) -> Result<bool, Error> {
        match (&self.verdict, ask.takes) {
            (Ok(value), Some(takes)) => {
                fits(takes, value).map_err(|reason| Kind::AnswerDoesNotFit { token: self.token.clone(), reason })?;
                Ok(true)
            }
            (Ok(_), None) => Ok(false),
            // A no is always one.
            (Err(_), _) => Ok(true),
        }
    }

    /// Whether what was appended to the log since says nothing of the question's end.
    async fn is_open(&self, before: &AskedLog) -> Result<bool, Error> {
        let (log, live) = self.read(AskedLog::new(self.fresh(), self.at.path.clone())).await?;
        let open = |log: &AskedLog| log.asked.as_ref().is_some_and(|asked| asked.end.is_none());
        Ok(live && open(before) && open(&log))
    }

    fn fresh(&self) -> Stored {
        Stored { generation: self.at.generation, ..Stored::default() }
    }

    /// Reads the question's log on; and whether it can still be answered. What is read is durable.
    async fn read(&self, mut log: AskedLog) -> Result<(AskedLog, bool), Error> {
        let shared = self.runtime.shared();
        let run = self.at.run.clone();
        let read = move |store: &dyn Store| {
            let Some(record) = store.run(&run)? else { return Ok(None) };
            let live = record.head.live && record.head.generation == log.log.generation;
            let read = log.read_on(store, &run);
            Ok(Some((log, live, read)))
        };
        let Some((log, live, read)) = shared.read(read).await? else { return Err(self.not_found()) };
        read.map_err(|stop: Stop| self.runtime.unreadable(&self.at.run, &stop))?;
        shared.write(Write::Barrier).await?;
        Ok((log, live))
    }

    fn reply(&self, round: u32, unchecked: Option<u128>) -> mailbox::Reply {
        let verdict = self.verdict.as_ref().map(|value| value.as_bytes().clone()).map_err(Clone::clone);
        let by = self.by.clone().unwrap_or_else(|| "a person".into());
        let (generation, path) = (self.at.generation.0, self.at.path.clone());
        mailbox::Reply { generation, path, round, verdict, by, unchecked }
    }

    /// The answers that the run has not taken, in the order in which they were given.
    async fn given(&self) -> Result<Vec<mailbox::Reply>, Error> {
        let run = self.at.run.clone();
        let rows = self.runtime.shared().read(move |store| store.rows(&run, 0, usize::MAX)).await?;
        let of_it = |(_, row): &(u64, Row)| match Message::read(row) {
            Some(Message::Reply(reply)) if (reply.generation, &reply.path) == (self.at.generation.0, &self.at.path) => {
                Some(reply)
            }
            _ => None,
        };
        Ok(rows.iter().filter_map(of_it).collect())
    }

    /// Waits until the run has taken the row, or cannot.
    async fn taken(&self, log: AskedLog, row: u128, seen: u64) -> Result<Answered, Error> {
        match self.wait_taken(log, row, seen).await {
            // Shut down meanwhile: the row is durable, and that is all that can be known here.
            Err(error) if error.code() == Code::Closed => Ok(Answered::Kept),
            taken => taken,
        }
    }

    async fn wait_taken(&self, mut log: AskedLog, row: u128, seen: u64) -> Result<Answered, Error> {
        let shared = self.runtime.shared();
        let mine = self.reply(0, None);
        loop {
            // Followed first: what happens after the look at the store is not missed.
            let mut followed = shared.follow(&self.at.run);
            let phase = followed.phase.borrow_and_update().clone();
            followed.durable.borrow_and_update();
            // First the row, then the log: what has taken the row stands in the log then.
            let run = self.at.run.clone();
            let rows = shared.read(move |store| store.rows(&run, seen, usize::MAX)).await?;
            let there = rows.iter().any(|(_, there)| there.id == row);
            let live;
            (log, live) = self.read(log).await?;
            let Some(asked) = &log.asked else { return Err(self.not_found()) };
            if let Some((_, reason)) = asked.set_aside.iter().find(|(id, _)| *id == row) {
                return Err(Kind::AnswerDoesNotFit { token: self.token.clone(), reason: reason.clone() }.into());
            }
            match &asked.end {
                // Whoever has said the same at the same moment is the same person.
                Some(AskedEnd::Answered { by, verdict }) if is_that(&mine, by, verdict) => return Ok(Answered::Taken),
                Some(end) => return Err(self.too_late(end)),
                None if !there || !live => return Err(Kind::QuestionClosed { token: self.token.clone() }.into()),
                None => {}
            }
            if shared.is_closing() || matches!(phase, Phase::Parked(_) | Phase::NoCode { .. }) {
                return Ok(Answered::Kept);
            }
            let mut closing = shared.closing.subscribe();
            tokio::select! {
                _ = followed.phase.changed() => {}
                _ = followed.durable.changed() => {}
                _ = closing.wait_for(|closing| *closing) => return Ok(Answered::Kept),
            }
        }
    }

    fn not_found(&self) -> Error {
        Kind::QuestionNotFound { token: self.token.clone() }.into()
    }

    fn answered(&self, by: &str) -> Error {
        let by = if by.is_empty() { "a person" } else { by };
        Kind::QuestionAnswered { token: self.token.clone(), by: by.to_owned() }.into()
    }

    fn too_late(&self, end: &AskedEnd) -> Error {
        match end {
            AskedEnd::Answered { by, .. } => self.answered(by),
            AskedEnd::Expired => Kind::QuestionExpired { token: self.token.clone() }.into(),
            AskedEnd::Closed => Kind::QuestionClosed { token: self.token.clone() }.into(),
        }
    }
}

/// Whether that is what was taken.
fn is_that(reply: &mailbox::Reply, by: &str, verdict: &Result<Vec<u8>, String>) -> bool {
    let same = match (&reply.verdict, verdict) {
        (Ok(given), Ok(taken)) => **given == **taken,
        (Err(given), Err(taken)) => given == taken,
        _ => false,
    };
    same && reply.by == by
}

/// Whether a value is of the type that was asked for; why not, if not. Decoding is user code.
pub(super) fn fits(takes: Takes, value: &Value) -> Result<(), String> {
    // JSON says in better words what it expected.
    let in_words = |error: ValueError| takes(&Value::from_json(&value.to_json())).err().unwrap_or(error);
    let fits = catch_unwind(AssertUnwindSafe(|| takes(value).map_err(in_words)));
    match fits {
        Ok(fits) => fits.map_err(|error| shortened(&error.to_string()).into_owned()),
        Err(payload) => Err(format!("decoding it panicked: {}", crate::effect::panic_text(payload))),
    }
}
