//! What a store holds, read without letting anything go on; and the replay check.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use durable::{
    Generation, RunId, Runtime, Seq,
    store::{About, Done, Record, Row, RunRecord, Store, StoreError, Write},
};
use serde_json::Value as Json;

use super::{
    frames,
    ledger::{MemoryLedger, World},
};

/// A store that is only looked at: it lists no run as unfinished, and takes no write, so that none goes on.
struct Frozen {
    store: Arc<dyn Store>,
    /// Never called.
    waiting: Mutex<Vec<Done>>,
}

impl Store for Frozen {
    fn about(&self) -> &About {
        self.store.about()
    }

    fn submit(&self, _: Write, done: Done) {
        self.waiting.lock().unwrap().push(done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        self.store.read(run, generation, from, most)
    }

    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError> {
        self.store.rows(run)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.store.run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        match live {
            Some(true) => Ok(Vec::new()),
            _ => self.store.runs(live, after, most),
        }
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The log of a run as the library shows it, each entry as JSON; empty if there is no such run.
pub(crate) async fn log_in(store: Arc<dyn Store>, run: &str) -> Vec<Json> {
    let world = World::new(MemoryLedger::default().of_a_process().0);
    let runtime =
        Runtime::builder().resource(world).open_store(Frozen { store, waiting: Mutex::default() }).await.unwrap();
    match runtime.run(run).await {
        Ok(run) => run.log().await.unwrap().iter().map(durable::LogEntry::to_json).collect(),
        Err(e) if e.is_not_found() => Vec::new(),
        Err(e) => panic!("{e:?}"),
    }
}

/// Passes everything on, and keeps the frames of what is appended.
struct Watching {
    inner: Arc<dyn Store>,
    appended: Arc<Mutex<Vec<Bytes>>>,
}

impl Store for Watching {
    fn about(&self) -> &About {
        self.inner.about()
    }

    fn submit(&self, write: Write, done: Done) {
        if let Write::Append(batch) = &write {
            self.appended.lock().unwrap().extend(frames::split(batch.frames.clone()));
        }
        self.inner.submit(write, done);
    }

    fn read(&self, run: &RunId, generation: Generation, from: Seq, most: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.read(run, generation, from, most)
    }

    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError> {
        self.inner.rows(run)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.run(run)
    }

    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        self.inner.runs(live, after, most)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

/// The replay check: the final log, without the entries that end the run, is given to the code again, in a world where
/// every body would be seen. The code must reach the same end; no body runs, and but for the end nothing is added.
pub(crate) async fn replays(store: &dyn Store, run: &str) -> Result<(), String> {
    let id = RunId::new(run).unwrap();
    let whole = frames::tape(store, &id);
    let end = whole.iter().position(|frame| frames::name(frame).starts_with("run.end"));
    let Some(end) = end else { return Err(format!("{run}: its log has no end")) };
    let ledger = MemoryLedger::default();
    let appended = Arc::new(Mutex::new(Vec::new()));
    let inner = Arc::new(frames::store_of(&id, &whole[..end]));
    let watching = Watching { inner: inner.clone(), appended: appended.clone() };
    let world = World::new(ledger.of_a_process().0);
    let builder = Runtime::builder().resource(world).unwanted_grace(Duration::ZERO);
    let runtime = builder.open_store(watching).await.map_err(|e| format!("{run}: {e:?}"))?;
    let again = runtime.run(run).await.map_err(|e| format!("{run}: {e:?}"))?;
    let ended = tokio::time::timeout(Duration::from_secs(60), again.returned_as::<durable::Result<String>>()).await;
    match ended {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => return Err(format!("{run}: the replay of its final log: {e:?}")),
        Err(_) => return Err(format!("{run}: the replay of its final log does not end: {:?}", again.status().await)),
    }
    if let Some(line) = ledger.lines().first() {
        return Err(format!("{run}: the replay of its final log ran a body: {line:?}"));
    }
    let added: Vec<_> = appended.lock().unwrap().iter().map(frames::name).collect();
    // A body that was under way when the code returned is now one of a dead process.
    if let Some(other) = added.iter().find(|name| !name.starts_with("run.end") && **name != "effect.in_doubt") {
        return Err(format!("{run}: the replay of its final log added {other}: {added:?}"));
    }
    let (before, after) = (end_of(&whole), end_of(&frames::tape(&*inner, &id)));
    match before == after {
        true => Ok(()),
        false => Err(format!("{run}: the replay of its final log ended in another way")),
    }
}

/// The terminal entry, without length, checksum and time.
fn end_of(tape: &[Bytes]) -> Option<Bytes> {
    tape.last().map(|frame| frame.slice(22..))
}
