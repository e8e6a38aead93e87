//! What a run has not taken, and what it has published.

use super::AnyRun;
use crate::{
    clock::system_time,
    error::{Error, Kind},
    mailbox::Message,
    store::Write,
    value::{Recordable, Value},
    view::UnreadMessage,
};

impl AnyRun {
    /// The messages that the run has not taken, in the order in which they came; of a run that has ended, those that nobody will take.
    ///
    /// # Errors
    ///
    /// There is no such run; what the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// #[durable::workflow]
    /// async fn one() -> durable::Result<u32> {
    ///     Ok(durable::signal("n").await)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("one", one()).await?;
    /// run.signal("other", &"nobody waits for this").await?;
    /// run.signal("n", &1).await?;
    /// assert_eq!(run.output().await?, 1);
    /// let unread = run.messages().await?;
    /// assert_eq!((unread.len(), &*unread[0].name), (1, "other"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn messages(&self) -> Result<Vec<UnreadMessage>, Error> {
        let shared = self.runtime.shared();
        self.runtime.record(&self.id).await?;
        let id = self.id.clone();
        let rows = shared.read(move |store| store.rows(&id, 0, usize::MAX)).await?;
        // What was read may not be durable yet, and nobody may see that.
        shared.write(Write::Barrier).await?;
        let unread = rows.into_iter().filter_map(|(_, row)| match Message::read(&row) {
            Some(Message::Signal(mail)) => Some(UnreadMessage {
                name: mail.name,
                value: Value::from_bytes(mail.value).to_json(),
                id: format!("{:032x}", mail.id),
                sent_at: system_time(mail.sent_at),
            }),
            _ => None,
        });
        Ok(unread.collect())
    }

    /// What the run has published last under a name with `durable::publish`, if anything.
    ///
    /// # Errors
    ///
    /// There is no such run; what was published is no `T` ([`crate::Code::OtherType`]); what the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// #[durable::workflow]
    /// async fn counts() -> durable::Result<()> {
    ///     durable::publish("progress", &3).await;
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// let run = runtime.start("counts", counts()).await?;
    /// run.output().await?;
    /// assert_eq!(run.published::<u32>("progress").await?, Some(3));
    /// assert_eq!(run.published::<u32>("result").await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn published<T: Recordable>(&self, name: &str) -> Result<Option<T>, Error> {
        let shared = self.runtime.shared();
        self.runtime.record(&self.id).await?;
        let id = self.id.clone();
        let all = shared.read(move |store| store.published(&id)).await?;
        let Some((_, published)) = all.into_iter().find(|(known, _)| **known == *name) else { return Ok(None) };
        // What was read may not be durable yet, and nobody may see that.
        shared.write(Write::Barrier).await?;
        let unfit = |error| Kind::PublishedType { run: self.id.clone(), name: name.to_owned(), error };
        Ok(Some(Value::from_bytes(published.value).decode().map_err(unfit)?))
    }
}
