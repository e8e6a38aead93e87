//! What people ask of a store from outside of the process that holds it: requests, their answers, and one function that answers.
//!
//! The command `durable` calls [`handle`] on a store that no process holds; where one does, the command asks over the socket that this
//! process offers ([`connect`]), and the process calls the same function. So both answer alike.

use tokio::sync::mpsc;

use crate::{
    entry::{Entry, Kind, decode, next_frame},
    error::Code,
    id::{Attempt, Generation, RunId, Seq, StepNo},
    runtime::{Filter, Resolution, Runtime},
    store::{Store, StoreError, Write, Written},
    value::Value,
    view::{RunInfo, StepKind},
};

mod check;
mod doctor;
mod export;
mod follow;
mod place;
mod rows;
#[cfg(unix)]
mod serve;
mod words;

#[cfg(test)]
mod tests;

pub use export::{ExportError, Exported, Reader};
pub use place::SOCKET;
#[cfg(unix)]
pub use place::connect;
pub use rows::{ChildRow, Finding, HoldRow, QuestionRow, RunRow, Show, StatusRow, StepRow};
#[cfg(unix)]
pub(crate) use serve::serve;
pub use words::{Answer, Call, Done, PROTOCOL, Refusal, Reply, Request, RunFilter, Sort, Verdict};

/// Answers that may be on their way; then the request waits for whoever reads them.
pub const ANSWERS_WAITING_MAX: usize = 64;
/// Bytes of a log that are read at a time.
const PAGE_BYTES: usize = 1 << 20;
/// The longest run that is imported, in bytes of its text without words.
const IMPORT_BYTES_MAX: usize = 256 << 20;

/// Why a request ends early.
enum Stop {
    /// Nobody reads the answers any more.
    Gone,
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Refused(error.into())
    }
}

/// Where answers go.
#[derive(Clone)]
struct Out(mpsc::Sender<Answer>);

impl Out {
    async fn say(&self, answer: Answer) -> Result<(), Stop> {
        self.0.send(answer).await.map_err(|_| Stop::Gone)
    }
}

/// Carries a request out. `lines`: what follows the request, for [`Request::Import`]. The last answer is [`Answer::Done`] or
/// [`Answer::Refused`].
///
/// # Cancel safety
///
/// Dropping the future leaves standing what was accepted: a cancellation, an answer, the runs removed so far.
pub async fn handle(runtime: &Runtime, request: Request, lines: mpsc::Receiver<String>, answers: mpsc::Sender<Answer>) {
    let out = Out(answers);
    let last = match carry_out(runtime, request, lines, &out).await {
        Ok(done) => Answer::Done(done),
        Err(Stop::Refused(refusal)) => Answer::Refused(refusal),
        Err(Stop::Gone) => return,
    };
    // Whoever does not read the last answer has what was before it.
    let _ = out.say(last).await;
}

async fn carry_out(
    runtime: &Runtime,
    request: Request,
    lines: mpsc::Receiver<String>,
    out: &Out,
) -> Result<Done, Stop> {
    match request {
        Request::Runs(filter) => runs(runtime, filter, out).await,
        Request::Show { run, steps } => {
            let show = about(runtime, &run, steps).await?;
            out.say(Answer::Show(Box::new(show))).await?;
            Ok(Done::default())
        }
        Request::Log { run, generation, from, follow } => {
            follow::log(runtime, &run, generation.map(Generation), from, follow, out).await
        }
        Request::Signal { run, name, value, id } => {
            let signal = runtime.signal(&run, &name, &value);
            match id {
                Some(id) => signal.id(id).await?,
                None => signal.await?,
            }
            Ok(Done::default())
        }
        Request::Questions => {
            for question in runtime.questions().await? {
                out.say(Answer::Question((&question).into())).await?;
            }
            Ok(Done::default())
        }
        Request::Answer { token, reply, by } => {
            let reply = match reply {
                Reply::Granted(value) => crate::Reply::granted(&value),
                Reply::Refused(why) => crate::Reply::refused(why),
            };
            let answer = runtime.answer(&token, reply);
            let answered = match by {
                Some(by) => answer.by(by).await?,
                None => answer.await?,
            };
            Ok(Done { note: Some(rows::answered(answered).into()), ..Done::default() })
        }
        Request::Holds => {
            for hold in runtime.holds().await? {
                out.say(Answer::Hold((&hold).into())).await?;
            }
            Ok(Done::default())
        }
        Request::Resolve { run, step, attempt, verdict, by } => {
            let resolution = match verdict {
                Verdict::Succeeded(value) => Resolution::succeeded(value),
                Verdict::Failed(reason) => Resolution::failed(reason),
                Verdict::FailedWith(error) => Resolution::failed_with(error),
                Verdict::RunAgain => Resolution::run_again(),
            };
            let resolution = match by {
                Some(by) => resolution.by(by),
                None => resolution,
            };
            runtime.resolve(&run, StepNo(step), Attempt(attempt), resolution).await?;
            Ok(Done::default())
        }
        Request::Cancel { run, reason, by } => {
            let cancel = runtime.cancel(&run, reason);
            let cancel = match by {
                Some(by) => cancel.by(by),
                None => cancel,
            };
            cancel.stand().await?;
            out.say(Answer::Accepted).await?;
            match cancel.await {
                Ok(status) => Ok(Done { status: Some(StatusRow::from(&status)), ..Done::default() }),
                // Nobody goes on with it here; whoever does will cancel it.
                Err(error) if error.code() == Code::NotCancelledYet && runtime.shared().observing => {
                    Ok(Done::default())
                }
                Err(error) => Err(error.into()),
            }
        }
        Request::Retry { run } => {
            runtime.retry(&run).await?;
            Ok(Done::default())
        }
        Request::Export { run, readable } => export_run(runtime, &run, readable, out).await,
        Request::Import { unfinished } => import_run(runtime, unfinished, lines).await,
        Request::Remove { runs } => remove(runtime, runs, out).await,
        Request::Doctor => doctor::doctor(runtime, out).await,
        Request::Workflows => {
            for workflow in crate::builder::workflows() {
                out.say(Answer::Workflow(workflow.to_json())).await?;
            }
            Ok(Done::default())
        }
    }
}

async fn runs(runtime: &Runtime, filter: RunFilter, out: &Out) -> Result<Done, Stop> {
    let states = words::States::of(&filter.status)?;
    let class = match states.class() {
        Some(true) => Filter::unfinished(),
        Some(false) => Filter::finished(),
        None => Filter::all(),
    };
    let class = match filter.workflow {
        Some(name) => class.workflow(name),
        None => class,
    };
    let now = crate::clock::system_time(runtime.shared().clock.wall());
    let age = |time| crate::clock::millis(now).saturating_sub(crate::clock::millis(time));
    let mut found = runtime.runs(class).await?;
    found.retain(|run| {
        states.hold(&run.status)
            && filter.older_ms.is_none_or(|ms| age(run.started_at) >= ms)
            && filter.newer_ms.is_none_or(|ms| age(run.started_at) <= ms)
            && filter.settled_ms.is_none_or(|ms| age(run.since) >= ms)
    });
    if let Some(text) = filter.text {
        found = holding(runtime, found, text).await?;
    }
    found.sort_by(|a, b| (b.started_at, &a.id).cmp(&(a.started_at, &b.id)));
    let total = found.len();
    let most = if filter.limit == 0 { total } else { filter.limit };
    for run in found.iter().take(most) {
        out.say(Answer::Run(run.into())).await?;
    }
    Ok(Done { total: Some(total as u64), ..Done::default() })
}

/// Those whose id or arguments hold a text.
async fn holding(runtime: &Runtime, runs: Vec<RunInfo>, text: String) -> Result<Vec<RunInfo>, StoreError> {
    let read = move |store: &dyn Store| {
        let mut holding = Vec::new();
        for run in runs {
            // One that does not read has no text.
            if run.id.as_str().contains(&text) || args_of(store, &run.id)?.is_some_and(|args| args.contains(&text)) {
                holding.push(run);
            }
        }
        Ok(holding)
    };
    runtime.shared().read(read).await
}

/// What a run's newest log was begun with, as JSON text.
fn args_of(store: &dyn Store, run: &RunId) -> Result<Option<String>, StoreError> {
    let Some(record) = store.run(run)? else { return Ok(None) };
    let records = match store.read(run, record.head.generation, Seq(0), 1) {
        Err(StoreError::Damaged { .. }) => return Ok(None),
        read => read?,
    };
    let mut frames = records.into_iter().next().map(|record| record.frames).unwrap_or_default();
    let Ok(Some(frame)) = next_frame(&mut frames) else { return Ok(None) };
    Ok(match decode(&frame) {
        Ok(Entry { kind: Kind::RunStarted(started), .. }) => {
            Some(Value::from_bytes(bytes::Bytes::copy_from_slice(&started.args)).to_json().to_string())
        }
        _ => None,
    })
}

/// All about one run; of the steps that are over `most`.
async fn about(runtime: &Runtime, run: &str, most: usize) -> Result<Show, Stop> {
    let run = runtime.run(run).await?;
    let info = run.info().await?;
    let generation = Generation(run.generations().await?.saturating_sub(1));
    let (mut reader, mut entries) = (run.log_reader(generation), 0);
    let (mut started, mut outcome) = (None, None);
    loop {
        let page = run.log_page(&mut reader, generation, PAGE_BYTES).await?;
        if page.is_empty() {
            break;
        }
        entries += page.len() as u64;
        for entry in page {
            match entry.name {
                "run.started" => started = Some(entry),
                "run.completed" | "run.failed" => outcome = entry.get("value").cloned(),
                "run.cancelled" => outcome = entry.get("reason").cloned(),
                _ => {}
            }
        }
    }
    let of_started = |field: &str| started.as_ref().and_then(|entry| entry.get(field)).cloned();
    let all = run.steps().await?;
    let mut children = Vec::new();
    for child in all.iter().filter(|step| step.kind == StepKind::Child) {
        let state = match runtime.run(&child.what).await {
            Ok(child) => Some(child.status().await?.as_str().to_owned()),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        children.push(ChildRow { run: child.what.clone(), step: child.step.0, state });
    }
    let (holds, questions) = run.waits_for_people().await?;
    let bodies = runtime.bodies();
    let mut leave_out = all.iter().filter(|step| step.state.is_over()).count().saturating_sub(most);
    let steps_left_out = leave_out as u64;
    let kept = all.iter().filter(|step| {
        let out = step.state.is_over() && leave_out > 0;
        leave_out -= usize::from(out);
        !out
    });
    Ok(Show {
        args: of_started("args").unwrap_or_default(),
        outcome,
        generation: generation.0,
        entries,
        build: of_started("build").and_then(|build| Some(build.as_str()?.to_owned())).unwrap_or_default(),
        parent: info.parent.as_ref().map(|parent| parent.as_str().to_owned()),
        steps_left_out,
        steps: kept.map(StepRow::from).collect(),
        holds: holds.iter().map(HoldRow::from).collect(),
        questions: questions.iter().map(QuestionRow::from).collect(),
        children,
        messages: run.messages().await?.iter().map(rows::message).collect(),
        bodies: bodies.iter().filter(|body| body.run == info.id).map(rows::body).collect(),
        run: RunRow::from(&info),
    })
}

async fn export_run(runtime: &Runtime, run: &str, readable: bool, out: &Out) -> Result<Done, Stop> {
    let id = words::run_id(run)?;
    let shared = runtime.shared();
    let wanted = id.clone();
    // Nobody may see what is not durable yet.
    shared.write(Write::Barrier).await?;
    let dump = shared.read(move |store| store.dump(&wanted)).await?;
    let Some(dump) = dump else { return Err(not_found(&id).into()) };
    let words = match readable {
        true => Some(follow::whole(runtime, &id, &dump)?),
        false => None,
    };
    let (store, of) = (shared.store.about().id, id.clone());
    let (lines, mut written) = mpsc::channel(ANSWERS_WAITING_MAX);
    let write = move || {
        // Whoever does not wait for the next line any more does not miss it.
        export::write(&of, store, &dump, words.as_deref(), &mut |line| drop(lines.blocking_send(line)))
    };
    let write = shared.tokio.spawn_blocking(write);
    while let Some(line) = written.recv().await {
        out.say(Answer::Line(line)).await?;
    }
    match write.await {
        Ok(Ok(())) => Ok(Done { run: Some(id.as_str().to_owned()), ..Done::default() }),
        Ok(Err((_, seq, error))) => {
            let place = shared.store.about().place.clone();
            let what = format!("{error}; a damaged run is not exported").into();
            Err(StoreError::Damaged { place, run: Some(id), seq: Some(seq), what }.into())
        }
        Err(_) => Err(StoreError::Closed.into()),
    }
}

fn not_found(run: &RunId) -> crate::Error {
    crate::error::Kind::RunNotFound(run.clone()).into()
}

async fn import_run(runtime: &Runtime, unfinished: bool, mut lines: mpsc::Receiver<String>) -> Result<Done, Stop> {
    let (mut reader, mut bytes) = (Reader::new(), 0);
    while !reader.is_over() {
        let Some(line) = lines.recv().await else { break };
        bytes += line.len();
        // Where nobody else is served it is for whoever asks to say how much memory it may take.
        if bytes > IMPORT_BYTES_MAX && !runtime.shared().observing {
            let what = format!(
                "the run is longer than {IMPORT_BYTES_MAX} bytes; import it into a store that no process holds"
            );
            return Err(Refusal::new(Sort::Invalid, what).into());
        }
        reader.take(&line)?;
    }
    let exported = reader.finish()?;
    let shared = runtime.shared();
    admit(&exported, shared.store.about().id, unfinished)?;
    let Exported { run, dump, .. } = exported;
    let (id, record) = (run.clone(), dump.record.clone());
    let written = shared.write(Write::Restore { run, dump: Box::new(dump) }).await?;
    if written != Written::Created {
        let what = format!("run {id} is in this store already; nothing was changed");
        return Err(Refusal::new(Sort::No, what).into());
    }
    if record.head.live {
        // It goes on here, now, whatever it waited for in the other store.
        shared.adopt(id.clone(), &record, false);
    }
    Ok(Done { run: Some(id.as_str().to_owned()), ..Done::default() })
}

/// Whether an exported run may be put into a store: it must be whole, and be going on nowhere else.
fn admit(exported: &Exported, store: crate::id::StoreId, unfinished: bool) -> Result<(), Refusal> {
    if let Some(problem) = check::examine(&exported.dump).into_iter().next() {
        let place = match (problem.generation, problem.seq) {
            (Some(generation), Some(seq)) => format!("log {generation}, seq {seq}: "),
            _ => String::new(),
        };
        return Err(Refusal::new(Sort::Invalid, format!("the export is no run: {place}{}", problem.what)));
    }
    if exported.dump.record.head.live && exported.store != store && !unfinished {
        let what = "the run has not ended, and comes from another store: in two stores it goes on twice, and keys that the engine \
                    made are others here; import it as unfinished only if the other store is gone for good";
        return Err(Refusal::new(Sort::No, what));
    }
    Ok(())
}

impl From<ExportError> for Refusal {
    fn from(error: ExportError) -> Refusal {
        Refusal::new(Sort::Invalid, error.to_string())
    }
}

/// Removes ended runs, one by one: a crash between two leaves the rest, and the same request removes it.
async fn remove(runtime: &Runtime, runs: Vec<String>, out: &Out) -> Result<Done, Stop> {
    let (of, mut removed) = (Some(runs.len() as u64), 0);
    for (done, run) in runs.iter().enumerate() {
        match runtime.remove(run).await {
            Ok(()) => removed += 1,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        out.say(Answer::Progress { done: done as u64 + 1, of }).await?;
    }
    Ok(Done { total: Some(removed), ..Done::default() })
}
