//! Looks at a run of a store that no process has open, without going on with it.

use std::{path::Path, time::Duration};

use durable::{
    Generation, LogEntry, RunId, Seq, StoreError,
    store::{
        About, Done, Record, Row, RunRecord, Store, Write,
        sled::{SledOptions, SledStore},
    },
};

use crate::{agent, gateway::Gateway, model::Model};

/// A store that calls no run unfinished, so that a runtime that opens it goes on with none.
struct AtRest(SledStore);

fn at_rest(mut record: RunRecord) -> RunRecord {
    record.head.live = false;
    record
}

impl Store for AtRest {
    fn runs(
        &self,
        live: Option<bool>,
        after: Option<&RunId>,
        most: usize,
    ) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        let runs = if live == Some(true) { Vec::new() } else { self.0.runs(None, after, most)? };
        Ok(runs.into_iter().map(|(id, record)| (id, at_rest(record))).collect())
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.0.run(run)?.map(at_rest))
    }

    fn about(&self) -> &About {
        self.0.about()
    }

    fn submit(&self, write: Write, done: Done) {
        self.0.submit(write, done);
    }

    fn read(
        &self,
        run: &RunId,
        generation: Generation,
        from: Seq,
        bytes_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.0.read(run, generation, from, bytes_max)
    }

    fn rows(&self, run: &RunId) -> Result<Vec<Row>, StoreError> {
        self.0.rows(run)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.0.close()
    }
}

/// A run's log as it is on disk.
#[tokio::main]
pub(crate) async fn log(store: &Path, run: &str) -> anyhow::Result<Vec<LogEntry>> {
    let store = AtRest(SledStore::open(store, SledOptions::new())?);
    // A runtime needs the resources of its effects, though it will run none of them.
    let runtime = agent::runtime(Gateway::new("nowhere"), Model::Scripted).open_store(store).await?;
    let log = runtime.run(run).await?.log().await?;
    runtime.shutdown(Duration::ZERO).await?;
    Ok(log)
}
