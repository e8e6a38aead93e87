//! What waiting costs: memory per run, the time to wake one, timers that are due at one instant, and what is done meanwhile.
//!
//! `cargo bench --bench waiting` prints a table; `-- --runs 1000 --timers 100` is a quick look. Each part is a process of its
//! own, on a sled store in the target directory.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod measure;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use durable::{
    Durability, Runtime, TestClock,
    store::sled::{SledOptions, SledStore},
};
use measure::{
    counting::{Counting, replayed},
    micros, part, raw, sorted, tell,
    waiters::{DAY, Memory, awaits, bodies, reopen, start, start_all},
};
use serde::{Deserialize, Serialize};

/// How many runs are woken one after the other.
const WAKES: usize = 200;
/// How long nothing is done.
const IDLE: Duration = Duration::from_secs(5);
/// What 100,000 waiting runs may cost.
const BYTES_MAX: f64 = 100e6;

#[derive(Debug, Serialize, Deserialize)]
struct Wakes {
    durability: String,
    /// Median microseconds.
    sync: f64,
    look: f64,
    act: f64,
    act_slowest: f64,
    replayed: usize,
    others: usize,
    idle_operations: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Due {
    /// Milliseconds after the instant.
    first: f64,
    half: f64,
    last: f64,
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match *args {
        ["part", "start", what, dir, runs] => tell(&start(what, Path::new(dir), runs.parse()?)?),
        ["part", "reopen", dir] => tell(&reopen(Path::new(dir))?),
        ["part", "wakes", dir, runs] => tell(&wakes(Path::new(dir), runs.parse()?)?),
        ["part", "due", dir, timers] => tell(&due(Path::new(dir), timers.parse()?)?),
        ref options => {
            let mut sizes = BTreeMap::from([("--runs", 100_000), ("--timers", 10_000)]);
            for option in options.chunks(2) {
                let (&[name, value], true) = (option, true) else { bail!("{option:?} has no value") };
                *sizes.get_mut(name).with_context(|| format!("there are --runs and --timers, not {name}"))? =
                    value.parse()?;
            }
            report(sizes["--runs"], sizes["--timers"])
        }
    }
}

/// Measures all of it, and prints the table.
fn report(runs: usize, timers: usize) -> Result<()> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let place = |name: &str| dir.path().join(name).display().to_string();
    let base: Memory = part(&[&"reopen", &place("empty")])?;
    let mut rows = Vec::new();
    let above = |memory: &Memory| (memory.bytes.saturating_sub(base.bytes)) as f64;
    let mib = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    rows.push(["resident, an empty store".to_owned(), mib(base.bytes as f64), String::new()]);
    for what in ["signal", "sleep"] {
        let started: Memory = part(&[&"start", &what, &place(what), &runs])?;
        let reopened: Memory = part(&[&"reopen", &place(what)])?;
        for (when, memory) in [("started", &started), ("store reopened", &reopened)] {
            let bytes = above(memory);
            let name = format!("{runs} runs wait ({what}), {when} in {:.1} s", memory.seconds);
            let each = format!("{:.0} bytes a run; {:.2} of 100 MB", bytes / runs as f64, bytes / BYTES_MAX);
            rows.push([name, format!("+{}", mib(bytes)), each]);
            let most = memory.bytes_at_most.saturating_sub(base.bytes) as f64;
            rows.push(["  at most, meanwhile".to_owned(), format!("+{}", mib(most)), String::new()]);
        }
    }
    let wakes: Wakes = part(&[&"wakes", &place("signal"), &runs])?;
    let due: Due = part(&[&"due", &place("due"), &timers])?;
    let us = |us: f64| format!("{us:.0} us");
    let syncs = |us: f64| format!("{:.2} raw syncs", us / wakes.sync);
    rows.push(["raw sync: 4 KiB appended, fdatasync".to_owned(), us(wakes.sync), "1 raw sync (median)".to_owned()]);
    rows.push(["signal to the body of a read_only effect".to_owned(), us(wakes.look), syncs(wakes.look)]);
    rows.push(["signal to the body of an idempotent effect".to_owned(), us(wakes.act), syncs(wakes.act)]);
    rows.push(["  the slowest of them".to_owned(), us(wakes.act_slowest), syncs(wakes.act_slowest)]);
    rows.push([format!("runs replayed when 1 of {runs} wakes"), wakes.replayed.to_string(), "1 is all".to_owned()]);
    rows.push(["store operations about the others".to_owned(), wakes.others.to_string(), "0 is all".to_owned()]);
    let idle = format!("store operations in {} s, {runs} runs waiting", IDLE.as_secs());
    rows.push([idle, wakes.idle_operations.to_string(), "0 is all".to_owned()]);
    for (which, at) in [("first", due.first), ("half", due.half), ("last", due.last)] {
        let name = format!("{timers} timers due at one instant: the {which} goes on");
        let ratio = match which {
            "last" => format!("{:.2} raw syncs a run", at * 1e3 / timers as f64 / wakes.sync),
            _ => syncs(at * 1e3),
        };
        rows.push([name, format!("{at:.1} ms"), ratio]);
    }
    println!("sled, durability {}, one sync per group of commits", wakes.durability);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let (name, figure) = (width(0), width(1));
    rows.iter().for_each(|[a, b, c]| println!("{a:<name$}  {b:>figure$}  {c}"));
    Ok(())
}

#[tokio::main]
async fn wakes(dir: &Path, runs: usize) -> Result<Wakes> {
    let store = Counting::new(SledStore::open(dir, SledOptions::new())?);
    let runtime = Runtime::builder().open_store(store.clone()).await?;
    store.take();
    tokio::time::sleep(IDLE).await;
    let idle_operations = store.take().len();

    // Every run is woken once: one for the counts, the others for the time.
    let wakes = WAKES.min((runs - 1) / 2);
    let ids = (0..=2 * wakes).map(|i| (i * (runs / (2 * wakes + 1))) as u64).collect::<Vec<_>>();
    runtime.signal(format!("run-{}", ids[0]), "go", &true).await?;
    runtime.start(format!("run-{}", ids[0]), awaits(ids[0])).await?.returned().await?;
    let asked = store.take();
    let woken = format!("run-{}", ids[0]);
    let others = asked.iter().filter(|(_, run)| run.as_ref().is_none_or(|run| run.as_str() != woken)).count();
    let mut times = [Vec::new(), Vec::new()];
    bodies(1).await?;
    for (i, n) in ids[1..].iter().enumerate() {
        let outward = i % 2 == 1;
        let began = Instant::now();
        runtime.signal(format!("run-{n}"), "go", &outward).await?;
        let bodies = bodies(1).await?;
        times[usize::from(outward)].push(bodies[0].1.saturating_duration_since(began));
        // Until it has ended, it has the store to do with.
        runtime.start(format!("run-{n}"), awaits(*n)).await?.returned().await?;
    }
    let durability = runtime.durability();
    runtime.shutdown(Duration::ZERO).await?;
    let [looks, acts] = times.map(sorted);
    Ok(Wakes {
        durability: name(durability),
        sync: raw::sync_micros(dir.parent().unwrap_or(dir), 4096, WAKES)?,
        look: micros(looks[looks.len() / 2]),
        act: micros(acts[acts.len() / 2]),
        act_slowest: micros(acts[acts.len() - 1]),
        replayed: replayed(&asked).len(),
        others,
        idle_operations,
    })
}

fn name(durability: Durability) -> String {
    durability.to_string()
}

#[tokio::main]
async fn due(dir: &Path, timers: usize) -> Result<Due> {
    let clock = TestClock::at(DAY);
    let store = Counting::new(SledStore::open(dir, SledOptions::new())?);
    let builder = Runtime::builder().clock(clock.clone()).evict_after(Duration::ZERO);
    let runtime = builder.open_store(store.clone()).await?;
    start_all(&runtime, "sleep", timers).await?;
    store.have_gone_to_wait(timers).await;
    let instant = Instant::now();
    clock.advance(DAY);
    let bodies = bodies(timers).await?;
    runtime.shutdown(Duration::ZERO).await?;
    let woken: BTreeSet<u64> = bodies.iter().map(|(n, _)| *n).collect();
    ensure!(woken.len() == timers && bodies.len() == timers, "each was to go on once");
    let times = sorted(bodies.iter().map(|(_, at)| at.saturating_duration_since(instant)).collect());
    let ms = |at: usize| micros(times[at]) / 1e3;
    Ok(Due { first: ms(0), half: ms(timers / 2), last: ms(timers - 1) })
}
