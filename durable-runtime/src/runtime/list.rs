//! Lists of runs.

use super::{Runtime, look::Seen};
use crate::{
    clock::system_time,
    error::{Error, Kind},
    head::HeadInfo,
    id::RunId,
    store::{RunRecord, Write, Written},
    view::{RunInfo, StatusKind},
};

/// Which runs [`Runtime::runs`] lists; all by default.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    live: Option<bool>,
    workflow: Option<String>,
    status: Option<StatusKind>,
}

impl Filter {
    /// All runs.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Only runs that have not ended.
    pub fn unfinished() -> Filter {
        Filter { live: Some(true), ..Filter::default() }
    }

    /// Only runs that have ended.
    pub fn finished() -> Filter {
        Filter { live: Some(false), ..Filter::default() }
    }

    /// Only runs of the workflow with this recorded name.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>) -> Filter {
        self.workflow = Some(name.into());
        self
    }

    /// Only runs in this state.
    #[must_use]
    pub fn status(mut self, status: StatusKind) -> Filter {
        self.status = Some(status);
        self
    }

    /// Whether a run can be in the list, by what the store has of it without its log.
    fn may_have(&self, record: &RunRecord) -> bool {
        let Some(workflow) = &self.workflow else { return true };
        HeadInfo::read(&record.head).is_some_and(|head| head.workflow == *workflow)
    }
}

impl Runtime {
    /// Lists runs, in the order of their ids. Of one that is not in memory the log is read, if it has not ended; none is woken.
    ///
    /// Each is listed as it stands when it is looked at: the list is no snapshot. One that ends meanwhile may have made another one that
    /// is not in the list; whoever waits for runs to end waits for each ([`Run::output`](crate::Run::output)).
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn runs(&self, filter: Filter) -> Result<Vec<RunInfo>, Error> {
        let shared = self.shared();
        let ended = filter.status.map(StatusKind::is_terminal);
        if let (Some(live), Some(ended)) = (filter.live, ended)
            && live == ended
        {
            return Ok(Vec::new());
        }
        let class = filter.live.or(ended.map(|ended| !ended));
        let (mut all, mut after) = (Vec::new(), None::<RunId>);
        loop {
            let from = after.clone();
            let mut page = shared.read(move |store| store.runs(class, from.as_ref(), super::LIST_PAGE)).await?;
            let Some((last, _)) = page.last() else { return Ok(all) };
            after = Some(last.clone());
            page.retain(|(_, record)| filter.may_have(record));
            for seen in self.survey(page, false).await? {
                // It may have ended while it was looked at.
                let fits = filter.live.is_none_or(|live| live != seen.status.is_terminal())
                    && filter.status.is_none_or(|status| status == seen.status.kind());
                if fits {
                    all.push(info_of(seen));
                }
            }
        }
    }

    /// One run as [`Runtime::runs`] lists it.
    pub(super) async fn info(&self, id: &RunId) -> Result<RunInfo, Error> {
        let record = self.record(id).await?;
        let seen = self.survey(vec![(id.clone(), record)], false).await?.pop();
        seen.map(info_of).ok_or_else(|| Kind::RunNotFound(id.clone()).into())
    }

    /// Where a run stands, in words for a message.
    pub(super) async fn state(&self, id: &RunId) -> Result<String, Error> {
        Ok(self.info(id).await?.status.as_str().to_owned())
    }

    /// Removes a run that has ended, with its logs, its mailbox and what it published. Its id is free then, as if it had never been
    /// used: whoever starts it again, or sends it something, begins anew, with children and messages of its own. Only the keys that the
    /// engine makes are made of the run's id: a provider that still knows one answers as it did to the run that was removed.
    ///
    /// # Errors
    ///
    /// There is no such run; it has not ended ([`crate::Code::RunUnfinished`]); what the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::{Code, Runtime};
    /// #[durable::workflow]
    /// async fn brief() -> durable::Result<u32> {
    ///     Ok(1)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let runtime = Runtime::builder().open_in_memory().await?;
    /// runtime.start("r-1", brief()).await?.output().await?;
    /// runtime.remove("r-1").await?;
    /// assert_eq!(runtime.remove("r-1").await.unwrap_err().code(), Code::RunNotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove(&self, run: impl AsRef<str>) -> Result<(), Error> {
        let id = RunId::new(run)?;
        self.record(&id).await?;
        match self.shared().write(Write::Remove { run: id.clone() }).await? {
            Written::Unfinished => {
                let state = self.state(&id).await?;
                Err(Kind::RunUnfinished { run: id, state }.into())
            }
            _ => Ok(()),
        }
    }
}

fn info_of(seen: Seen) -> RunInfo {
    let Seen { id, head, status, since, .. } = seen;
    let (workflow, module) = head.as_ref().map(|h| (h.workflow.clone(), h.module.clone())).unwrap_or_default();
    let started_at = system_time(head.as_ref().map_or(0, |head| head.started_at));
    let parent = head.and_then(|head| RunId::new(head.parent?).ok());
    RunInfo { id, workflow, module, status, started_at, since: system_time(since), parent }
}
