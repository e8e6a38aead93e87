//! Runs in a list, and all about one of them.

use std::time::SystemTime;

use super::{
    Answer, Done, HoldRow, Out, PAGE_BYTES, QuestionRow, RunFilter, RunRow, Show, StepRow, Stop,
    left::{self, Left},
    rows::{self, ChildRow},
    words::States,
};
use crate::{
    entry::{Entry, Kind, decode, next_frame},
    id::{Generation, RunId, Seq},
    runtime::{Filter, Runtime},
    store::{Store, StoreError},
    value::Value,
    view::{self, RunInfo, Status, StepKind, StepView, ended_children, fold_log},
};

fn now(runtime: &Runtime) -> SystemTime {
    crate::clock::system_time(runtime.shared().clock.wall())
}

pub(super) async fn runs(runtime: &Runtime, filter: RunFilter, out: &Out) -> Result<Done, Stop> {
    let states = States::of(&filter.status)?;
    let class = match states.class() {
        Some(true) => Filter::unfinished(),
        Some(false) => Filter::finished(),
        None => Filter::all(),
    };
    let class = match filter.workflow {
        Some(name) => class.workflow(name),
        None => class,
    };
    let now = now(runtime);
    let age = |time| crate::clock::millis(now).saturating_sub(crate::clock::millis(time));
    let mut found = runtime.runs(class).await?;
    let left = left::of(runtime, &mut found).await?;
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
        let left = left.get(&run.id).map(Left::words).unwrap_or_default();
        let mut row = RunRow::new(run, left, runtime.shared().observing);
        if let Status::AwaitingChild { runs } = &run.status {
            let runs = runs.clone();
            let missing = runtime.shared().read(move |store| absent(store, runs)).await?;
            row.status.next = missing.first().map(import_too).or(row.status.next);
        }
        out.say(Answer::Run(row)).await?;
    }
    Ok(Done { total: Some(total as u64), ..Done::default() })
}

/// Those of some runs that are not in the store.
fn absent(store: &dyn Store, runs: Vec<RunId>) -> Result<Vec<RunId>, StoreError> {
    let mut absent = Vec::new();
    for run in runs {
        if store.run(&run)?.is_none() {
            absent.push(run);
        }
    }
    Ok(absent)
}

/// What to do about a run that another one waits for and that is not there: a run is exported without its children.
fn import_too(child: &RunId) -> String {
    format!("import the run {child} too, which is not in this store: durable import FILE --unfinished")
}

/// The runs that a run waits for, but for those that have left word of their end.
pub(super) fn open_children(store: &dyn Store, run: &RunId) -> Result<Vec<RunId>, StoreError> {
    let Some(record) = store.run(run)?.filter(|record| record.head.live) else { return Ok(Vec::new()) };
    let Ok(stored) = fold_log(store, run, record.head.generation) else { return Ok(Vec::new()) };
    let ended = ended_children(store, run)?;
    let open = stored.open_children().filter(|(.., child)| !ended.contains(*child));
    Ok(open.filter_map(|(.., child)| RunId::new(child).ok()).collect())
}

/// Those of them that are not in the store.
pub(super) fn missing_children(store: &dyn Store, run: &RunId) -> Result<Vec<RunId>, StoreError> {
    absent(store, open_children(store, run)?)
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
pub(super) async fn about(runtime: &Runtime, run: &str, most: usize) -> Result<Show, Stop> {
    let run = runtime.run(run).await?;
    let mut info = [run.info().await?];
    let left = left::of(runtime, &mut info).await?.remove(run.id()).unwrap_or_default();
    let [info] = info;
    let generation = Generation(run.generations().await?.saturating_sub(1));
    let (mut reader, mut entries) = (run.log_reader(generation), 0);
    let (mut started, mut outcome, mut cancelled) = (None, None, None);
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
                "run.cancel_requested" => cancelled = Some(entry),
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
        let args = match (&state, RunId::new(&child.what)) {
            (Some(_), Ok(id)) => runtime.shared().read(move |store| args_of(store, &id)).await?,
            _ => None,
        };
        let open = child.state == view::StepState::Waiting;
        children.push(ChildRow { run: child.what.clone(), step: child.step.0, state, args, open });
    }
    let (mut holds, mut questions) = run.waits_for_people().await?;
    let (bodies, observing) = (runtime.bodies(), runtime.shared().observing);
    let step_row = |step: &StepView| {
        let mut row = StepRow::from(step);
        left.tell(step, &holds, &questions, now(runtime), &mut row);
        row
    };
    let mut leave_out = all.iter().filter(|step| step.state.is_over()).count().saturating_sub(most);
    let steps_left_out = leave_out as u64;
    let kept = all.iter().filter(|step| {
        let out = step.state.is_over() && leave_out > 0;
        leave_out -= usize::from(out);
        !out
    });
    let steps: Vec<StepRow> = kept.map(step_row).collect();
    holds.retain(|hold| left.word_on(hold.step, hold.attempt).is_none());
    questions.retain(|question| left.is_open(question, now(runtime)));
    let to_cancel = left.cancels();
    if to_cancel {
        // Nobody need answer what is dropped as soon as a process has the run.
        holds.clear();
        questions.clear();
    }
    let mut row = RunRow::new(&info, left.words(), observing);
    if let (Status::Cancelling { .. }, Some(asked)) = (&info.status, cancelled) {
        let said = |field: &str| asked.get(field).and_then(|said| said.as_str()).unwrap_or_default().to_owned();
        let settling = row.status.detail.map(|detail| format!("; {detail}")).unwrap_or_default();
        row.status.detail = Some(format!("asked for by {}: {}{settling}", said("by"), said("reason")));
    }
    if let Some(child) = children.iter().find(|child| child.open && child.state.is_none())
        && let (Status::AwaitingChild { .. }, Ok(child)) = (&info.status, RunId::new(&child.run))
    {
        row.status.next = Some(import_too(&child));
    }
    Ok(Show {
        args: of_started("args").unwrap_or_default(),
        outcome,
        generation: generation.0,
        entries,
        build: of_started("build").and_then(|build| Some(build.as_str()?.to_owned())).unwrap_or_default(),
        parent: info.parent.as_ref().map(|parent| parent.as_str().to_owned()),
        steps_left_out,
        steps,
        holds: holds.iter().map(HoldRow::from).collect(),
        questions: questions.iter().map(QuestionRow::from).collect(),
        children,
        messages: run.messages().await?.iter().map(rows::message).collect(),
        bodies: bodies.iter().filter(|body| body.run == info.id).map(rows::body).collect(),
        to_cancel,
        run: row,
    })
}
