//! Verifies a store, run by run.

use std::collections::BTreeSet;

use super::{Answer, Done, Finding, Out, Stop, check};
use crate::{
    id::RunId,
    runtime::{FindingKind, Runtime},
    store::{Dump, Store, StoreError, Write},
};

/// Runs that are looked at between two words on how far it is.
const RUNS_AT_ONCE: usize = 100;
/// A run that goes on while it is read may look inconsistent; what is really wrong is so each time.
const LOOKS: usize = 4;

pub(super) async fn doctor(runtime: &Runtime, out: &Out) -> Result<Done, Stop> {
    let shared = runtime.shared();
    shared.write(Write::Barrier).await?;
    let (mut after, mut total) = (None::<RunId>, 0);
    loop {
        let from = after.clone();
        let page = shared.read(move |store| page(store, from.as_ref())).await?;
        let Some(last) = page.last else { break };
        for finding in page.findings {
            out.say(Answer::Finding(finding)).await?;
        }
        total += page.runs;
        after = Some(last);
        out.say(Answer::Progress { done: total, of: None }).await?;
    }
    for found in runtime.audit().await? {
        // What is wrong with a log was found above, and where.
        if let FindingKind::Stranded = found.kind {
            out.say(Answer::Finding((&found).into())).await?;
        }
    }
    Ok(Done { total: Some(total), ..Done::default() })
}

struct Page {
    /// `None`: there were no runs left.
    last: Option<RunId>,
    runs: u64,
    findings: Vec<Finding>,
}

fn page(store: &dyn Store, after: Option<&RunId>) -> Result<Page, StoreError> {
    let runs = store.runs(None, after, RUNS_AT_ONCE)?;
    let mut page =
        Page { last: runs.last().map(|(run, _)| run.clone()), runs: runs.len() as u64, findings: Vec::new() };
    // The two lists by class must have between them what the list of all has.
    let mut classes = [BTreeSet::new(), BTreeSet::new()];
    for (live, class) in classes.iter_mut().enumerate() {
        class.extend(store.runs(Some(live == 1), after, RUNS_AT_ONCE)?.into_iter().map(|(run, _)| run));
    }
    for (run, _) in &runs {
        page.findings.extend(one(store, run, after, &classes)?);
    }
    Ok(page)
}

fn one(
    store: &dyn Store,
    run: &RunId,
    after: Option<&RunId>,
    classes: &[BTreeSet<RunId>; 2],
) -> Result<Vec<Finding>, StoreError> {
    let mut found = Vec::new();
    for look in 0..LOOKS {
        let (now, dump) = match store.dump(run) {
            // Removed meanwhile.
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(dump)) => {
                (check::examine(&dump).into_iter().map(|problem| finding(run, problem)).collect(), Some(dump))
            }
            Err(error) => (vec![unreadable(run, error)?], None),
        };
        let mut now: Vec<Finding> = now;
        now.extend(listed(store, run, after, dump.as_ref(), classes)?);
        if now.is_empty() {
            return Ok(now);
        }
        found = match look {
            0 => now,
            _ => found.into_iter().filter(|before| now.contains(before)).collect(),
        };
    }
    Ok(found)
}

/// Whether the list by class has the run where it belongs.
fn listed(
    store: &dyn Store,
    run: &RunId,
    after: Option<&RunId>,
    dump: Option<&Dump>,
    classes: &[BTreeSet<RunId>; 2],
) -> Result<Option<Finding>, StoreError> {
    let Some(dump) = dump else { return Ok(None) };
    let live = dump.record.head.live;
    if classes[usize::from(live)].contains(run) {
        return Ok(None);
    }
    // It may have ended since the lists were read.
    let now = store.runs(Some(live), after, RUNS_AT_ONCE)?;
    if now.iter().any(|(listed, _)| listed == run) {
        return Ok(None);
    }
    let class = if live { "runs that go on" } else { "runs that have ended" };
    let what = format!("it is missing in the list of the {class}");
    Ok(Some(finding(run, check::Problem { generation: None, seq: None, sort: check::Sort::Index, what })))
}

fn finding(run: &RunId, problem: check::Problem) -> Finding {
    Finding {
        run: Some(run.as_str().to_owned()),
        generation: problem.generation.map(|generation| generation.0),
        seq: problem.seq.map(|seq| seq.0),
        sort: problem.sort.as_str().to_owned(),
        what: problem.what,
        next: problem.sort.next().to_owned(),
    }
}

/// What the store says of a run that it cannot read. Any other error is about the store.
fn unreadable(run: &RunId, error: StoreError) -> Result<Finding, StoreError> {
    match error {
        StoreError::Damaged { run: of, seq, what, .. } if of.as_ref().is_none_or(|of| of == run) => {
            let what = what.to_string();
            Ok(finding(run, check::Problem { generation: None, seq, sort: check::Sort::Damaged, what }))
        }
        other => Err(other),
    }
}
