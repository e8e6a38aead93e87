//! `log`.

use std::{fs, path::Path, thread, time::Duration};

use durable_runtime::control::{Answer, Request};
use serde_json::Value as Json;

use crate::{
    client::{Client, live},
    failed::{Exit, Failed},
    screen::{BAD, BUSY, FAINT, GOOD, Screen, WAITS, styled},
    text::{clean, json, short},
};

/// How often it is looked whether a process has taken the store, or has had it.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The longest pause between two looks into a store that others open and close.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After so long it is looked into a store that nobody seems to have had.
const LOOK_ANYWAY: Duration = Duration::from_secs(60);
/// What whoever opens a store writes into.
const LOCK: &str = "LOCK";
/// Characters of what an entry says, in a line for a person.
const DETAIL_CHARS: usize = 300;

pub(crate) fn log(
    screen: &Screen,
    store: &Path,
    run: String,
    generation: Option<u32>,
    following: bool,
) -> Result<Exit, Failed> {
    let mut client = Client::open(screen, store)?;
    let mut pause = LOOK_EVERY;
    // What is read next: of which log, and from which place on.
    let mut at = (generation, 0);
    let mut ended = false;
    loop {
        let request = Request::Log { run: run.clone(), generation: at.0, from: at.1, follow: following };
        let was = at;
        let read = client.ask(request).and_then(|answers| {
            answers.each(|answer| {
                let Answer::Entry { generation, entry } = answer else { return Ok(()) };
                ended = matches!(name(&entry), "run.completed" | "run.failed" | "run.cancelled");
                at = match name(&entry) {
                    "run.restarted" => (Some(generation + 1), 0),
                    _ => (Some(generation), entry["seq"].as_u64().unwrap_or_default() + 1),
                };
                match screen.json {
                    true => screen.document(&entry),
                    false => screen.line(line(&entry)),
                }
            })
        });
        match read {
            Ok(_) if !following || ended => return Ok(Exit::Done),
            Ok(_) => {}
            // It may have ended because the run had: what it left says so.
            Err(failed) if following && failed.gone => {
                reopen(&mut client)?;
                continue;
            }
            Err(failed) => return Err(failed),
        }
        pause = if at == was { (pause * 2).min(PAUSE_MAX) } else { LOOK_EVERY };
        // Nobody goes on with the run now. The store is left alone until somebody has had it: to open it again and again would be
        // in the way of whoever wants to.
        client.release();
        wait_for_news(store, pause)?;
        reopen(&mut client)?;
    }
}

/// Opens the store anew, however long whoever has it keeps it to itself.
fn reopen(client: &mut Client) -> Result<(), Failed> {
    loop {
        match client.reopen() {
            Err(failed) if failed.code.as_deref() == Some("DUR-0030") => {}
            reopened => return reopened,
        }
    }
}

/// Waits until a process holds the store, or has held it: a short one ends between two looks.
fn wait_for_news(store: &Path, pause: Duration) -> Result<(), Failed> {
    let touched = || fs::metadata(store.join(LOCK)).and_then(|lock| Ok((lock.modified()?, lock.len()))).ok();
    let before = touched();
    let mut waited = Duration::ZERO;
    while !live(store)? && (waited < pause || touched() == before) && waited < LOOK_ANYWAY {
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    Ok(())
}

fn name(entry: &Json) -> &str {
    entry["entry"].as_str().unwrap_or_default()
}

/// An entry for a person: place, time, name, step, and what else it says.
fn line(entry: &Json) -> String {
    let name = name(entry);
    let style = match name {
        "run.completed" => GOOD,
        "run.failed" | "effect.failed" | "effect.in_doubt" | "signal.set_aside" | "resolution.set_aside" => BAD,
        "effect.called" | "effect.queued" => BUSY,
        "timer.set" | "signal.awaited" | "question.asked" | "run.cancel_requested" | "run.cancelled" => WAITS,
        _ => FAINT,
    };
    let text = |field: &str| entry[field].as_str().map(clean).unwrap_or_default();
    let step = match (entry.get("step"), entry.get("path").and_then(Json::as_str)) {
        (Some(step), Some(path)) => format!("{step} {}", clean(path)),
        (Some(step), None) => step.to_string(),
        _ => String::new(),
    };
    let known = ["seq", "at", "entry", "step", "path"];
    let rest: Vec<String> = entry
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| !known.contains(&field.as_str()))
        .map(|(field, value)| format!("{}={}", clean(field), json(value)))
        .collect();
    format!(
        "{:>5}  {}  {}  {step}  {}",
        entry["seq"].as_u64().unwrap_or_default(),
        styled(FAINT, &text("at")),
        styled(style, &format!("{name:<18}")),
        short(&rest.join(" "), DETAIL_CHARS),
    )
}
