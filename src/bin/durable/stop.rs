//! `cancel` and `retry`.

use std::path::Path;

use durable_runtime::control::{Answer, Request};
use serde_json::json;

use crate::{
    client::Client,
    failed::{Exit, Failed},
    screen::{Screen, of_state, styled},
    text::clean,
};

pub(crate) fn cancel(
    screen: &Screen,
    store: &Path,
    run: String,
    reason: String,
    by: Option<String>,
) -> Result<Exit, Failed> {
    let mut client = Client::open(screen, store)?;
    let (name, wanted) = (run.clone(), reason.clone());
    let live = client.is_live();
    let mut accepted = false;
    let done = client.each(Request::Cancel { run, reason, by }, |answer| {
        if let Answer::Accepted = answer {
            // Asked again, it is the same request.
            if live && !accepted {
                screen.remark("the request stands; waiting for the run to end (Ctrl-C leaves the request standing)");
            }
            accepted = true;
        }
        Ok(())
    })?;
    let Some(status) = done.status else {
        return Err(Failed::new(Exit::Other, "it was not said where the run stands"));
    };
    // The process that was asked first has cancelled it, and ended with it before it could say so.
    accepted |= client.asked_again() && status.state == "cancelled" && status.detail.as_ref() == Some(&wanted);
    let detail = status.detail.as_deref().map(|detail| format!(": {}", clean(detail))).unwrap_or_default();
    let state = styled(of_state(&status.state), &clean(&status.state));
    let run = clean(&name);
    let words = match (status.ended, accepted, &done.note) {
        (true, true, _) => format!("{run} is {state}{detail}"),
        (true, false, _) => format!("{run} had ended before: it is {state}{detail}"),
        (false, _, Some(before)) => {
            format!(
                "{run} is to be cancelled already, {}; a process that opens the store carries it out",
                clean(before)
            )
        }
        (false, _, None) => {
            "the request stands; a process that opens the store carries it out, unless the run's code has \
                             returned by then"
                .to_owned()
        }
    };
    let words = match (&*done.in_doubt, status.ended) {
        ([], _) => words,
        (unknown, true) => {
            format!("{words}\n{}: in doubt, and nobody will be asked about it any more", clean(&unknown.join(", ")))
        }
        (unknown, false) => format!("{words}\n{}: in doubt, and left so", clean(&unknown.join(", "))),
    };
    let requested = accepted || !status.ended;
    let mut document = json!({ "run": name, "state": status.state, "detail": status.detail, "requested": requested });
    if !done.in_doubt.is_empty() {
        document["in_doubt"] = json!(done.in_doubt);
    }
    screen.said(&document, words)?;
    // One that had ended before, or whose code returned first, was not cancelled.
    Ok(if status.ended && status.state != "cancelled" { Exit::No } else { Exit::Done })
}

pub(crate) fn retry(screen: &Screen, store: &Path, run: String) -> Result<Exit, Failed> {
    let mut client = Client::open(screen, store)?;
    let when = if client.is_live() { "" } else { " when a process that has its code opens the store" };
    let words = format!("run {} is tried again{when}", clean(&run));
    let document = json!({ "run": run.clone(), "retried": true });
    client.request(Request::Retry { run })?;
    screen.said(&document, words)?;
    Ok(Exit::Done)
}
