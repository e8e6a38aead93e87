//! What waiting costs: memory per run, the time to wake one, timers that are due at one instant, and what is done meanwhile.
//!
//! `cargo bench --bench waiting` prints a table; `-- --runs 1000 --timers 100` is a quick look. Each part is a process of its
//! own, on a sled store in the target directory.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../tests/common/counting.rs"]
mod counting;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use counting::{Counting, replayed};
use durable::{
    Durability, Runtime, TestClock,
    store::sled::{SledOptions, SledStore},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How many runs are woken one after the other.
const WAKES: usize = 200;
/// How long nothing is done.
const IDLE: Duration = Duration::from_secs(5);
/// How many runs are started at a time.
const AT_ONCE: usize = 1_000;
/// What 100,000 waiting runs may cost.
const BYTES_MAX: f64 = 100e6;

/// When the body of each effect began, and its argument.
static BEGUN: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());
static MORE: Notify = Notify::const_new();

/// Waits until so many bodies have begun, and takes them.
async fn bodies(count: usize) -> Result<Vec<(u64, Instant)>> {
    loop {
        let more = MORE.notified();
        if let Ok(mut begun) = BEGUN.lock()
            && begun.len() >= count
        {
            return Ok(std::mem::take(&mut *begun));
        }
        more.await;
    }
}

#[durable::effect(read_only)]
async fn look(n: u64) {
    note(n);
}

#[durable::effect(idempotent)]
async fn act(n: u64) {
    note(n);
}

fn note(n: u64) {
    if let Ok(mut begun) = BEGUN.lock() {
        begun.push((n, Instant::now()));
    }
    MORE.notify_one();
}

/// Waits for a signal that says which effect to call.
#[durable::workflow]
async fn awaits(n: u64) {
    match durable::signal::<bool>("go").await {
        true => act(n).await,
        false => look(n).await,
    }
}

/// Waits for a day.
#[durable::workflow]
async fn sleeps(n: u64) {
    durable::sleep(DAY).await;
    look(n).await;
}

/// What a process that holds a store measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Memory {
    bytes: u64,
    bytes_at_most: u64,
    seconds: f64,
}

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

fn tell(measured: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(measured)?);
    Ok(())
}

/// Has a part measured by a process of its own.
fn part<T: DeserializeOwned>(args: &[&dyn Display]) -> Result<T> {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let out = Command::new(env::current_exe()?).arg("part").args(&args).output()?;
    ensure!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).with_context(|| format!("{args:?}: {}", String::from_utf8_lossy(&out.stdout)))
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

/// Resident memory, now and at most.
fn resident() -> Result<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").context("this bench reads /proc")?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

fn memory(since: Instant) -> Result<Memory> {
    let (bytes, bytes_at_most) = resident()?;
    Ok(Memory { bytes, bytes_at_most, seconds: since.elapsed().as_secs_f64() })
}

async fn start_all(runtime: &Runtime, what: &str, runs: usize) -> Result<()> {
    let (mut starts, permits) = (JoinSet::new(), std::sync::Arc::new(Semaphore::new(AT_ONCE)));
    for n in 0..runs as u64 {
        let permit = permits.clone().acquire_owned().await?;
        let (runtime, what) = (runtime.clone(), what.to_owned());
        starts.spawn(async move {
            let _permit = permit;
            match what.as_str() {
                "signal" => runtime.start(format!("run-{n}"), awaits(n)).await.map(drop),
                _ => runtime.start(format!("run-{n}"), sleeps(n)).await.map(drop),
            }
        });
        while let Some(started) = starts.try_join_next() {
            started??;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    Ok(())
}

#[tokio::main]
async fn start(what: &str, dir: &Path, runs: usize) -> Result<Memory> {
    let store = Counting::new(SledStore::open(dir, SledOptions::new())?);
    // What a list would keep is no part of it.
    store.keep_no_list();
    let runtime = Runtime::builder().open_store(store.clone()).await?;
    let began = Instant::now();
    start_all(&runtime, what, runs).await?;
    store.have_gone_to_wait(runs).await;
    let memory = memory(began)?;
    runtime.shutdown(Duration::ZERO).await?;
    Ok(memory)
}

#[tokio::main]
async fn reopen(dir: &Path) -> Result<Memory> {
    let began = Instant::now();
    let runtime = Runtime::builder().open(dir).await?;
    let memory = memory(began)?;
    runtime.shutdown(Duration::ZERO).await?;
    Ok(memory)
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
        sync: raw_sync(dir)?,
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

/// The median of what the disk alone takes.
fn raw_sync(dir: &Path) -> Result<f64> {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.with_extension("raw"))?;
    let mut times = Vec::new();
    for _ in 0..WAKES {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    let times = sorted(times);
    Ok(micros(times[times.len() / 2]))
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

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort();
    times
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
