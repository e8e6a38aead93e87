//! How a run is looked at: by its life, if it has one, else by the log that it has left.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};

use super::{AnyRun, Runtime};
use crate::{
    clock::Millis,
    core::{Stop, Takes},
    error::{Error, Kind},
    head::{Aside, HeadInfo, HowEnded, ParkedInfo},
    id::{Generation, RunId, StepNo},
    store::{RunRecord, Store, Write},
    view::{Hold, Look, OpenQuestion, Status, Stored, fold_log},
    worker::{BodyInfo, Input, Phase, RunCell},
};

/// How long a run is waited for that is asked what it takes.
const TAKES_WAIT: Duration = Duration::from_millis(250);

/// One run of a list, as it was found.
pub(super) struct Seen {
    pub(super) id: RunId,
    pub(super) head: Option<HeadInfo>,
    pub(super) status: Status,
    pub(super) since: Millis,
    /// Of a run that has not ended, if it was asked for and its log can be read.
    pub(super) look: Option<Look>,
}

/// One run, looked at as closely as can be.
pub(super) enum Looked {
    /// By its life.
    Life(Look),
    /// By its log: it has no life now, and none can be had here.
    Log(Look),
    /// It has ended.
    Ended,
}

/// Where a run is, by the table of those in memory.
pub(super) enum At {
    /// Its life can be asked.
    Live(Arc<RunCell>),
    Opening,
    Parked(ParkedInfo),
    NoCode {
        workflow: String,
        module: String,
        since: Millis,
    },
    /// It has no task: all that is known is in the store.
    Store,
}

impl Runtime {
    pub(super) fn at(&self, id: &RunId) -> At {
        let Some(cell) = self.shared().runs().get(id).cloned() else { return At::Store };
        let phase = cell.phase.borrow().clone();
        match phase {
            Phase::Live => At::Live(cell),
            Phase::Opening => At::Opening,
            Phase::Parked(parked) => At::Parked(parked),
            Phase::NoCode { workflow, module, since } => At::NoCode { workflow, module, since },
            // What it did is in the store by the time this is said.
            Phase::Ended(_) | Phase::Gone | Phase::Asleep => At::Store,
        }
    }

    /// Looks at runs without waking any. `deep`: at their steps too.
    pub(super) async fn survey(&self, runs: Vec<(RunId, RunRecord)>, deep: bool) -> Result<Vec<Seen>, Error> {
        let shared = self.shared();
        let mut seen: Vec<Option<Seen>> = runs.iter().map(|_| None).collect();
        let mut todo: Vec<(usize, RunId, RunRecord)> =
            runs.into_iter().enumerate().map(|(i, (id, record))| (i, id, record)).collect();
        let mut settled = false;
        while !todo.is_empty() {
            let (mut asked, mut stored, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
            let closing = shared.is_closing();
            for (i, id, record) in todo.drain(..) {
                match self.at(&id) {
                    // Its head may say more than is durable; its life does not.
                    At::Live(cell) => asked.push((i, id, record, ask(&cell))),
                    At::Store if !settled && !closing && is_on_its_way(&record) => leaving.push((i, id)),
                    at => stored.push((i, id, record, at)),
                }
            }
            if !leaving.is_empty() {
                // It leaves memory, or was made a moment ago: what says so is on its way to the store.
                settled = true;
                let _ = shared.write(Write::Barrier).await;
                for (i, id) in leaving {
                    todo.extend(self.newer(i, id).await?);
                }
            }
            let folds = move |record: &RunRecord, at: &At| {
                let waits = matches!(at, At::Store)
                    && Aside::read(record.aside.as_ref()).parked.is_none()
                    && (closing || record.is_waiting());
                record.head.live && (deep || waits)
            };
            let bodies = shared.bodies.all();
            let read = move |store: &dyn Store| {
                let fold = |(i, id, record, at): (usize, RunId, RunRecord, At)| {
                    let rests = matches!(at, At::Parked(_) | At::NoCode { .. }) || closing && matches!(at, At::Store);
                    let folded = folds(&record, &at)
                        .then(|| Folded::of(store, &id, record.head.generation, rests.then_some(&bodies)));
                    (i, id, record, at, folded)
                };
                Ok(stored.into_iter().map(fold).collect::<Vec<_>>())
            };
            let stored = shared.read(read).await?;
            for (i, id, record, at, folded) in stored {
                // What became a life meanwhile says more than its log.
                let moved = record.head.live && std::mem::discriminant(&self.at(&id)) != std::mem::discriminant(&at);
                match moved {
                    true => todo.extend(self.newer(i, id).await?),
                    false => seen[i] = Some(self.stored(id, record, at, folded)),
                }
            }
            for (i, id, record, asked) in asked {
                match asked.answer().await {
                    Some(Look { status: Some(status), last_at, .. }) if !deep => {
                        seen[i] = Some(Seen::of(id, &record, status, last_at, None));
                    }
                    Some(look) if look.status.is_some() => {
                        let (status, last_at) = (look.status.clone().unwrap_or(Status::Opening), look.last_at);
                        seen[i] = Some(Seen::of(id, &record, status, last_at, Some(look)));
                    }
                    _ => todo.extend(self.newer(i, id).await?),
                }
            }
        }
        Ok(seen.into_iter().flatten().collect())
    }

    /// A run that has moved on while it was looked at; none if it was removed.
    async fn newer(&self, i: usize, id: RunId) -> Result<Option<(usize, RunId, RunRecord)>, Error> {
        let run = id.clone();
        let record = self.shared().read(move |store| store.run(&run)).await?;
        Ok(record.map(|record| (i, id, record)))
    }

    /// What the store says of a run.
    fn stored(&self, id: RunId, record: RunRecord, at: At, folded: Option<Result<Folded, Stop>>) -> Seen {
        let shared = self.shared();
        let (store, now) = (shared.store.about().id, shared.clock.wall());
        let head = HeadInfo::read(&record.head);
        let started_at = head.as_ref().map_or(0, |head| head.started_at);
        if !record.head.live {
            let (since, status) = match head.and_then(|head| head.ended) {
                Some((at, HowEnded::Completed)) => (at, Status::Completed),
                Some((at, HowEnded::Failed(message))) => (at, Status::Failed { message }),
                Some((at, HowEnded::Cancelled(reason))) => (at, Status::Cancelled { reason }),
                None => (started_at, Status::Completed),
            };
            return Seen::of(id, &record, status, since, None);
        }
        let parked = |parked: ParkedInfo| (Status::Parked(parked.public()), parked.since);
        let (look, damage) = match folded {
            Some(Ok(Folded { stored, lost })) => (Some(Look::of(&stored, &id, store, now, &lost)), None),
            Some(Err(stop)) => (None, Some(ParkedInfo::of(&stop, started_at))),
            None => (None, None),
        };
        let (status, since) = match (at, Aside::read(record.aside.as_ref()).parked) {
            (At::Parked(info), _) => parked(info),
            (At::NoCode { workflow, module, since }, _) => (Status::WaitingForCode { workflow, module }, since),
            (At::Store, Some(info)) => parked(info),
            (At::Store, None) if shared.is_closing() || record.is_waiting() => match (&look, damage) {
                (Some(look), _) => (look.status.clone().unwrap_or(Status::Interrupted), look.last_at),
                (None, Some(info)) => parked(info),
                (None, None) => (Status::Interrupted, started_at),
            },
            // A process has it, or is about to.
            _ => (Status::Opening, look.as_ref().map_or(started_at, |look| look.last_at)),
        };
        Seen::of(id, &record, status, since, look)
    }

    /// Looks at one run. One that is not in memory is woken if it can go on here, for its life knows more than its log.
    pub(super) async fn look_closely(&self, id: &RunId) -> Result<Looked, Error> {
        let shared = self.shared();
        loop {
            // Followed first: what happens after the look at the store is not missed.
            let mut followed = shared.follow(id);
            let phase = followed.phase.borrow_and_update().clone();
            match phase {
                Phase::Parked(_) | Phase::NoCode { .. } => return self.look_at_log(id).await,
                Phase::Asleep | Phase::Ended(_) | Phase::Gone => {
                    let record = self.record(id).await?;
                    if !record.head.live {
                        return Ok(Looked::Ended);
                    }
                    if shared.is_closing() {
                        return self.look_at_log(id).await;
                    }
                    if !matches!(phase, Phase::Asleep) {
                        // Its task is gone and answers nobody; so is the next one's if the store takes nothing any more.
                        shared.write(Write::Barrier).await?;
                        continue;
                    }
                }
                Phase::Live | Phase::Opening => {}
            }
            let (asked, answer) = oneshot::channel();
            followed.cell.tell(Input::Look(asked));
            if let Phase::Asleep = phase {
                shared.nudge(id);
            }
            let asked = Asked { answer, phase: followed.phase.clone() };
            let mut closing = shared.closing.subscribe();
            let look = tokio::select! {
                look = asked.answer() => Some(look),
                _ = closing.wait_for(|closing| *closing) => None,
            };
            match look {
                Some(Some(look)) if look.status.is_some() => return Ok(Looked::Life(look)),
                // Its life is over, or it was parked: it gets further at once.
                Some(_) => {
                    let gone = matches!(*followed.phase.borrow(), Phase::Gone);
                    if gone {
                        shared.write(Write::Barrier).await?;
                    }
                }
                // Who was to wake it does not any more.
                None => return self.look_at_log(id).await,
            }
        }
    }

    /// What the next message of a name to a run must decode as, if the run is in memory and waits for one.
    pub(super) async fn takes_next(&self, id: &RunId, name: &str) -> Option<Takes> {
        let At::Live(cell) = self.at(id) else { return None };
        let asked = Asked::of(&cell, |asked| Input::Takes(name.to_owned(), asked));
        // A run whose code keeps its thread busy must not keep whoever sends it something.
        tokio::time::timeout(TAKES_WAIT, asked.answer()).await.ok()??
    }

    async fn look_at_log(&self, id: &RunId) -> Result<Looked, Error> {
        let (Folded { stored, lost }, record) = self.fold(id).await?;
        if !record.head.live {
            return Ok(Looked::Ended);
        }
        let shared = self.shared();
        Ok(Looked::Log(Look::of(&stored, id, shared.store.about().id, shared.clock.wall(), &lost)))
    }

    /// Folds the newest log of a run that has no life.
    async fn fold(&self, id: &RunId) -> Result<(Folded, RunRecord), Error> {
        let (run, bodies) = (id.clone(), self.shared().bodies.all());
        let read = move |store: &dyn Store| match store.run(&run)? {
            Some(record) => Ok(Some((Folded::of(store, &run, record.head.generation, Some(&bodies)), record))),
            None => Ok(None),
        };
        match self.shared().read(read).await? {
            Some((Ok(stored), record)) => Ok((stored, record)),
            Some((Err(stop), _)) => Err(self.unreadable(id, &stop)),
            None => Err(Kind::RunNotFound(id.clone()).into()),
        }
    }

    /// A log that is no history.
    pub(super) fn unreadable(&self, id: &RunId, stop: &Stop) -> Error {
        match stop {
            Stop::Store(error) => error.clone().into(),
            stop => {
                let parked = ParkedInfo::of(stop, self.shared().clock.wall()).public();
                Kind::Parked { run: id.clone(), parked }.into()
            }
        }
    }

    /// All unfinished runs, looked at closely enough to say what their steps wait for.
    pub(super) async fn look_at_all(&self) -> Result<Vec<(RunId, Look)>, Error> {
        let shared = self.shared();
        let (mut all, mut after) = (Vec::new(), None::<RunId>);
        loop {
            let from = after.clone();
            let page = shared.read(move |store| store.runs(Some(true), from.as_ref(), super::LIST_PAGE)).await?;
            let Some((last, _)) = page.last() else { return Ok(all) };
            after = Some(last.clone());
            for Seen { id, look, .. } in self.survey(page, true).await? {
                let Some(look) = look else { continue };
                // Of a run that is being cancelled only its code knows what is still open.
                match look.unsure && !shared.is_closing() {
                    true => match self.look_closely(&id).await? {
                        Looked::Life(look) | Looked::Log(look) => all.push((id, look)),
                        Looked::Ended => {}
                    },
                    false => all.push((id, look)),
                }
            }
        }
    }
}

impl AnyRun {
    /// What in this run waits for a person, without waking it: steps in doubt, and open questions.
    pub(crate) async fn waits_for_people(&self) -> Result<(Vec<Hold>, Vec<OpenQuestion>), Error> {
        let record = self.runtime.record(&self.id).await?;
        let seen = self.runtime.survey(vec![(self.id.clone(), record)], true).await?.pop();
        let look = seen.and_then(|seen| seen.look).unwrap_or_default();
        let holds = look.holds.iter().filter(|hold| look.is_open(&hold.path)).cloned().collect();
        let questions = look.questions.iter().map(|ask| &ask.question).filter(|question| look.is_open(&question.path));
        Ok((holds, questions.cloned().collect()))
    }
}

/// A run's log, and which of its steps are in doubt without its saying so.
struct Folded {
    stored: Stored,
    lost: BTreeSet<StepNo>,
}

impl Folded {
    /// `bodies`: those that are under way here, if the run has no life that knows what its steps do.
    fn of(
        store: &dyn Store,
        run: &RunId,
        generation: Generation,
        bodies: Option<&Vec<BodyInfo>>,
    ) -> Result<Folded, Stop> {
        let stored = fold_log(store, run, generation)?;
        let lost = match bodies {
            Some(bodies) => stored.lost(store, run, |path, attempt| {
                bodies.iter().any(|body| (&body.run, &*body.path, body.attempt) == (run, path, attempt))
            })?,
            None => BTreeSet::new(),
        };
        Ok(Folded { stored, lost })
    }
}

impl Seen {
    fn of(id: RunId, record: &RunRecord, status: Status, since: Millis, look: Option<Look>) -> Seen {
        let head = HeadInfo::read(&record.head);
        let since = since.max(head.as_ref().map_or(0, |head| head.started_at));
        Seen { id, head, status, since, look }
    }
}

/// Whether a run that is in no memory may have left it so lately that the store does not say yet what it waits for.
fn is_on_its_way(record: &RunRecord) -> bool {
    record.head.live && !record.is_waiting() && Aside::read(record.aside.as_ref()).parked.is_none()
}

/// What a run's task was asked for.
struct Asked<T> {
    answer: oneshot::Receiver<T>,
    phase: watch::Receiver<Phase>,
}

fn ask(cell: &RunCell) -> Asked<Look> {
    Asked::of(cell, Input::Look)
}

impl<T> Asked<T> {
    fn of(cell: &RunCell, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Asked<T> {
        let mut phase = cell.phase.subscribe();
        // Looked at once after the question was put: a run that has just left is told nothing.
        phase.mark_changed();
        let (asked, answer) = oneshot::channel();
        cell.tell(input(asked));
        Asked { answer, phase }
    }

    /// `None`: nobody answers any more.
    async fn answer(self) -> Option<T> {
        let Asked { mut answer, mut phase } = self;
        loop {
            tokio::select! {
                answer = &mut answer => return answer.ok(),
                changed = phase.changed() => {
                    let gone = matches!(*phase.borrow_and_update(), Phase::Ended(_) | Phase::Gone | Phase::Asleep);
                    if changed.is_err() || gone {
                        return None;
                    }
                }
            }
        }
    }
}
