//! What people say to runs: `signal`, `ask` and `answer`, `holds` and `resolve`.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    path::Path,
};

use durable_runtime::control::{Answer, HoldRow, QuestionRow, Reply, Request, Verdict, WAS_THERE};
use serde_json::{Value as Json, json};

use crate::{
    args,
    args::Given,
    client::Client,
    failed::{Exit, Failed},
    screen::{BOLD, FAINT, Screen, styled},
    text::{ago, clean, clean_lines, run_word},
};

fn value(given: Given) -> Result<Json, Failed> {
    match given {
        Given::Value(value) => Ok(value),
        Given::Stdin => {
            let text = io::read_to_string(io::stdin())?;
            serde_json::from_str(&text).map_err(|error| Failed::usage(format!("standard input is no JSON: {error}")))
        }
    }
}

pub(crate) fn signal(
    screen: &Screen,
    store: &Path,
    run: String,
    name: String,
    given: Given,
    id: Option<String>,
) -> Result<Exit, Failed> {
    let value = value(given)?;
    let mut client = Client::open(screen, store)?;
    // Should the process end before it has answered, the message is sent again, and is the same.
    let own = id.clone().unwrap_or_else(random_id);
    let request = Request::Signal { run: run.clone(), name: name.clone(), value, id: Some(own) };
    let done = client.request(request)?;
    let before = !client.asked_again() && done.note.as_deref() == Some(WAS_THERE);
    let words = match &id {
        Some(id) if before => format!(
            "run {} had a signal {} with the id {} before: that one counts, and this one was not sent",
            clean(&run),
            clean(&name),
            clean(id)
        ),
        _ => format!("run {} has the signal {}", clean(&run), clean(&name)),
    };
    screen.said(&json!({ "run": run, "signal": name, "sent": !before }), words)?;
    Ok(Exit::Done)
}

/// Nobody else's.
fn random_id() -> String {
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

pub(crate) fn ask(screen: &Screen, store: &Path) -> Result<Exit, Failed> {
    let mut open = 0;
    let done = Client::open(screen, store)?.each(Request::Questions, |answer| {
        if let Answer::Question(question) = answer {
            open += 1;
            match screen.json {
                true => screen.document(&question)?,
                false => screen.line(asked(screen, &question))?,
            }
        }
        Ok(())
    })?;
    if open == 0 {
        screen.remark("no question is open");
    }
    tell_left(screen, "an answer", &done.left);
    Ok(Exit::Done)
}

/// What was said for a run while no process had it may be of no use, and then nobody would hear of it here.
fn tell_left(screen: &Screen, what: &str, runs: &[String]) {
    for run in runs {
        let (name, word, durable) = (clean(run), run_word(run), &screen.durable);
        screen.remark(format!(
            "run {name} has {what} that waits for a process, and may be given another one until then: {durable} show {word}"
        ));
    }
}

/// A question for a person: all that is to be approved, uncut.
fn asked(screen: &Screen, question: &QuestionRow) -> String {
    let field = |name: &str, value: &str| match value.is_empty() {
        true => String::new(),
        false => format!("{} {value}\n", styled(FAINT, &format!("  {name:<8}"))),
    };
    let about = match &question.about {
        Json::Null => String::new(),
        about => indented(&clean_lines(&serde_json::to_string_pretty(about).unwrap_or_default())),
    };
    let expires = question.expires_at.as_deref().map(clean).unwrap_or_default();
    let by = question.by.iter().map(|by| clean(by)).collect::<Vec<_>>().join(", ");
    let aside = question.set_aside.as_deref().map(clean).unwrap_or_default();
    format!(
        "{}\n{}{}{}{}{}{}{}",
        styled(BOLD, &clean(&question.title)),
        field("run", &format!("{}, {}", clean(&question.run), clean(&question.path))),
        field("asked", &format!("{} ago", ago(screen.now, &question.asked_at))),
        field("expires", &expires),
        field("who", &by),
        field("about", about.trim_start()),
        field("answers", &aside),
        field(
            "answer",
            &format!("{} answer {} --grant JSON | --refuse WHY", screen.durable, run_word(&question.token))
        ),
    )
}

/// The lines of a value under its name.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!("           {line}")).collect::<Vec<_>>().join("\n")
}

pub(crate) fn answer(screen: &Screen, store: &Path, args: args::Answer) -> Result<Exit, Failed> {
    let args::Answer { token, grant, refuse, who } = args;
    let reply = match (grant, refuse) {
        (Some(given), _) => Reply::Granted(value(given)?),
        (None, Some(why)) => Reply::Refused(why),
        (None, None) => return Err(Failed::usage("an answer is --grant or --refuse")),
    };
    let document = json!({ "token": token });
    let done = Client::open(screen, store)?.request(Request::Answer { token, reply, by: who.by })?;
    let note = done.note.unwrap_or_default();
    let mut document = document;
    document["answered"] = note.clone().into();
    screen.said(&document, format!("the answer is {}", clean(&note)))?;
    Ok(Exit::Done)
}

pub(crate) fn holds(screen: &Screen, store: &Path) -> Result<Exit, Failed> {
    let mut held = 0;
    let done = Client::open(screen, store)?.each(Request::Holds, |answer| {
        if let Answer::Hold(hold) = answer {
            held += 1;
            match screen.json {
                true => screen.document(&hold)?,
                false => screen.line(in_doubt(screen, &hold))?,
            }
        }
        Ok(())
    })?;
    if held == 0 {
        screen.remark("no step in doubt waits for a person");
    }
    tell_left(screen, "a word on a step in doubt", &done.left);
    Ok(Exit::Done)
}

fn in_doubt(screen: &Screen, hold: &HoldRow) -> String {
    let field = |name: &str, value: &str| format!("{} {value}\n", styled(FAINT, &format!("  {name:<8}")));
    let args = clean_lines(&serde_json::to_string_pretty(&hold.args).unwrap_or_default());
    let aside = hold.set_aside.as_deref().map(|aside| field("words", &clean(aside))).unwrap_or_default();
    format!(
        "{}\n{}{}{}{}{aside}{}",
        styled(BOLD, &format!("{}: {}", clean(&hold.run), clean(&hold.path))),
        field("why", &format!("{} ({} ago)", clean(&hold.reason), ago(screen.now, &hold.since))),
        field("effect", &clean(&hold.effect)),
        field("with", indented(&args).trim_start()),
        field("key", &clean(&hold.key)),
        field(
            "resolve",
            &format!(
                "{} resolve {} {} {} --succeeded JSON | --failed WHY | --run-again",
                screen.durable,
                run_word(&hold.run),
                hold.step,
                hold.attempt
            )
        ),
    )
}

pub(crate) fn resolve(screen: &Screen, store: &Path, args: args::Resolve) -> Result<Exit, Failed> {
    let args::Resolve { run, step, attempt, succeeded, failed, failed_with, run_again: _, who } = args;
    let (verdict, word) = match (succeeded, failed, failed_with) {
        (Some(given), ..) => (Verdict::Succeeded(value(given)?), "succeeded"),
        (_, Some(why), _) => (Verdict::Failed(why), "failed"),
        (_, _, Some(given)) => (Verdict::FailedWith(value(given)?), "failed"),
        // The command line takes one of the four.
        (None, None, None) => (Verdict::RunAgain, "run again"),
    };
    let request = Request::Resolve { run: run.clone(), step, attempt, verdict, by: who.by };
    let done = Client::open(screen, store)?.request(request)?;
    let kept = done.note.as_deref().map(|note| format!("; it is {}", clean(note))).unwrap_or_default();
    let words = format!("run {}, step {step}, attempt {attempt}: {word}{kept}", clean(&run));
    let document =
        json!({ "run": run, "step": step, "attempt": attempt, "resolved": word, "kept": done.note.is_some() });
    screen.said(&document, words)?;
    Ok(Exit::Done)
}
