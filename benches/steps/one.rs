//! W4: from the start of a run with one step to its output.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use durable::{
    Runtime,
    store::sled::{SledOptions, SledStore},
};

use crate::{
    Plan,
    agents::{acts, looks},
    measure::{median, micros, raw, sorted, table::Row},
    speed::Place,
};

#[tokio::main]
pub(crate) async fn measure(plan: &Plan, keyed: bool, runs: usize) -> Result<Vec<Row>> {
    let place = Place::new(&plan.dir, "one")?;
    let store = Arc::new(SledStore::open(place.path(), SledOptions::new())?);
    let runtime = Runtime::builder().open_store(store.clone()).await?;
    // The first ones pay for what is made once.
    let warm_up = 20;
    let (mut times, mut acknowledged, mut raws, mut before) = (Vec::new(), Vec::new(), Vec::new(), store.counts());
    for n in 0..runs + warm_up {
        if n == warm_up {
            (times, acknowledged, raws, before) = (Vec::new(), Vec::new(), Vec::new(), store.counts());
        }
        let call = if keyed { acts(1) } else { looks(1) };
        let began = Instant::now();
        let run = runtime.start(format!("run-{n}"), call).await?;
        acknowledged.push(began.elapsed());
        run.returned().await?;
        times.push(began.elapsed());
        // One sync of the disk beside each.
        raws.push(raw::sync_micros(&plan.dir, 300, 1)?);
    }
    let syncs = (store.counts().commits - before.commits) as f64 / runs as f64;
    let durability = runtime.durability();
    runtime.shutdown(Duration::ZERO).await?;
    let (times, acknowledged) = (sorted(times), sorted(acknowledged));
    let at = |times: &[Duration], percent: usize| micros(times[(times.len() - 1) * percent / 100]);
    let raw = median(raws);
    let name = format!("W4 one {} step", if keyed { "keyed" } else { "read_only" });
    let note =
        format!("p50 of {runs}; p99 {:.0} us; start acknowledged at {:.0} us", at(&times, 99), at(&acknowledged, 50));
    let p50 = at(&times, 50);
    let row = Row::new(name, p50, "us").durability(durability).raw(raw, p50 / raw);
    Ok(vec![row.syncs(syncs).note(note)])
}
