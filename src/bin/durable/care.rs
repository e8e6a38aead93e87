//! What keeps a store in order: `purge`, `compact`, `doctor`.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
};

use durable::store::sled::{Compacted, Keep, SledOptions, SledStore};
use durable_runtime::control::{Answer, Finding, Request, RunFilter, RunRow};
use indicatif::HumanBytes;
use serde_json::json;

use crate::{
    args::Purge,
    client::{Client, Open},
    failed::{Exit, Failed},
    list::{millis, table},
    screen::{BAD, BOLD, FAINT, GOOD, Progress, Screen, styled},
    text::{clean, counted},
};

/// Runs that are shown of those that are to be deleted.
const SHOWN: usize = 20;
/// Runs that are deleted with one request.
const AT_ONCE: usize = 500;

pub(crate) fn purge(screen: &Screen, store: &Path, args: Purge) -> Result<Exit, Failed> {
    const ENDS: [&str; 4] = ["completed", "failed", "cancelled", "ended"];
    if let Some(other) = args.status.iter().find(|status| !ENDS.contains(&status.as_str())) {
        let what = format!("only runs that have ended are deleted: --status is {}, not {:?}", ENDS.join(", "), other);
        return Err(Failed::usage(what));
    }
    let mut client = Client::open(screen, store)?;
    let status = if args.status.is_empty() { vec!["ended".to_owned()] } else { args.status };
    let settled_ms = args.older.map(millis);
    let filter = RunFilter { status, workflow: args.workflow, settled_ms, ..RunFilter::default() };
    let mut rows: Vec<RunRow> = Vec::new();
    client.each(Request::Runs(filter), |answer| {
        if let Answer::Run(row) = answer {
            rows.push(row);
        }
        Ok(())
    })?;
    let many = counted(rows.len() as u64, "run", "runs");
    if !screen.json {
        screen.table(&table(screen, &rows[..rows.len().min(SHOWN)]))?;
        if rows.len() > SHOWN {
            screen.line(styled(FAINT, &format!(".. and {} more", rows.len() - SHOWN)))?;
        }
    }
    if args.dry_run || rows.is_empty() {
        let ids: Vec<&str> = rows.iter().map(|row| &*row.run).collect();
        screen
            .said(&json!({ "dry_run": args.dry_run, "runs": ids, "deleted": 0 }), format!("{many} would be deleted"))?;
        return Ok(Exit::Done);
    }
    if !args.yes && !agreed(screen, &many)? {
        return Err(Failed::new(Exit::No, "nothing was deleted"));
    }
    let mut bar = Progress::new("deleting");
    let (mut deleted, of) = (0, Some(rows.len() as u64));
    for (part, rows) in rows.chunks(AT_ONCE).enumerate() {
        let runs = rows.iter().map(|row| row.run.clone()).collect();
        let done = client.each(Request::Remove { runs }, |answer| {
            if let Answer::Progress { done, .. } = answer {
                bar.at((part * AT_ONCE) as u64 + done, of);
            }
            Ok(())
        })?;
        deleted += done.total.unwrap_or_default();
    }
    drop(bar);
    let (many, durable) = (counted(deleted, "run", "runs"), &screen.durable);
    let words = format!("{many} deleted; {durable} compact gives the disk space back");
    screen.said(&json!({ "dry_run": false, "deleted": deleted }), words)?;
    Ok(Exit::Done)
}

/// Asks whoever sits at the terminal; where nobody does, `--yes` says it.
fn agreed(screen: &Screen, many: &str) -> Result<bool, Failed> {
    if screen.json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failed::usage(format!("{many} would be deleted, with their logs; --yes does it")));
    }
    let mut err = anstream::stderr();
    write!(err, "delete {many} with their logs, for good? [y/N] ")?;
    err.flush()?;
    let mut word = String::new();
    io::stdin().read_line(&mut word)?;
    Ok(matches!(word.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn compact(screen: &Screen, store: &Path) -> Result<Exit, Failed> {
    let mut bar = Progress::new("copying");
    let compacted = SledStore::compact(store, SledOptions::new(), Keep::All, |done, of| bar.at(done, Some(of)));
    drop(bar);
    let Compacted { runs, bytes_before, bytes_after } = compacted.map_err(durable::Error::from)?;
    let (before, after) = (HumanBytes(bytes_before), HumanBytes(bytes_after));
    let words = format!("{} copied: {after} on disk, {before} before", counted(runs, "run", "runs"));
    screen.said(&json!({ "runs": runs, "bytes_before": bytes_before, "bytes_after": bytes_after }), words)?;
    Ok(Exit::Done)
}

pub(crate) fn doctor(screen: &Screen, store: &Path, accept_loss: bool) -> Result<Exit, Failed> {
    let how = if accept_loss { Open::AcceptLoss } else { Open::Whole };
    let mut findings: Vec<Finding> = Vec::new();
    let verified = Client::open_as(screen, store, how).and_then(|mut client| verify(&mut client, &mut findings));
    let Verified { runs, parked } = match verified {
        // A store that does not open is what a doctor is called for.
        Err(failed) if failed.code.as_deref() == Some("DUR-0031") => {
            findings.push(unusable(screen, failed));
            Verified::default()
        }
        verified => verified?,
    };
    if screen.json {
        screen.document(&json!({ "runs": runs, "findings": findings, "parked": parked }))?;
    } else {
        findings.iter().try_for_each(|finding| screen.line(told(finding)))?;
        let many = counted(runs, "run", "runs");
        screen.line(match findings.len() {
            0 => format!("{many} verified: {}", styled(GOOD, "nothing found")),
            n => format!("{many} verified: {}", styled(BAD, &counted(n as u64, "finding", "findings"))),
        })?;
        if parked > 0 {
            let (many, durable) = (counted(parked, "run cannot", "runs cannot"), &screen.durable);
            screen.line(format!(
                "{many} go on, whole as the store is: {durable} runs --status parked --status 'waiting for code' says why"
            ))?;
        }
    }
    Ok(if findings.is_empty() { Exit::Done } else { Exit::No })
}

/// What a doctor has seen.
#[derive(Default)]
struct Verified {
    runs: u64,
    /// Those of them that are parked, or wait for code.
    parked: u64,
}

fn verify(client: &mut Client, findings: &mut Vec<Finding>) -> Result<Verified, Failed> {
    let mut bar = Progress::new("runs verified");
    let done = client.each(Request::Doctor, |answer| {
        match answer {
            Answer::Finding(finding) => findings.push(finding),
            Answer::Progress { done, of } => bar.at(done, of),
            _ => {}
        }
        Ok(())
    })?;
    drop(bar);
    // A damaged run is parked too, and was found.
    let status = vec!["parked".to_owned(), "waiting for code".to_owned()];
    let mut parked = 0;
    client.each(Request::Runs(RunFilter { status, ..RunFilter::default() }), |answer| {
        if let Answer::Run(row) = answer
            && !findings.iter().any(|found| found.run.as_deref() == Some(&*row.run))
        {
            parked += 1;
        }
        Ok(())
    })?;
    Ok(Verified { runs: done.total.unwrap_or_default(), parked })
}

/// A store of which nothing can be read, and what can be done about it.
fn unusable(screen: &Screen, failed: Failed) -> Finding {
    let durable = &screen.durable;
    let next = match failed.loss {
        true => format!(
            "put a backup in its place; or, after copying the directory, open it as it is: {durable} doctor --accept-loss"
        ),
        false => "nothing can be read of it, and so nothing exported: put a backup of the directory in its place, or make a new store of \
                  the runs that were exported before: durable --store NEW import FILE"
            .to_owned(),
    };
    Finding { run: None, generation: None, seq: None, sort: "damaged".into(), what: failed.message, next }
}

fn told(finding: &Finding) -> String {
    let place = match (&finding.run, finding.generation, finding.seq) {
        (None, ..) => "the store".to_owned(),
        (Some(run), None | Some(0), None) => format!("run {}", clean(run)),
        (Some(run), None | Some(0), Some(seq)) => format!("run {}, seq {seq}", clean(run)),
        (Some(run), Some(generation), None) => format!("run {}, log {generation}", clean(run)),
        (Some(run), Some(generation), Some(seq)) => format!("run {}, log {generation}, seq {seq}", clean(run)),
    };
    format!(
        "{} {}: {}\n  {} {}",
        styled(BOLD, &place),
        styled(BAD, &clean(&finding.sort)),
        clean(&finding.what),
        styled(FAINT, "next:"),
        clean(&finding.next)
    )
}
