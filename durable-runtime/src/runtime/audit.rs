//! Whether every run that has not ended can go on: somebody has it, or something that it waits for can come.

use std::{fmt, time::Duration};

use super::{LIST_PAGE, Runtime, look::At};
use crate::{
    core::Stop,
    error::Error,
    fold::{RunState, StepState, What},
    head::{Aside, HeadInfo},
    id::RunId,
    park,
    store::{RunRecord, Store, StoreError, Wait, Write},
    view::{Stored, ended_children, fold_log},
};

/// How often a run is looked at before something is said of it: one that moves while it is looked at may seem stranded, one that is
/// stranded is so each time.
const LOOKS: u32 = 10;
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What [`Runtime::audit`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The run.
    pub run: RunId,
    /// What kind of thing is wrong.
    pub kind: FindingKind,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// What kind of thing is wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// It has not ended, no process has it, and nothing that it waits for can come.
    Stranded,
    /// Its log cannot be read, or is no history.
    Damaged,
    /// What the store derives from its log says something else than the log.
    Index,
}

impl FindingKind {
    /// One word.
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingKind::Stranded => "stranded",
            FindingKind::Damaged => "damaged",
            FindingKind::Index => "index",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} is {}: {}; {}", self.run, self.kind.as_str(), self.what, self.next)
    }
}

impl Finding {
    fn new(run: &RunId, kind: FindingKind, what: String, next: Option<&str>) -> Finding {
        let next = next.unwrap_or(match kind {
            FindingKind::Stranded => {
                "call Runtime::cancel, or open the store anew, which looks at every run; and report it as a fault of the library"
            }
            FindingKind::Damaged => park::RESTORE,
            FindingKind::Index => "the log counts: export the run, and report it as a fault of the library",
        });
        Finding { run: run.clone(), kind, what, next: next.to_owned() }
    }
}

impl Runtime {
    /// Looks at every run that has not ended, and tells of those that would stand still for ever: that are in no process, with nothing to
    /// wake them, and wait for nothing that could come. There should be none, whatever happens to processes; that one is found is a
    /// fault of this library, of the store's medium, or of a hand that wrote into the store, be it that a run was imported without the
    /// child that it waits for.
    ///
    /// A run that is parked or waits for its code is no finding: its status says so. In a runtime that observes, neither is one that any
    /// process that opens the store will go on with.
    ///
    /// # Errors
    ///
    /// What the store says.
    ///
    /// # Examples
    ///
    /// ```
    /// # use durable::Runtime;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// # let runtime = Runtime::builder().open_in_memory().await?;
    /// for finding in runtime.audit().await? {
    ///     eprintln!("{finding}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn audit(&self) -> Result<Vec<Finding>, Error> {
        let shared = self.shared();
        let (mut findings, mut after) = (Vec::new(), None::<RunId>);
        loop {
            let from = after.clone();
            let page = shared.read(move |store| store.runs(Some(true), from.as_ref(), LIST_PAGE)).await?;
            let Some((last, _)) = page.last() else { return Ok(findings) };
            after = Some(last.clone());
            let mut suspects = self.suspects(page.into_iter().map(|(id, _)| id).collect()).await?;
            for _ in 1..LOOKS {
                if suspects.is_empty() {
                    break;
                }
                // What is on its way to the store or to its run gets there meanwhile.
                shared.write(Write::Barrier).await?;
                tokio::time::sleep(LOOK_AGAIN).await;
                suspects = self.suspects(suspects.into_iter().map(|finding| finding.run).collect()).await?;
            }
            findings.extend(suspects);
        }
    }

    /// Those of some runs that seem to be stranded, at one look.
    async fn suspects(&self, runs: Vec<RunId>) -> Result<Vec<Finding>, Error> {
        let shared = self.shared();
        let resting = |id: &RunId| matches!(self.at(id), At::Store);
        let runs: Vec<_> = runs.into_iter().filter(resting).map(|id| (shared.is_armed(&id), id)).collect();
        let (closing, now) = (shared.is_closing(), shared.clock.wall());
        let found = shared
            .read(move |store| {
                let mut found = Vec::new();
                for (armed, id) in runs {
                    let Some(record) = store.run(&id)?.filter(|record| record.head.live) else { continue };
                    let of = Resting { store, id: &id, record: &record, goes_on: !closing, armed, now };
                    if let Some((kind, Wrong { what, next })) = of.examine()? {
                        found.push(Finding::new(&id, kind, what, next));
                    }
                }
                Ok(found)
            })
            .await?;
        // One that is in memory by now is not stranded.
        Ok(found.into_iter().filter(|finding| resting(&finding.run)).collect())
    }
}

/// What is wrong with a run, and what to do if that is not what is to be done about any of its kind.
struct Wrong {
    what: String,
    next: Option<&'static str>,
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(what: T) -> Wrong {
        Wrong { what: what.into(), next: None }
    }
}

/// What an exported run waits for is not in its export.
const IMPORT_CHILD: &str = "a run is exported and imported without its children: import that one too (durable import FILE --unfinished), or \
                            call Runtime::cancel";
/// The two were exported at different times.
const EXPORT_AGAIN: &str = "if these runs were imported, export both again while no process holds their store, and import them anew; else \
                            call Runtime::cancel, and report it as a fault of the library";

/// A run that has not ended and is in no memory.
struct Resting<'a> {
    store: &'a dyn Store,
    id: &'a RunId,
    record: &'a RunRecord,
    /// Runs go on in this process: what is to be woken should have been.
    goes_on: bool,
    /// It is in this process's table of timers.
    armed: bool,
    now: u64,
}

impl Resting<'_> {
    /// What is wrong, if anything.
    fn examine(&self) -> Result<Option<(FindingKind, Wrong)>, StoreError> {
        let stored = match fold_log(self.store, self.id, self.record.head.generation) {
            Ok(stored) => stored,
            Err(Stop::Store(error @ StoreError::Damaged { .. })) => {
                return Ok(Some((FindingKind::Damaged, error.to_string().into())));
            }
            Err(Stop::Store(error)) => return Err(error),
            Err(Stop::Entry(seq, error)) => {
                return Ok(Some((FindingKind::Damaged, format!("its log is damaged at seq {seq}: {error}").into())));
            }
            Err(stop) => {
                return Ok(Some((FindingKind::Damaged, format!("its log is no legal history: {stop:?}").into())));
            }
        };
        if stored.state.ended {
            let what = "its log has its terminal entry, and it is listed as going on";
            return Ok(Some((FindingKind::Index, what.into())));
        }
        if HeadInfo::read(&self.record.head).is_none() {
            return Ok(Some((FindingKind::Index, "what the store lists it by does not decode".into())));
        }
        if Aside::read(self.record.aside.as_ref()).parked.is_some() {
            return Ok(None);
        }
        let stranded = |wrong: Wrong| Ok(Some((FindingKind::Stranded, wrong)));
        // Whatever else gets it going, that will not come.
        if let Some(wrong) = self.waits_for_nobody(&stored)? {
            return stranded(wrong);
        }
        let Some(wait) = self.record.wait else {
            return match self.goes_on {
                true => stranded("no process has it, and it waits for nothing".into()),
                // Whoever opens the store goes on with it.
                false => Ok(None),
            };
        };
        if wait.seen < self.record.version {
            return match self.goes_on {
                true => stranded("something has come for it, and nobody has woken it".into()),
                false => Ok(None),
            };
        }
        match self.wakes(&stored, wait)? {
            Ok(()) => Ok(None),
            Err(wrong) => stranded(wrong),
        }
    }

    /// A child that is not in the store and has left no word: it was not imported with its parent.
    fn waits_for_nobody(&self, stored: &Stored) -> Result<Option<Wrong>, StoreError> {
        for (no, path, run) in stored.open_children() {
            if let Ok(id) = RunId::new(run)
                && self.store.run(&id)?.is_none()
                && !ended_children(self.store, self.id)?.contains(run)
            {
                let what = format!("step {no} ({path}) waits for run {run:?}, which is not in this store");
                return Ok(Some(Wrong { what, next: Some(IMPORT_CHILD) }));
            }
        }
        Ok(None)
    }

    /// Whether what a run waits for can come; what is wrong if not.
    fn wakes(&self, stored: &Stored, wait: Wait) -> Result<Result<(), Wrong>, StoreError> {
        // First: a child that is gone ends never, whatever else makes the run look at everything again.
        let mut comes = false;
        for (no, path, run) in stored.open_children() {
            if let Err(Wrong { what, next }) = self.child(run)? {
                let what = format!("step {no} ({path}) waits for run {run:?}, {what}");
                return Ok(Err(Wrong { what, next }));
            }
            comes = true;
        }
        if let Some(due) = wait.due {
            // A time that has come or will come makes it look at everything else again.
            return Ok(match self.goes_on && !self.armed {
                true if due <= self.now => Err("its time has come, and nobody has woken it".into()),
                true => Err("it waits for a time, and nothing in this process will wake it then".into()),
                false => Ok(()),
            });
        }
        for (no, step) in stored.state.steps.iter() {
            let open = !step.closed && (step.undo.is_some() || stored.state.ending.is_none());
            match (&step.what, &step.state) {
                _ if !open => {}
                (What::Signal { .. }, StepState::Waiting) => comes = true,
                (What::Question(question), StepState::Waiting) => {
                    if question.question.deadline.is_some() {
                        return Ok(Err(format!("question {no} expires, and nothing will wake the run then").into()));
                    }
                    comes = true;
                }
                (What::Effect(_), StepState::InDoubt(..)) => comes = true,
                (What::Timer { .. }, StepState::Waiting) | (What::Effect(_), StepState::Failed(..)) => {
                    return Ok(Err(format!("step {no} is due at a time, and nothing will wake the run then").into()));
                }
                (What::Effect(_), StepState::Done) => {}
                (What::Effect(_), _) if stops(&stored.state) => {}
                (What::Effect(_), _) => {
                    return Ok(Err(format!("step {no} is to be gone on with, and no process has the run").into()));
                }
                _ => {}
            }
        }
        Ok(match comes {
            true => Ok(()),
            false => Err("it waits for nothing that could come".into()),
        })
    }

    /// Whether the end of a child can come: it has not ended, or what it left is in the mailbox, where nobody has seen it.
    fn child(&self, run: &str) -> Result<Result<(), Wrong>, StoreError> {
        let Ok(id) = RunId::new(run) else { return Ok(Err("whose id is none".into())) };
        Ok(match self.store.run(&id)? {
            // Its end is in the mailbox, or it would have been found before.
            None => Ok(()),
            Some(record) if !record.head.live => {
                Err(Wrong { what: "which has ended and left no word".to_owned(), next: Some(EXPORT_AGAIN) })
            }
            Some(record) => match HeadInfo::read(&record.head).and_then(|head| head.parent) {
                Some(parent) if parent == self.id.as_str() => Ok(()),
                _ => Err("which is not its child".into()),
            },
        })
    }
}

/// Whether a cancel was taken: what is open then may be stopped, and its log alone does not say so.
fn stops(state: &RunState) -> bool {
    state.cancel.is_some()
}
