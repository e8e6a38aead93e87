//! What people and programs outside do for the runs: send messages, answer questions, resolve doubts, cancel. And what they know
//! then, which no crash may make untrue.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use durable::{Answered, Code, Error, Filter, Reply, Resolution, Runtime, Status};
use serde_json::Value as Json;

use super::{
    check::Shown,
    company::{GRANTED, UNANSWERED, WORDS, doomed},
    ledger::World,
};

/// What is known outside of each run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Mutex<BTreeMap<String, Shown>>>);

impl Known {
    pub(crate) fn all(&self) -> MutexGuard<'_, BTreeMap<String, Shown>> {
        self.0.lock().unwrap()
    }

    pub(crate) fn of<T>(&self, run: &str, change: impl FnOnce(&mut Shown) -> T) -> T {
        change(self.all().entry(run.to_owned()).or_default())
    }

    /// What another process knew.
    pub(crate) fn add(&self, other: BTreeMap<String, Shown>) {
        for (run, shown) in other {
            self.of(&run, |known| known.add(shown));
        }
    }

    /// How many messages of that name were accepted for that run.
    pub(crate) fn accepted(&self, run: &str, name: &str) -> usize {
        self.of(run, |shown| shown.sent.iter().filter(|(sent, _)| sent == name).count())
    }
}

/// Sends all words to a run of `company`, each again although it may have been sent in an earlier life.
pub(crate) async fn speak(runtime: &Runtime, run: &str, known: &Known) -> Result<(), Error> {
    let of = runtime.run(run).await?;
    for (name, id, value) in WORDS {
        match of.signal(name, value).id(id).await {
            Ok(()) => known.of(run, |shown| {
                let sent = (name.to_owned(), value.to_owned());
                if !shown.sent.contains(&sent) {
                    shown.sent.push(sent);
                }
            }),
            // Nobody needs it any more.
            Err(e) if e.is_run_ended() => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Answers every open question, but the one that nobody answers: two people at once, of whom one is too late. True if there was
/// one.
pub(crate) async fn answer(runtime: &Runtime, known: &Known) -> Result<bool, Error> {
    let mut any = false;
    for question in runtime.questions().await? {
        if question.title == UNANSWERED {
            continue;
        }
        any = true;
        for by in ["ann", "bob"] {
            match runtime.answer(&question.token, Reply::granted(&GRANTED)).by(by).await {
                Ok(Answered::Taken | Answered::Kept) => {
                    known.of(question.run.as_str(), |shown| {
                        shown.answered.push((question.title.clone(), by.to_owned()))
                    });
                }
                // The other one was faster, in this life or an earlier one; or the run is over.
                Err(e) if matches!(e.code(), Code::QuestionAnswered | Code::QuestionClosed) => {}
                Err(e) => return Err(e),
                Ok(other) => unreachable!("{other:?} is no answer to an answer"),
            }
        }
    }
    Ok(any)
}

/// Looks up what happened to each step in doubt, and says so. True if there was one.
pub(crate) async fn resolve(runtime: &Runtime, world: &World, known: &Known) -> bool {
    let holds = runtime.holds().await.unwrap();
    for hold in &holds {
        let run = hold.run.as_str();
        known.of(run, |shown| shown.held.insert(hold.path.clone()));
        let resolution = match world.bodies(run, &hold.path).first() {
            Some(line) => Resolution::succeeded(format!("wired {}", line.input)),
            None => Resolution::run_again(),
        };
        // It may have been resolved by the life before this one.
        if runtime.resolve(run, hold.step, hold.attempt, resolution).await.is_ok() {
            known.of(run, |shown| shown.resolved.push((hold.path.clone(), hold.attempt.0.into())));
        }
    }
    !holds.is_empty()
}

/// Cancels a run, waits for its end, and notes what was answered.
pub(crate) async fn cancel(runtime: Runtime, run: String, known: Known) -> Result<(), Error> {
    let status = runtime.cancel(&run, "not needed any more").by("ann").await?;
    known.of(&run, |shown| shown.cancelled.push(status.as_str().to_owned()));
    Ok(())
}

/// Whether the child that is cancelled from outside is there, and waits for that.
pub(crate) async fn is_doomed(runtime: &Runtime, me: &str) -> Result<bool, Error> {
    match runtime.run(doomed(me)).await {
        Ok(run) => Ok(!run.status().await?.is_terminal()),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Looks at the state of a run.
pub(crate) async fn look(runtime: &Runtime, run: &str, known: &Known) -> Result<Status, Error> {
    let status = runtime.run(run).await?.status().await?;
    if status.is_terminal() {
        known.of(run, |shown| shown.ended.insert(status.as_str().to_owned()));
    }
    Ok(status)
}

/// Reads a run's logs, and what it has published.
pub(crate) async fn read(runtime: &Runtime, run: &str, known: &Known) -> Result<(), Error> {
    let of = runtime.run(run).await?;
    if let Some(published) = of.published::<Json>("stage").await? {
        known.of(run, |shown| {
            if !shown.published.contains(&published) {
                shown.published.push(published);
            }
        });
    }
    for n in 0..of.generations().await? {
        let log: Vec<Json> = of.log_of(n).await?.iter().map(durable::LogEntry::to_json).collect();
        known.of(run, |shown| {
            let longest = shown.logs.entry(n as usize).or_default();
            if log.len() > longest.len() {
                *longest = log;
            }
        });
    }
    Ok(())
}

/// The states of all runs that have not ended.
pub(crate) async fn unfinished(runtime: &Runtime) -> Result<Vec<(String, Status)>, Error> {
    let runs = runtime.runs(Filter::unfinished()).await?;
    Ok(runs.into_iter().map(|info| (info.id.to_string(), info.status)).collect())
}
