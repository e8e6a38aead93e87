//! W6: replay alone, the log in memory.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use durable::{Runtime, store::memory::MemoryStore};
use tokio::time::timeout;

use crate::{
    agents::{PATIENCE, passed, remembers},
    measure::{counting::Counting, median, table::Row},
};

#[tokio::main]
pub(crate) async fn measure(steps: u64, at_once: bool, rounds: usize) -> Result<Vec<Row>> {
    let store = Counting::new(Arc::new(MemoryStore::new()));
    store.keep_no_list();
    let builder = Runtime::builder().evict_after(Duration::ZERO).log_entries_warn(u64::MAX);
    let runtime = builder.open_store(store.clone()).await?;
    let run = runtime.start("long", remembers(steps, at_once)).await?;
    passed(2).await;
    let (mut replays, mut busy, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
    for nth in 1..=rounds {
        timeout(PATIENCE, store.have_gone_to_wait(nth)).await?;
        let sent = std::time::Instant::now();
        run.signal("go", &()).await?;
        // The beginning, the end of the steps, each signal before, and this one.
        let passed = passed(2 + nth).await;
        replays.push(passed[1].at.duration_since(passed[0].at).as_secs_f64());
        busy.push(passed[1].processor.saturating_sub(passed[0].processor).as_secs_f64());
        wakes.push(passed[1 + nth].at.duration_since(sent).as_secs_f64());
    }
    runtime.shutdown(Duration::ZERO).await?;
    let (replay, busy, wake) = (median(replays), median(busy), median(wakes));
    let durability = runtime.durability();
    let signal = format!("{:.1} ms from a signal to what the code does then", wake * 1e3);
    let (row, of_processor) = match at_once {
        true => (Row::new(format!("W6 join_all over {steps}, replayed"), replay * 1e3, "ms"), busy * 1e3),
        false => {
            (Row::new(format!("W6 {steps} steps replayed"), steps as f64 / replay, "steps/s"), steps as f64 / busy)
        }
    };
    let note = format!("{of_processor:.1} if the processor were its own; {signal}; median of {rounds}");
    Ok(vec![row.durability(durability).note(note)])
}
