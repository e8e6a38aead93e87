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
    let client = Client::open(store)?;
    let name = run.clone();
    let live = client.is_live();
    let done = client.ask(Request::Cancel { run, reason, by })?.each(|answer| {
        if let Answer::Accepted = answer {
            screen.remark(match live {
                true => "the request stands; waiting for the run to end (Ctrl-C leaves the request standing)",
                false => "the request stands; a process that opens the store carries it out",
            });
        }
        Ok(())
    })?;
    let Some(status) = done.status else {
        screen.said(&json!({ "run": name, "state": null, "requested": true }), "")?;
        return Ok(Exit::Done);
    };
    let detail = status.detail.as_deref().map(|detail| format!(": {}", clean(detail))).unwrap_or_default();
    let words = format!("{} is {}{detail}", clean(&name), styled(of_state(&status.state), &clean(&status.state)));
    let document = json!({ "run": name, "state": status.state, "detail": status.detail, "requested": true });
    screen.said(&document, words)?;
    // One that had ended before, or whose code returned first, was not cancelled.
    Ok(if status.ended && status.state != "cancelled" { Exit::No } else { Exit::Done })
}

pub(crate) fn retry(screen: &Screen, store: &Path, run: String) -> Result<Exit, Failed> {
    let client = Client::open(store)?;
    let (words, document) =
        (format!("run {} is tried again", clean(&run)), json!({ "run": run.clone(), "retried": true }));
    client.request(Request::Retry { run })?;
    screen.said(&document, words)?;
    Ok(Exit::Done)
}
