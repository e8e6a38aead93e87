//! W3: a run of many steps whose process is killed, and how long the next process needs until it asks for the next step.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    time::Instant,
};

use anyhow::{Result, ensure};
use durable::{
    Runtime,
    store::sled::{SledOptions, SledStore},
};
use serde::{Deserialize, Serialize};

use crate::{
    Plan,
    agents::{dies, passed},
    measure::{median, part, part_command, resident, table::Row, tell},
    speed::Place,
};

/// A run may be begun again and again, but an effect that kills its process each time is given up.
const TIMES: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
struct Reopened {
    open_ms: f64,
    /// From the open store to the code's asking for the step after the last one that is done.
    asked_ms: f64,
    bytes: u64,
    durability: String,
}

/// The process that is killed.
#[tokio::main]
pub(crate) async fn live(dir: &Path, steps: u64) -> Result<()> {
    let runtime = Runtime::builder().log_entries_warn(u64::MAX).open(dir).await?;
    runtime.start("long", dies(steps)).await?.returned().await?;
    Ok(())
}

/// The process after it, which ends as abruptly.
#[tokio::main]
pub(crate) async fn reopen(dir: &Path) -> Result<()> {
    let began = Instant::now();
    let store = SledStore::open(dir, SledOptions::new())?;
    let opened = Instant::now();
    let (before, _) = resident()?;
    let runtime = Runtime::builder().log_entries_warn(u64::MAX).open_store(store).await?;
    let asked = passed(1).await[0].at;
    let (_, most) = resident()?;
    let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
    tell(&Reopened {
        open_ms: ms(began, opened),
        asked_ms: ms(opened, asked),
        bytes: most.saturating_sub(before),
        durability: runtime.durability().to_string(),
    })?;
    std::process::exit(0)
}

pub(crate) fn measure(plan: &Plan, sizes: &[u64]) -> Result<Vec<Row>> {
    let (mut rows, mut first) = (Vec::new(), None);
    for &steps in sizes {
        let place = Place::new(&plan.dir, "crash")?;
        let dir = place.path().display().to_string();
        let mut child = part_command(&[&"crash live", &dir, &steps])?.spawn()?;
        let mut line = String::new();
        let said = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line)).transpose();
        // SIGKILL.
        child.kill()?;
        child.wait()?;
        said?;
        ensure!(line == "begun\n", "the run has ended before it was killed");
        let mut opened = Vec::new();
        for _ in 0..TIMES {
            opened.push(part::<Reopened>(&[&"crash reopen", &dir])?);
        }
        let of = |figure: fn(&Reopened) -> f64| median(opened.iter().map(figure));
        let (asked, open, bytes) = (of(|r| r.asked_ms), of(|r| r.open_ms), of(|r| r.bytes as f64));
        eprintln!("W3 {steps} steps: {asked:.1} ms");
        let mut note = format!("beyond the open, which took {open:.1} ms; memory +{:.1} MB at most", bytes / 1e6);
        match first {
            None => first = Some(asked),
            Some(first) => note += &format!("; {:.1} x that of {} steps", asked / first, sizes[0]),
        }
        let name = format!("W3 {steps} steps, killed");
        rows.push(Row::new(name, asked, "ms").durability(&opened[0].durability).note(note));
    }
    Ok(rows)
}
