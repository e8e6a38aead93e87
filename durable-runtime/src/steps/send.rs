//! What a run says to others: messages, and values that readers may look at.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use serde::Serialize;

use super::{Name, Step, named, only_in_workflows, sealed::Sealed};
use crate::{
    contract::Site,
    core::with,
    id::{RunId, RunIdError},
    value::{Value, ValueError},
};

/// Puts a message into another run's mailbox, for its [`signal`](crate::signal) of this name. Ready at once.
///
/// The message is sent in the batch that records it, so exactly once, whatever crashes. It may come before that run is started,
/// and is kept for it; one to a run that has ended is taken by nobody. Two messages of one run to another are taken in the order
/// in which they were sent.
///
/// Where the run is being cancelled nothing is sent, and this is never ready. A value that cannot be recorded, one longer than
/// `Builder::value_bytes_max`, and a text that is no run id park the run; so does, on replay, a value that comes out otherwise (a
/// `HashSet` inside has another order each time).
///
/// ```
/// #[durable::workflow]
/// async fn writer(reader: String) {
///     durable::send(&reader, "draft", "once upon a time").await;
/// }
///
/// #[durable::workflow]
/// async fn reader() -> String {
///     durable::signal("draft").await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let reader = runtime.start("reader", reader()).await?;
/// runtime.start("writer", writer("reader".into())).await?;
/// assert_eq!(reader.returned().await?, "once upon a time");
/// # Ok(())
/// # }
/// ```
pub fn send<T: Serialize + ?Sized>(run: impl AsRef<str>, name: impl Into<Name>, value: &T) -> Sending {
    let signal = name.into();
    let (to, value) = (RunId::new(run), Value::encode(value));
    Sending { name: format!("send:{signal}").into(), signal, to, value }
}

/// Publishes a value under a name, for `Run::published`: how far the run is, what it has found. Ready at once; the last value
/// of a name is the one that readers see, also when the run has ended.
///
/// It becomes visible in the batch that records it: what a reader has seen is never taken back by a crash. Where the run is being
/// cancelled nothing is published, and this is never ready. A value that cannot be recorded, or is longer than
/// `Builder::value_bytes_max`, parks the run; so does, on replay, one that comes out otherwise (a `HashSet` inside).
///
/// ```
/// #[durable::workflow]
/// async fn agent(pages: u32) -> u32 {
///     for page in 1..=pages {
///         durable::publish("progress", &(page, pages)).await;
///     }
///     pages
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), durable::Error> {
/// # let runtime = durable::Runtime::builder().open_in_memory().await?;
/// let run = runtime.start("r", agent(3)).await?;
/// run.returned().await?;
/// assert_eq!(run.published::<(u32, u32)>("progress").await?, Some((3, 3)));
/// # Ok(())
/// # }
/// ```
pub fn publish<T: Serialize + ?Sized>(name: impl Into<Name>, value: &T) -> Publishing {
    let published = name.into();
    Publishing { name: format!("publish:{published}").into(), published, value: Value::encode(value) }
}

/// See [`send`].
#[must_use = "the message is sent when a workflow awaits this"]
#[derive(Debug)]
pub struct Sending {
    name: Name,
    signal: Name,
    to: Result<RunId, RunIdError>,
    value: Result<Value, ValueError>,
}

named!([] Sending);
only_in_workflows!([] Sending);

impl Sealed for Sending {}

impl Step for Sending {
    type Output = ();
    type Future = SendFuture;

    fn into_future(self, site: &'static Site) -> SendFuture {
        SendFuture { sending: Some(self), site }
    }
}

/// A message that is being sent.
#[doc(hidden)]
pub struct SendFuture {
    sending: Option<Sending>,
    site: &'static Site,
}

impl Future for SendFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let Some(Sending { name, signal, to, value }) = self.sending.take() else { return Poll::Pending };
        let site = self.site;
        match with(|core| core.send(name, to, signal, value, site)) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// See [`publish`].
#[must_use = "the value is published when a workflow awaits this"]
#[derive(Debug)]
pub struct Publishing {
    name: Name,
    published: Name,
    value: Result<Value, ValueError>,
}

named!([] Publishing);
only_in_workflows!([] Publishing);

impl Sealed for Publishing {}

impl Step for Publishing {
    type Output = ();
    type Future = PublishFuture;

    fn into_future(self, site: &'static Site) -> PublishFuture {
        PublishFuture { publishing: Some(self), site }
    }
}

/// A value that is being published.
#[doc(hidden)]
pub struct PublishFuture {
    publishing: Option<Publishing>,
    site: &'static Site,
}

impl Future for PublishFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let Some(Publishing { name, published, value }) = self.publishing.take() else { return Poll::Pending };
        let site = self.site;
        match with(|core| core.publish(name, published, value, site)) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
