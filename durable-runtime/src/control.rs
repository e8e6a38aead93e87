//! What people ask of a store from outside of the process that holds it: requests, their answers, and one function that answers.
//!
//! The command `durable` calls [`handle`] on a store that no process holds; where one does, the command asks over the socket that this
//! process offers ([`connect`]), and the process calls the same function. So both answer alike.

use tokio::sync::mpsc;

use crate::{
    error::Code,
    id::{Attempt, Generation, RunId, StepNo},
    runtime::Runtime,
    store::{StoreError, Write, Written},
    worker::Known,
};

mod check;
mod doctor;
mod export;
mod follow;
mod left;
mod list;
mod people;
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
pub use words::{Answer, Call, Done, PROTOCOL, Refusal, Reply, Request, RunFilter, Sort, Verdict, WAS_THERE};

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
        // Nothing is said: whoever can be asked once this process has let go of the store says what has come of it.
        Err(Stop::Refused(refusal)) if is_leaving(runtime, &refusal) => return,
        Err(Stop::Refused(refusal)) => Answer::Refused(refusal),
        Err(Stop::Gone) => return,
    };
    // Whoever does not read the last answer has what was before it.
    let _ = out.say(last).await;
}

/// Whether a request was refused only because this process is being shut down.
fn is_leaving(runtime: &Runtime, refusal: &Refusal) -> bool {
    let shared = runtime.shared();
    let codes = [Code::Closed, Code::NotCancelledYet].map(|code| code.to_string());
    shared.is_closing() && !shared.observing && refusal.code.as_ref().is_some_and(|code| codes.contains(code))
}

async fn carry_out(
    runtime: &Runtime,
    request: Request,
    lines: mpsc::Receiver<String>,
    out: &Out,
) -> Result<Done, Stop> {
    match request {
        Request::Runs(filter) => list::runs(runtime, filter, out).await,
        Request::Show { run, steps } => {
            let show = list::about(runtime, &run, steps).await?;
            out.say(Answer::Show(Box::new(show))).await?;
            Ok(Done::default())
        }
        Request::Log { run, generation, from, follow } => {
            follow::log(runtime, &run, generation.map(Generation), from, follow, out).await
        }
        Request::Signal { run, name, value, id } => {
            let signal = runtime.signal(&run, &name, &value).looking_first();
            let signal = match id {
                Some(id) => signal.id(id),
                None => signal,
            };
            let before = signal.send().await?;
            Ok(Done { note: before.then(|| WAS_THERE.to_owned()), ..Done::default() })
        }
        Request::Questions => {
            let (open, answered) = left::open_questions(runtime).await?;
            for question in open {
                out.say(Answer::Question((&question).into())).await?;
            }
            Ok(Done { left: names(answered), ..Done::default() })
        }
        Request::Answer { token, reply, by } => people::answer(runtime, &token, reply, by).await,
        Request::Holds => {
            let (open, spoken) = left::open_holds(runtime).await?;
            for hold in open {
                out.say(Answer::Hold((&hold).into())).await?;
            }
            Ok(Done { left: names(spoken), ..Done::default() })
        }
        Request::Resolve { run, step, attempt, verdict, by } => {
            people::resolve(runtime, &run, (StepNo(step), Attempt(attempt)), verdict, by).await
        }
        Request::Cancel { run, reason, by } => people::cancel(runtime, &run, reason, by, out).await,
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

fn names(runs: impl IntoIterator<Item = RunId>) -> Vec<String> {
    runs.into_iter().map(|run| run.as_str().to_owned()).collect()
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
        Ok(Ok(())) => {
            let of = id.clone();
            let children = shared.read(move |store| list::open_children(store, &of)).await?;
            Ok(Done { run: Some(id.as_str().to_owned()), children: names(children), ..Done::default() })
        }
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
        shared.adopt(id.clone(), &record, Known::Stored);
    }
    let of = id.clone();
    let children = shared.read(move |store| list::missing_children(store, &of)).await?;
    Ok(Done { run: Some(id.as_str().to_owned()), children: names(children), ..Done::default() })
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
