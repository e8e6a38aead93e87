//! What is known without a store: the workflows of a binary, and what an error's code means.

use std::{
    fmt::Write as _,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use durable_runtime::control::{Answer, Request};
use serde_json::{Value as Json, json};

use crate::{
    args::Workflows,
    client::Client,
    failed::{Exit, Failed},
    screen::{BOLD, FAINT, Screen, styled},
    table::{Cell, Table},
    text::{clean, clean_lines},
};

/// The page of errors.
const ERRORS: &str = include_str!("../../../docs/errors.md");
/// The longest description that is read from a binary.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) fn workflows(screen: &Screen, store: &Path, args: Workflows) -> Result<Exit, Failed> {
    let workflows = match &args.binary {
        Some(binary) => describe(binary, args.timeout)?,
        None => ask(screen, store)?,
    };
    if screen.json {
        return screen.document(&workflows).map(|()| Exit::Done);
    }
    if args.mermaid {
        return screen.line(mermaid(&workflows).trim_end()).map(|()| Exit::Done);
    }
    for workflow in &workflows {
        let place = format!("{} {}:{}", text(workflow, "module"), text(workflow, "file"), workflow["line"]);
        screen.line(format!("{} {}", styled(BOLD, &text(workflow, "name")), styled(FAINT, &place)))?;
        let mut table = Table::new(&["STEP", "AWAITS", "CONTRACT", "LINE"]);
        for step in workflow["steps"].as_array().into_iter().flatten() {
            table.row([
                Cell::number(&step["number"]),
                Cell::new(step["callee"].as_str().unwrap_or_default()),
                Cell::new(step["contract"].as_str().unwrap_or_default()),
                Cell::number(&step["line"]),
            ]);
        }
        screen.table(&table)?;
    }
    if workflows.is_empty() {
        screen.remark("it has no workflows");
    }
    Ok(Exit::Done)
}

fn text(value: &Json, field: &str) -> String {
    clean(value[field].as_str().unwrap_or_default()).into_owned()
}

/// Those of the process that holds the store.
fn ask(screen: &Screen, store: &Path) -> Result<Vec<Json>, Failed> {
    let mut client = Client::open(screen, store)?;
    if !client.is_live() {
        return Err(Failed::usage("no process holds the store; name a binary"));
    }
    let mut workflows = Vec::new();
    client.each(Request::Workflows, |answer| {
        if let Answer::Workflow(workflow) = answer {
            workflows.push(workflow);
        }
        Ok(())
    })?;
    Ok(workflows)
}

/// Runs a binary that describes itself and ends.
fn describe(binary: &Path, most: Duration) -> Result<Vec<Json>, Failed> {
    let failed = |what: String| Failed::new(Exit::Other, format!("{} {what}", binary.display()));
    // A bare name is a file here, not a command in the path.
    let program = if binary.components().count() == 1 { Path::new(".").join(binary) } else { binary.to_owned() };
    let mut child = Command::new(program)
        .env("DURABLE_DESCRIBE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    let (told, tell) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = String::new();
            let read = out.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text).map(|_| text);
            // Whoever has stopped waiting does not want it.
            let _ = told.send(read);
        });
    }
    let text = tell.recv_timeout(most);
    // A process that has closed its output may still go on.
    let mut waited = Duration::ZERO;
    while text.is_ok() && waited < most && child.try_wait()?.is_none() {
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    let ended = child.try_wait()?;
    if ended.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let text = match (text, ended) {
        (Ok(text), Some(_)) => text?,
        _ => {
            let time = humantime::format_duration(most);
            return Err(failed(format!(
                "did not describe itself within {time} and was killed; does it call Runtime::builder()?"
            )));
        }
    };
    // It may have said something else before.
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    serde_json::from_str(line).map_err(|error| {
        let how = ended.filter(|status| !status.success()).map(|status| format!(" ({status})")).unwrap_or_default();
        failed(format!("does not describe itself{how}: {error}; is it built with this version of the library, and does it call Runtime::builder()?"))
    })
}

/// A chart of each workflow: its steps in the order of the source.
fn mermaid(workflows: &[Json]) -> String {
    let mut chart = String::from("flowchart TD\n");
    for (place, workflow) in workflows.iter().enumerate() {
        let name = label(&text(workflow, "name"));
        let _ = writeln!(chart, "  subgraph w{place} [\"{name}\"]");
        let mut before: Option<String> = None;
        for step in workflow["steps"].as_array().into_iter().flatten() {
            let node = format!("w{place}s{}", step["number"]);
            let callee = label(&text(step, "callee"));
            let contract = step["contract"].as_str().map(|contract| format!("<br/>{}", label(contract)));
            let _ = writeln!(chart, "    {node}[\"{} {callee}{}\"]", step["number"], contract.unwrap_or_default());
            if let Some(before) = before {
                let _ = writeln!(chart, "    {before} --> {node}");
            }
            before = Some(node);
        }
        chart.push_str("  end\n");
    }
    chart
}

/// A text within quotes of a chart.
fn label(text: &str) -> String {
    let mut label = String::new();
    for c in text.chars() {
        match c {
            '"' | '<' | '>' | '&' | '#' | ';' | '`' => {
                let _ = write!(label, "#{};", u32::from(c));
            }
            c => label.push(c),
        }
    }
    label
}

pub(crate) fn explain(screen: &Screen, code: &str) -> Result<Exit, Failed> {
    let digits = code.trim().trim_start_matches(['D', 'd', 'U', 'u', 'R', 'r', '-']);
    let number: u16 = digits.parse().map_err(|_| Failed::usage(format!("{code:?} is no code; one is DUR-0011")))?;
    let wanted = format!("DUR-{number:04}");
    let section = ERRORS.split("\n### ").skip(1).find(|section| section.starts_with(&wanted));
    let Some(section) = section else {
        return Err(Failed::new(Exit::NotFound, format!("there is no code {wanted}")));
    };
    let section = section.split("\n## ").next().unwrap_or(section).trim_end();
    let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
    let name = heading.strip_prefix(&wanted).unwrap_or_default().trim();
    let text = text.trim();
    let document = json!({ "code": wanted, "name": name, "text": text });
    screen.said(&document, format!("{}\n\n{}", styled(BOLD, heading), clean_lines(text)))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_steps_in_order_and_no_name_can_break_out_of_it() {
        let workflow = json!({ "name": "a\"]; b", "steps": [
            { "number": 0, "callee": "search::<T>", "contract": "read_only" },
            { "number": 1, "callee": "pay", "contract": null },
        ]});
        let chart = mermaid(&[workflow]);
        assert_eq!(
            chart,
            "flowchart TD\n  subgraph w0 [\"a#34;]#59; b\"]\n    w0s0[\"0 search::#60;T#62;<br/>read_only\"]\n    w0s1[\"1 \
             pay\"]\n    w0s0 --> w0s1\n  end\n"
        );
    }
}
