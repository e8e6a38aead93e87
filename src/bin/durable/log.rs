//! `log`.

use std::{path::Path, thread, time::Duration};

use durable_runtime::control::{Answer, Request};
use serde_json::Value as Json;

use crate::{
    client::{Client, live},
    failed::{Exit, Failed},
    screen::{BAD, BUSY, FAINT, GOOD, Screen, WAITS, styled},
    text::{clean, json, short},
};

/// How often it is looked whether a process has taken the store.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Characters of what an entry says, in a line for a person.
const DETAIL_CHARS: usize = 300;

pub(crate) fn log(
    screen: &Screen,
    store: &Path,
    run: String,
    generation: Option<u32>,
    following: bool,
) -> Result<Exit, Failed> {
    let mut client = Client::open(store)?;
    // What is read next: of which log, and from which place on.
    let mut at = (generation, 0);
    let mut ended = false;
    loop {
        let request = Request::Log { run: run.clone(), generation: at.0, from: at.1, follow: following };
        let read = client.ask(request)?.each(|answer| {
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
        });
        match read {
            Ok(_) if !following || ended => return Ok(Exit::Done),
            Ok(_) => {}
            Err(failed) if following && failed.gone => {}
            Err(failed) => return Err(failed),
        }
        // Nobody goes on with the run now. The store is left alone until somebody does: to open it again and again would be
        // in the way of whoever wants to.
        client.release();
        while !live(store)? {
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn name(entry: &Json) -> &str {
    entry["entry"].as_str().unwrap_or_default()
}

/// An entry for a person: place, time, name, step, and what else it says.
fn line(entry: &Json) -> String {
    let name = name(entry);
    let style = match name {
        "run.completed" => GOOD,
        "run.failed" | "effect.failed" | "effect.in_doubt" | "signal.set_aside" => BAD,
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
