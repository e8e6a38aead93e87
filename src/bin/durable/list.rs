//! `runs` and `show`.

use std::{path::Path, time::Duration};

use durable_runtime::control::{Answer, Request, RunFilter, RunRow, Show, StepRow};

use crate::{
    args::Runs,
    client::Client,
    failed::{Exit, Failed},
    screen::{BAD, BOLD, FAINT, Screen, of_state, styled},
    table::{Cell, Table},
    text::{ago, clean, counted, json, lasting, run_word, short},
};

/// Characters of a value in a line of a table.
const VALUE_CHARS: usize = 120;

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn runs(screen: &Screen, store: &Path, args: Runs) -> Result<Exit, Failed> {
    let mut client = Client::open(screen, store)?;
    let filter = RunFilter {
        status: args.status,
        workflow: args.workflow,
        older_ms: args.older.map(millis),
        newer_ms: args.newer.map(millis),
        settled_ms: None,
        text: args.text,
        limit: args.limit,
    };
    let mut rows = Vec::new();
    let done = client.each(Request::Runs(filter), |answer| {
        match answer {
            Answer::Run(row) if screen.json => screen.document(&row)?,
            Answer::Run(row) => rows.push(row),
            _ => {}
        }
        Ok(())
    })?;
    if !screen.json {
        screen.table(&table(screen, &rows))?;
    }
    let total = done.total.unwrap_or_default();
    let shown = if args.limit == 0 { total } else { total.min(args.limit as u64) };
    if total > shown {
        screen.remark(format!("{} of {total} runs; --limit 0 lists all", shown));
    }
    if total == 0 {
        screen.remark("no run fits");
    }
    Ok(Exit::Done)
}

pub(crate) fn table(screen: &Screen, rows: &[RunRow]) -> Table {
    let mut table = Table::new(&["RUN", "WORKFLOW", "STATE", "SINCE", "AGE", "DETAIL", "NEXT"]);
    for row in rows {
        table.row([
            Cell::new(&row.run).styled(BOLD),
            Cell::new(&row.workflow),
            Cell::new(&row.status.state).styled(of_state(&row.status.state)),
            Cell::new(when(screen, &row.since)),
            Cell::new(when(screen, &row.started_at)),
            Cell::new(row.status.detail.iter().chain(&row.left).cloned().collect::<Vec<_>>().join("; ")),
            Cell::new(row.status.next.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

/// How long ago, for a person; the time itself, for a program.
fn when(screen: &Screen, time: &str) -> String {
    match screen.terminal {
        true => ago(screen.now, time),
        false => time.to_owned(),
    }
}

pub(crate) fn show(screen: &Screen, store: &Path, run: String, steps: usize) -> Result<Exit, Failed> {
    let mut client = Client::open(screen, store)?;
    let steps = if steps == 0 { usize::MAX } else { steps };
    let mut shown = None;
    client.each(Request::Show { run, steps }, |answer| {
        if let Answer::Show(show) = answer {
            shown = Some(show);
        }
        Ok(())
    })?;
    let Some(show) = shown else { return Err(Failed::new(Exit::Other, "the run was not described")) };
    match screen.json {
        true => screen.document(&show)?,
        false => person(screen, &show)?,
    }
    Ok(Exit::Done)
}

/// The run, for a person.
fn person(screen: &Screen, show: &Show) -> Result<(), Failed> {
    let Show { run: row, .. } = show;
    let state = styled(of_state(&row.status.state), &clean(&row.status.state));
    screen.line(format!("{} {state}", styled(BOLD, &clean(&row.run))))?;
    let field = |name: &str, value: String| match value.is_empty() {
        true => Ok(()),
        false => screen.line(format!("{} {value}", styled(FAINT, &format!("  {name:<9}")))),
    };
    field("since", format!("{} ({} ago)", clean(&row.since), ago(screen.now, &row.since)))?;
    field("detail", clean(row.status.detail.as_deref().unwrap_or_default()).into_owned())?;
    field("workflow", format!("{} ({})", clean(&row.workflow), clean(&row.module)))?;
    field("started", format!("{} ({} ago)", clean(&row.started_at), ago(screen.now, &row.started_at)))?;
    field("arguments", json(&show.args))?;
    field("outcome", show.outcome.as_ref().map(json).unwrap_or_default())?;
    field("parent", show.parent.as_deref().map(clean).unwrap_or_default().into_owned())?;
    let log = match show.generation {
        0 => counted(show.entries, "entry", "entries"),
        n => format!("{}, in fresh log {n}", counted(show.entries, "entry", "entries")),
    };
    field("log", log)?;
    section(screen, "steps", &steps(&show.steps))?;
    if show.steps_left_out > 0 {
        screen.line(styled(FAINT, &format!("  {} earlier ones are over; --steps 0 shows all", show.steps_left_out)))?;
    }
    let mut children = Table::new(&["CHILD", "STEP", "STATE", "ARGUMENTS"]);
    for child in &show.children {
        let state = child.state.as_deref().unwrap_or("not in this store");
        let args = short(child.args.as_deref().unwrap_or_default(), VALUE_CHARS).into_owned();
        children.row([
            Cell::new(&child.run),
            Cell::number(child.step),
            Cell::new(state).styled(of_state(state)),
            Cell::new(args),
        ]);
    }
    section(screen, "children", &children)?;
    let mut messages = Table::new(&["MESSAGE", "VALUE"]);
    for message in &show.messages {
        let name = message.get("name").map(json).unwrap_or_default();
        messages
            .row([Cell::new(name), Cell::new(short(&message.get("value").map(json).unwrap_or_default(), VALUE_CHARS))]);
    }
    section(screen, "messages that nobody has taken", &messages)?;
    let mut left = Table::new(&["LEFT"]);
    row.left.iter().for_each(|words| left.row([Cell::new(words)]));
    section(screen, "left for the process that goes on with it", &left)?;
    for next in next_actions(screen, show) {
        screen.line(format!("{} {next}", styled(BOLD, "next:")))?;
    }
    Ok(())
}

fn section(screen: &Screen, name: &str, table: &Table) -> Result<(), Failed> {
    if table.is_empty() {
        return Ok(());
    }
    screen.line("")?;
    screen.line(styled(BOLD, name))?;
    screen.table(table)
}

fn steps(steps: &[StepRow]) -> Table {
    let mut table = Table::new(&["STEP", "PATH", "CONTRACT", "TRIES", "STATE", "TIME", "OUTCOME"]);
    for step in steps {
        let tries = if step.kind == "effect" { step.attempts.to_string() } else { String::new() };
        let state = if step.dropped && step.state != "dropped" {
            format!("{}, dropped", step.state)
        } else {
            step.state.clone()
        };
        let said = match (&step.detail, &step.outcome) {
            (Some(detail), _) => detail.clone(),
            (None, Some(outcome)) => json(outcome),
            (None, None) => step.what.clone(),
        };
        let said = match &step.set_aside {
            Some(aside) => format!("{said}; {aside}"),
            None => said,
        };
        table.row([
            Cell::number(step.step),
            Cell::new(&step.path),
            Cell::new(step.contract.as_deref().unwrap_or(&step.kind)),
            Cell::number(tries),
            Cell::new(state).styled(of_state(&step.state)),
            Cell::new(step.duration_ms.map(lasting).unwrap_or_default()),
            Cell::new(short(&said, VALUE_CHARS)),
        ]);
    }
    table
}

/// What a person can do now, as commands where there is one.
fn next_actions(screen: &Screen, show: &Show) -> Vec<String> {
    let (run, durable) = (run_word(&show.run.run), &screen.durable);
    let status = &show.run.status;
    let said = status
        .next
        .as_deref()
        .map(|said| styled(BAD, &clean(&said.replace("call durable ", &format!("call {durable} ")))));
    // What else it waits for does not get it going.
    if ["parked", "waiting for code"].contains(&&*status.state) {
        let retry = match said.as_deref() {
            Some(said) if said.contains(" retry ") => String::new(),
            _ => format!("; then {durable} retry {run}"),
        };
        let explain =
            status.code.as_deref().map(|code| format!(" (durable explain {code}{retry})")).unwrap_or_default();
        return said.map(|said| format!("{said}{explain}")).into_iter().collect();
    }
    let mut next: Vec<String> = Vec::new();
    for hold in &show.holds {
        next.push(format!(
            "find out what step {} ({}) did, then: {durable} resolve {run} {} {} --succeeded JSON | --failed WHY | --run-again",
            hold.step,
            clean(&hold.path),
            hold.step,
            hold.attempt,
        ));
    }
    for question in &show.questions {
        next.push(format!(
            "{}: {durable} answer {} --grant JSON | --refuse WHY",
            clean(&question.title),
            run_word(&question.token)
        ));
    }
    for child in show.children.iter().filter(|child| child.open) {
        let (name, word) = (clean(&child.run), run_word(&child.run));
        match child.state.as_deref() {
            None => next.push(format!(
                "it waits for its child {name}, which is not in this store: durable export {word} -o FILE where it is, then \
                 {durable} import FILE --unfinished"
            )),
            Some(state @ ("held" | "parked" | "waiting for code" | "awaiting answer")) => {
                next.push(format!("its child {name} is {state}: {durable} show {word}"));
            }
            Some(_) => {}
        }
    }
    let waits = |step: &&StepRow| step.kind == "signal" && step.state == "waiting" && !show.to_cancel;
    for step in show.steps.iter().filter(waits).filter(|_| status.state != "cancelling") {
        if !show.messages.iter().any(|message| message["name"] == *step.what) {
            next.push(format!("it waits for a signal: {durable} signal {run} {} JSON", run_word(&step.what)));
        }
    }
    // What is left for a process is for no person any more.
    if next.is_empty() || status.state == "interrupted" {
        next.extend(said);
    }
    next
}
