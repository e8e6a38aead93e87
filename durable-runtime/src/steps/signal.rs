//! Messages from outside that a workflow waits for.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;

use super::{Name, Reads, Step, Wait, named, only_in_workflows, sealed::Sealed};
use crate::{
    contract::Site,
    core::{Core, Delivered, Takes},
    value::Recordable,
};

/// Waits for a message of this name and takes the oldest: of those sent from outside with [`Run::signal`](crate::AnyRun::signal), and
/// from other runs with [`send`](crate::send). They come in the order in which they were put in the run's mailbox, none is lost or
/// taken twice, and what was sent before anybody waited (even before the run was started) is there.
///
/// A message that does not decode as `T` is set aside (the log has `signal.set_aside` and the reason), and the wait goes on. Where
/// several steps wait for one name, the first message is for the one that was asked first.
///
/// A run that only waits leaves memory and costs nothing until it is woken. A wait that is dropped (a
/// [`race`](crate::race) that is lost, a [`timeout`](crate::timeout)) takes no message. When the run is cancelled the wait ends silently
/// and takes none either; after [`restart_as`](crate::restart_as) the messages not taken are there for the next log.
///
/// ```
/// # use std::time::Duration;
/// #[durable::workflow]
/// async fn agent(task: String) -> String {
///     let correction = durable::signal::<String>("correction");
///     match durable::timeout(Duration::from_secs(3_600), correction).await {
///         Ok(correction) => format!("{task}, but {correction}"),
///         Err(_elapsed) => task,
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", agent("write a poem".into())).await?;
/// run.signal("correction", "in German").await?; // durable once this answers
/// assert_eq!(run.returned().await?, "write a poem, but in German");
/// # Ok(())
/// # }
/// ```
pub fn signal<T: Recordable>(name: impl Into<Name>) -> Signal<T> {
    let signal = name.into();
    Signal { name: format!("signal:{signal}").into(), signal, reads: Reads::NEW }
}

/// Takes all messages of this name that are there, oldest first, and waits for none: to be steered between two steps of work.
///
/// It is a step like any other, so an empty answer is one too, and is the same on every replay; to wait for a message use [`signal`].
/// What does not decode as `T` is set aside. The messages taken at once are 16 MiB together at most; what is left is there for the next.
///
/// ```
/// # #[durable::effect(read_only)]
/// # async fn chat(history: &[String]) -> durable::Result<String> { Ok(format!("reply {}", history.len())) }
/// #[durable::workflow]
/// async fn agent(mut history: Vec<String>) -> durable::Result<Vec<String>> {
///     while history.len() < 4 {
///         history.extend(durable::signals::<String>("steer").await);
///         history.push(chat(&history).await?);
///     }
///     Ok(history)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let call = agent(vec!["hello".into()]);
/// let run = runtime.signal_or_start("r", call, "steer", "be brief").await?;
/// assert_eq!(run.output().await?, ["hello", "be brief", "reply 2", "reply 3"]);
/// # Ok(())
/// # }
/// ```
pub fn signals<T: Recordable>(name: impl Into<Name>) -> Signals<T> {
    let signal = name.into();
    Signals { name: format!("signals:{signal}").into(), signal, reads: Reads::NEW }
}

/// See [`signal`].
#[must_use = "it waits for a message when a workflow awaits it"]
pub struct Signal<T> {
    name: Name,
    signal: Name,
    reads: Reads<T>,
}

named!([T] Signal<T>);
only_in_workflows!([T] Signal<T>);

impl<T> std::fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").field("signal", &self.signal).finish_non_exhaustive()
    }
}

/// See [`signals`].
#[must_use = "it takes the messages when a workflow awaits it"]
pub struct Signals<T> {
    name: Name,
    signal: Name,
    reads: Reads<T>,
}

named!([T] Signals<T>);
only_in_workflows!([T] Signals<T>);

impl<T> std::fmt::Debug for Signals<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("signal", &self.signal).finish_non_exhaustive()
    }
}

/// What is asked for a wait.
struct AskSignal {
    name: Name,
    signal: Name,
    drain: bool,
    takes: Takes,
}

/// A wait for messages, whatever their type.
struct Waiting {
    wait: Wait<AskSignal>,
    signal: Name,
    site: &'static Site,
}

impl Waiting {
    fn new(ask: AskSignal, site: &'static Site) -> Waiting {
        Waiting { signal: ask.signal.clone(), wait: Wait::New(ask), site }
    }

    /// The messages that have come.
    fn poll(&mut self) -> Option<Vec<Bytes>> {
        let site = self.site;
        let ask = |core: &mut Core, ask: AskSignal| core.ask_signal(ask.name, ask.signal, ask.drain, ask.takes, site);
        match self.wait.poll(ask)?.0 {
            Delivered::Messages(messages) => Some(messages),
            _ => unreachable!("a signal's completion has messages: the fold refuses another"),
        }
    }

    fn read<T>(&self, reads: &Reads<T>, message: Bytes) -> Option<T> {
        reads.decoded(message, || format!("signal {}", self.signal), self.site)
    }
}

impl<T> Sealed for Signal<T> {}

impl<T> Step for Signal<T> {
    type Output = T;
    type Future = SignalFuture<T>;

    fn into_future(self, site: &'static Site) -> SignalFuture<T> {
        let Signal { name, signal, reads } = self;
        let ask = AskSignal { name, signal, drain: false, takes: reads.takes };
        SignalFuture { waiting: Waiting::new(ask, site), reads }
    }
}

/// A signal that is awaited.
#[doc(hidden)]
pub struct SignalFuture<T> {
    waiting: Waiting,
    reads: Reads<T>,
}

impl<T> Future for SignalFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let Some(messages) = self.waiting.poll() else { return Poll::Pending };
        // One; a record without any does not decode.
        let message = messages.into_iter().next().unwrap_or_default();
        self.waiting.read(&self.reads, message).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Sealed for Signals<T> {}

impl<T> Step for Signals<T> {
    type Output = Vec<T>;
    type Future = SignalsFuture<T>;

    fn into_future(self, site: &'static Site) -> SignalsFuture<T> {
        let Signals { name, signal, reads } = self;
        let ask = AskSignal { name, signal, drain: true, takes: reads.takes };
        SignalsFuture { waiting: Waiting::new(ask, site), reads }
    }
}

/// Signals that are awaited.
#[doc(hidden)]
pub struct SignalsFuture<T> {
    waiting: Waiting,
    reads: Reads<T>,
}

impl<T> Future for SignalsFuture<T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Vec<T>> {
        let Some(messages) = self.waiting.poll() else { return Poll::Pending };
        let this = &*self;
        let read = |message| this.waiting.read(&this.reads, message);
        messages.into_iter().map(read).collect::<Option<Vec<T>>>().map_or(Poll::Pending, Poll::Ready)
    }
}
