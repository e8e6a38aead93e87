//! A log, entry by entry, as far as it is durable, and on as it grows.

use std::time::Duration;

use super::{Answer, Done, Out, PAGE_BYTES, Stop};
use crate::{
    error::{Error, Kind},
    id::{Generation, RunId},
    runtime::Runtime,
    store::Dump,
    view::{LogEntry, LogReader},
    worker::key_prefix,
};

/// How often a log that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Says a run's entries from a place on; `follow`: until the run has ended, over its fresh logs too.
pub(super) async fn log(
    runtime: &Runtime,
    run: &str,
    generation: Option<Generation>,
    from: u64,
    follow: bool,
    out: &Out,
) -> Result<Done, Stop> {
    let run = runtime.run(run).await?;
    let newest = Generation(run.generations().await?.saturating_sub(1));
    let mut generation = generation.unwrap_or(newest);
    if generation > newest {
        return Err(Error::from(Kind::LogNotFound { run: run.id().clone(), log: generation, newest }).into());
    }
    let mut from = from;
    let mut reader = run.log_reader(generation);
    loop {
        let entries = run.log_page(&mut reader, generation, PAGE_BYTES).await?;
        let caught_up = entries.is_empty();
        let mut last = None;
        for entry in entries {
            if entry.seq.0 >= from {
                let (generation, entry) = (generation.0, entry.to_json());
                out.say(Answer::Entry { generation, entry }).await?;
            }
            last = Some(entry.name);
        }
        match last {
            Some("run.restarted") if follow => {
                generation.0 += 1;
                from = 0;
                reader = run.log_reader(generation);
            }
            Some("run.completed" | "run.failed" | "run.cancelled" | "run.restarted") => break,
            _ if !caught_up => {}
            // Where nobody goes on with it, nothing comes.
            _ if follow && !runtime.shared().observing => {
                tokio::time::sleep(LOOK_EVERY).await;
                // It may have been removed.
                run.generations().await?;
            }
            _ => break,
        }
    }
    Ok(Done { seq: Some(reader.next().0.max(from)), ..Done::default() })
}

fn reader(runtime: &Runtime, run: &RunId, generation: Generation) -> LogReader {
    let shared = runtime.shared();
    LogReader::new(run.clone(), shared.store.about().place.clone(), key_prefix(shared, run, generation))
}

/// All entries of all logs of a run.
pub(super) fn whole(runtime: &Runtime, run: &RunId, dump: &Dump) -> Result<Vec<LogEntry>, Error> {
    let mut all = Vec::new();
    for (generation, records) in &dump.logs {
        all.extend(reader(runtime, run, *generation).read(records.clone(), u64::MAX)?);
    }
    Ok(all)
}
