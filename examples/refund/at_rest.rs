//! Looks at a run of a store that no process has open, without going on with it.

use std::{path::Path, time::Duration};

use durable::{LogEntry, Runtime};

/// A run's log as it is on disk.
#[tokio::main]
pub(crate) async fn log(store: &Path, run: &str) -> anyhow::Result<Vec<LogEntry>> {
    let runtime = Runtime::builder().observe(store).await?;
    let log = runtime.run(run).await?.log().await?;
    runtime.shutdown(Duration::ZERO).await?;
    Ok(log)
}
