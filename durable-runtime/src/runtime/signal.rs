//! Messages to runs.

use std::{fmt, future::IntoFuture, marker::PhantomData};

use serde::Serialize;

use super::{
    AnyRun, Request, Run, Runtime,
    look::Looked,
    question::fits,
    start::{ToStart, random_bits},
};
use crate::{
    error::{Error, Kind},
    id::{RunId, RunIdError},
    mailbox::{Mail, Message},
    steps::call::WorkflowCall,
    store::{Addressee, Row, StoreError, Written},
    value::{Recordable, Value, ValueError},
};

/// A message that is sent when this is awaited: see [`Runtime::signal`].
#[must_use = "it is sent when it is awaited"]
pub struct SignalRequest {
    runtime: Runtime,
    run: Result<RunId, RunIdError>,
    letter: Letter,
}

/// A run that is started with a message when this is awaited: see [`Runtime::signal_or_start`].
#[must_use = "it is sent when it is awaited"]
pub struct SignalOrStart<R> {
    runtime: Runtime,
    start: Result<ToStart, Error>,
    letter: Letter,
    _returns: PhantomData<fn() -> R>,
}

/// What is sent.
struct Letter {
    name: String,
    value: Result<Value, ValueError>,
    id: Option<String>,
    /// Whether a run that is not in memory is asked what it waits for.
    looks: bool,
}

/// What is put, if it fits.
struct Sealed {
    name: String,
    value: Value,
    row: Row,
    /// Its sender has named it: it may be the same as one before.
    named: bool,
    looks: bool,
}

impl fmt::Debug for SignalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalRequest").field("run", &self.run).field("name", &self.letter.name).finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for SignalOrStart<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalOrStart").field("name", &self.letter.name).finish_non_exhaustive()
    }
}

impl Letter {
    fn new<T: Serialize + ?Sized>(name: &str, value: &T) -> Letter {
        Letter { name: name.to_owned(), value: Value::encode(value), id: None, looks: false }
    }

    /// The row of a mailbox, if all of it can be recorded.
    fn seal(self, runtime: &Runtime) -> Result<Sealed, Error> {
        let Letter { name, value, id, looks } = self;
        let what = || format!("the value of signal {name:?}");
        let value = value.map_err(|error| Kind::NotRecordable { what: what(), error })?;
        let limit = runtime.shared().limits.value_bytes_max;
        if value.len() > limit {
            return Err(Kind::TooLarge { what: what(), size: value.len(), limit }.into());
        }
        if name.len() > limit {
            return Err(Kind::TooLarge { what: "the name of a signal".into(), size: name.len(), limit }.into());
        }
        let named = id.is_some();
        let id = match id {
            Some(id) => Mail::named_id(&name, &id),
            None => random_bits()?,
        };
        let sent_at = runtime.shared().clock.wall();
        let mail = Mail { id, name: name.clone(), value: value.as_bytes().clone(), sent_at };
        Ok(Sealed { name, value, row: Message::Signal(mail).row(), named, looks })
    }
}

impl SignalRequest {
    /// Gives the message an id of the sender's, unique among those to this run under this name: sent again, before or after the run
    /// has taken it, it is the same message. Without one, each is another.
    pub fn id(mut self, id: impl Into<String>) -> SignalRequest {
        self.letter.id = Some(id.into());
        self
    }

    /// A run that is not in memory is asked what it waits for, which costs a replay: for a person, who is told then, what is a program's fault.
    pub(crate) fn looking_first(mut self) -> SignalRequest {
        self.letter.looks = true;
        self
    }
}

impl<R> SignalOrStart<R> {
    /// See [`SignalRequest::id`].
    pub fn id(mut self, id: impl Into<String>) -> SignalOrStart<R> {
        self.letter.id = Some(id.into());
        self
    }
}

impl SignalRequest {
    /// Sends it; whether a message with its id was sent before, which then is this one.
    pub(crate) async fn send(self) -> Result<bool, Error> {
        let SignalRequest { runtime, run, letter } = self;
        let run = run?;
        let sealed = letter.seal(&runtime)?;
        Ok(runtime.put_signal(run, &sealed).await? == Written::Exists)
    }
}

impl IntoFuture for SignalRequest {
    type Output = Result<(), Error>;
    type IntoFuture = Request<()>;

    fn into_future(self) -> Request<()> {
        Box::pin(async move { self.send().await.map(drop) })
    }
}

impl<R: Recordable> IntoFuture for SignalOrStart<R> {
    type Output = Result<Run<R>, Error>;
    type IntoFuture = Request<Run<R>>;

    fn into_future(self) -> Request<Run<R>> {
        let SignalOrStart { runtime, start, letter, .. } = self;
        Box::pin(async move {
            let start = start?;
            let sealed = letter.seal(&runtime)?;
            let id = start.id.clone();
            loop {
                let there = match runtime.record(&id).await {
                    Ok(_) => true,
                    Err(error) if error.is_not_found() => false,
                    Err(error) => return Err(error),
                };
                if there {
                    let run = runtime.existing(&start).await?;
                    match runtime.put_signal(id.clone(), &sealed).await {
                        // Removed meanwhile.
                        Err(error) if error.is_not_found() => continue,
                        sent => drop(sent?),
                    }
                    return Ok(Run { run, _returns: PhantomData });
                }
                let run = match runtime.create(&start, Some(sealed.row.clone())).await? {
                    true => AnyRun { id, runtime },
                    // Somebody else was faster, and the message is in the mailbox.
                    false => runtime.existing(&start).await?,
                };
                return Ok(Run { run, _returns: PhantomData });
            }
        })
    }
}

impl Runtime {
    /// Sends a run a message under a name, which its code takes with `durable::signal` or `durable::signals`. When the answer is
    /// `Ok` the message is durable, and the run takes it, at once or whenever it waits for that name: none is lost, none is taken twice,
    /// and those of one name are taken in the order in which they came.
    ///
    /// What the run does not take before it ends is listed by [`AnyRun::messages`]. A value of another type than the run waits for is refused
    /// if the run is in memory and waits for that name; else the run sets it aside when it gets to it: see
    /// [`StepView::set_aside`](crate::StepView::set_aside).
    ///
    /// # Errors
    ///
    /// There is no such run ([`Error::is_not_found`]), or it has ended ([`Error::is_run_ended`]); an invalid id; a value that cannot be
    /// recorded or is longer than the limit, or that the run does not take
    /// ([`SignalDoesNotFit`](crate::Code::SignalDoesNotFit)); what the store says.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped the message may or may not be sent; with an id it can be sent again without harm.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// #[durable::workflow]
    /// async fn ship(order: String) -> durable::Result<String> {
    ///     let address: String = durable::signal("address").await;
    ///     Ok(format!("{order} to {address}"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("order-17", ship("order-17".into())).await?;
    /// runtime.signal("order-17", "address", "1 Main Street").id("m-7").await?;
    /// runtime.signal("order-17", "address", "1 Main Street").id("m-7").await?; // the same message
    /// assert_eq!(run.output().await?, "order-17 to 1 Main Street");
    /// assert!(runtime.signal("order-17", "address", "2 Main Street").await.unwrap_err().is_run_ended());
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal<T: Serialize + ?Sized>(&self, run: impl AsRef<str>, name: &str, value: &T) -> SignalRequest {
        SignalRequest { runtime: self.clone(), run: RunId::new(run), letter: Letter::new(name, value) }
    }

    /// Sends a run a message, and starts the run if it is not there: then the message is in its mailbox before its code first looks.
    ///
    /// # Errors
    ///
    /// Those of [`Runtime::start`], of which a conflict sends nothing, and of [`Runtime::signal`]. A store that refuses the message may have
    /// made the run: asking again, with the same id, sends it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// #[durable::workflow]
    /// async fn conversation(customer: String) -> durable::Result<usize> {
    ///     let mut letters = 0;
    ///     loop {
    ///         let text: String = durable::signal("message").await;
    ///         letters += text.len();
    ///         if text == "bye" {
    ///             return Ok(letters);
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// for (id, text) in [("m-1", "hello"), ("m-2", "bye")] {
    ///     runtime.signal_or_start("ann", conversation("ann".into()), "message", text).id(id).await?;
    /// }
    /// assert_eq!(runtime.run("ann").await?.returned_as::<durable::Result<usize>>().await?.unwrap(), 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal_or_start<R: Recordable, T: Serialize + ?Sized>(
        &self,
        run: impl AsRef<str>,
        call: WorkflowCall<R>,
        name: &str,
        value: &T,
    ) -> SignalOrStart<R> {
        let (start, letter) = (self.to_start(run.as_ref(), call), Letter::new(name, value));
        SignalOrStart { runtime: self.clone(), start, letter, _returns: PhantomData }
    }

    async fn put_signal(&self, run: RunId, sealed: &Sealed) -> Result<Written, Error> {
        if let Some(reason) = self.does_not_fit(&run, sealed).await? {
            return Err(Kind::SignalDoesNotFit { run, name: sealed.name.clone(), reason }.into());
        }
        match self.shared().put(run.clone(), sealed.row.clone(), Addressee::Unfinished).await {
            Ok(Written::Ended) => {
                let state = self.state(&run).await?;
                Err(Kind::RunEnded { run, state }.into())
            }
            Ok(written) => Ok(written),
            Err(StoreError::NoSuchRun) => Err(Kind::RunNotFound(run).into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Why the run will not take a message, if that can be said now.
    async fn does_not_fit(&self, run: &RunId, sealed: &Sealed) -> Result<Option<String>, Error> {
        let Sealed { name, value, row, named, looks } = sealed;
        let mut takes = self.takes_next(run, name).await;
        if takes.is_none() && *looks && self.record(run).await?.head.live {
            takes = match self.look_closely(run).await? {
                Looked::Life(look) => look.signals.get(name).copied(),
                Looked::Log(_) | Looked::Ended => None,
            };
        }
        let Some(Err(reason)) = takes.map(|takes| fits(takes, value)) else { return Ok(None) };
        if *named {
            // Sent before, it is the same message still, whatever the run waits for by now.
            let id = run.clone();
            let before = self.shared().read(move |store| store.dump(&id)).await?;
            let is_it = |there: &u128| *there == row.id;
            if before.is_some_and(|dump| dump.taken.iter().chain(dump.rows.iter().map(|(_, row)| &row.id)).any(is_it)) {
                return Ok(None);
            }
        }
        Ok(Some(reason))
    }
}

impl AnyRun {
    /// Sends this run a message: see [`Runtime::signal`].
    ///
    /// # Errors
    ///
    /// As [`Runtime::signal`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// #[durable::workflow]
    /// async fn adds() -> durable::Result<i64> {
    ///     let first: i64 = durable::signal("n").await;
    ///     let second: i64 = durable::signal("n").await;
    ///     Ok(first + second)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("adds", adds()).await?;
    /// run.signal("n", &40).await?;
    /// run.signal("n", &2).await?;
    /// assert_eq!(run.output().await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> SignalRequest {
        SignalRequest { runtime: self.runtime.clone(), run: Ok(self.id.clone()), letter: Letter::new(name, value) }
    }
}
