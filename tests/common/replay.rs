//! What a store holds, read without letting anything go on; and the replay check.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use durable::{
    Filter, Runtime, Status, StoreError,
    store::{Done, RunRecord, Store, Write, Written},
};

use super::{
    check::{Runs, Seen},
    frames,
    ledger::{MemoryLedger, World},
    pass_on::pass_on,
    tape::{Image, Tape},
};

/// A store that is only looked at: it lists no run as unfinished, and takes no write, so that none goes on.
struct Frozen {
    store: Arc<dyn Store>,
    /// Never called.
    waiting: Mutex<Vec<Done>>,
}

impl Store for Frozen {
    pass_on!(store: about, read, rows, published, dump, run);

    fn submit(&self, write: Write, done: Done) {
        match write {
            Write::Barrier => done(Ok(Written::Done)),
            _ => self.waiting.lock().unwrap().push(done),
        }
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&durable::RunId>,
        most: usize,
    ) -> Result<Vec<(durable::RunId, RunRecord)>, StoreError> {
        match live {
            Some(true) => Ok(Vec::new()),
            _ => self.store.runs(live, after, most),
        }
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// All runs of a store, as the library shows them.
pub(crate) async fn runs_in(store: Arc<dyn Store>) -> Runs {
    let world = World::new(MemoryLedger::default().of_a_process().0);
    let frozen = Frozen { store, waiting: Mutex::default() };
    let runtime = Runtime::builder().resource(world).open_store(frozen).await.unwrap();
    let mut runs = Runs::new();
    for info in runtime.runs(Filter::all()).await.unwrap() {
        let run = runtime.run(info.id.as_str()).await.unwrap();
        let mut seen = Seen::default();
        for n in 0..run.generations().await.unwrap() {
            let log = run.log_of(n).await.unwrap();
            seen.logs.push(log.iter().map(durable::LogEntry::to_json).collect());
        }
        let unread = run.messages().await.unwrap();
        seen.unread = unread.into_iter().map(|message| (message.name, message.value)).collect();
        runs.insert(info.id.to_string(), seen);
    }
    runs
}

/// Passes everything on but the batch that ends a log: that is kept, and whoever appends it has lost the run.
struct Watching {
    inner: Image,
    appended: Arc<Mutex<Vec<Bytes>>>,
}

impl Store for Watching {
    pass_on!(inner);

    fn submit(&self, write: Write, done: Done) {
        let ends = frames::names(&write).contains(&"run.ended");
        if let Write::Append(batch) = &write {
            self.appended.lock().unwrap().extend(frames::split(batch.frames.clone()));
        }
        match ends {
            true => done(Err(StoreError::Fenced)),
            false => self.inner.submit(write, done),
        }
    }
}

/// The replay check: each log of the run, without its terminal entry, is given to the code again, in a world where
/// every body would be seen. The code must reach the same end; no body runs, and but for the end nothing is added.
pub(crate) async fn replays(store: &dyn Store, run: &str) -> Result<(), String> {
    let Some(tape) = Tape::of(store, run) else { return Err(format!("{run}: there is no such run")) };
    for log in 0..tape.logs() {
        replays_log(&tape, log).await.map_err(|what| format!("{run}, log {log}: the replay {what}"))?;
    }
    Ok(())
}

async fn replays_log(tape: &Tape, log: usize) -> Result<(), String> {
    let whole = tape.frames(log);
    let Some((end, rest)) = whole.split_last().filter(|(end, _)| frames::name(end) == "run.ended") else {
        return Err("has no end to reach".to_owned());
    };
    replays_to(tape, log, rest, end).await
}

/// The same for these entries, and this end.
pub(crate) async fn replays_to(tape: &Tape, log: usize, rest: &[Bytes], end: &Bytes) -> Result<(), String> {
    let (ledger, appended) = (MemoryLedger::default(), Arc::new(Mutex::new(Vec::new())));
    let watching = Watching { inner: tape.with(log, rest), appended: appended.clone() };
    let world = World::new(ledger.of_a_process().0);
    let builder = Runtime::builder().resource(world).cancel_grace(Duration::ZERO).settle(Duration::ZERO);
    let runtime = builder.open_store(watching).await.map_err(|e| format!("does not open: {e:?}"))?;
    let again = runtime.run(tape.run.as_str()).await.map_err(|e| format!("finds no run: {e:?}"))?;
    let ended = async {
        loop {
            if appended.lock().unwrap().iter().any(|frame| frames::name(frame) == "run.ended") {
                return Ok(());
            }
            if let Some(line) = ledger.lines().first() {
                return Err(format!("ran a body: {line:?}"));
            }
            if let Ok(Status::Parked(parked)) = again.status().await {
                return Err(format!("is parked: {}", parked.why));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    };
    match tokio::time::timeout(Duration::from_secs(60), ended).await {
        Ok(ended) => ended?,
        Err(_) => return Err(format!("does not end: {:?}", again.status().await)),
    }
    let added = appended.lock().unwrap().clone();
    let names: Vec<_> = added.iter().map(frames::name).collect();
    // A body that was under way when the code returned is now one of a dead process.
    if let Some(other) = names.iter().find(|name| !name.starts_with("run.end") && **name != "effect.in_doubt") {
        return Err(format!("added {other}: {names:?}"));
    }
    // Without length, checksum and time.
    match added.last().is_some_and(|again| again[22..] == end[22..]) {
        true => Ok(()),
        false => Err("ended in another way".to_owned()),
    }
}
