//! What a durable step costs, beside what the disk takes for the same bytes in the same directory at the same time.
//!
//! `cargo bench --bench steps` prints a table and writes `target/steps.json`; `-- W1` measures only what has that in its name,
//! `-- --quick` with small sizes. Disks drift: compare ratios, and figures of one run only.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../measure/mod.rs"]
mod measure;

mod agents;
mod crash;
mod one;
mod replay;
mod speed;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Result, bail};
use measure::{
    part,
    table::{self, Row},
    tell,
    waiters::{self, Memory},
};

/// What is to be measured, and where.
pub(crate) struct Plan {
    filter: Option<String>,
    quick: bool,
    /// Stores and the disk's own file are in here.
    pub(crate) dir: PathBuf,
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match *args {
        ["part", "crash live", dir, steps] => crash::live(Path::new(dir), steps.parse()?),
        ["part", "crash reopen", dir] => crash::reopen(Path::new(dir)),
        ["part", "waiting", dir, runs] => tell(&waiters::start("signal", Path::new(dir), runs.parse()?)?),
        ["part", "empty", dir] => tell(&waiters::reopen(Path::new(dir))?),
        ref options => {
            let mut filters: Vec<_> = options.iter().filter(|option| **option != "--quick").collect();
            let filter = filters.pop().map(|filter| (*filter).to_owned());
            if !filters.is_empty() || filter.as_ref().is_some_and(|filter| filter.starts_with('-')) {
                bail!("there are one part of a name, and --quick");
            }
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
            report(&Plan { filter, quick: options.contains(&"--quick"), dir: dir.path().to_path_buf() })
        }
    }
}

type Workload<'a> = (&'a str, Box<dyn Fn() -> Result<Vec<Row>> + 'a>);

fn report(plan: &Plan) -> Result<()> {
    let began = Instant::now();
    let size = |full: u64, quick: u64| if plan.quick { quick } else { full };
    let rounds = if plan.quick { 2 } else { 5 };
    let speed = |keyed, runs, steps| move || speed::measure(plan, keyed, runs, steps, rounds);
    let mut workloads: Vec<Workload<'_>> = vec![
        ("W1r", Box::new(speed(false, 1, 1_000))),
        ("W1r", Box::new(speed(false, 1, size(20_000, 5_000)))),
        ("W1k", Box::new(speed(true, 1, size(1_000, 200)))),
        ("W2r", Box::new(speed(false, speed::RUNS, 100))),
        ("W2k", Box::new(speed(true, speed::RUNS, 100))),
        ("W3", Box::new(|| crash::measure(plan, if plan.quick { &[1_000, 10_000] } else { &[10_000, 100_000] }))),
        ("W4", Box::new(move || one::measure(plan, false, size(300, 50) as usize))),
        ("W4", Box::new(move || one::measure(plan, true, size(300, 50) as usize))),
        ("W5", Box::new(move || waits(plan, size(10_000, 1_000) as usize))),
        ("W6", Box::new(move || replay::measure(size(100_000, 10_000), false, rounds))),
        ("W6", Box::new(move || replay::measure(10_000, true, rounds))),
    ];
    if !plan.quick {
        workloads.insert(4, ("W2r", Box::new(speed(false, speed::RUNS, 2_000))));
        workloads.insert(6, ("W2k", Box::new(speed(true, speed::RUNS, 2_000))));
    }
    let mut rows = Vec::new();
    for (name, measure) in workloads {
        if plan.filter.as_ref().is_none_or(|filter| name.contains(&**filter)) {
            eprintln!("{:.0} s: {name}", began.elapsed().as_secs_f64());
            rows.extend(measure()?);
        }
    }
    table::print(&rows);
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("steps.json");
    table::write(&rows, &to)?;
    eprintln!("{:.0} s; W7, what the attributes cost: cargo bench --bench macro_cost", began.elapsed().as_secs_f64());
    Ok(())
}

/// W5: runs that wait, in a process of their own.
fn waits(plan: &Plan, runs: usize) -> Result<Vec<Row>> {
    let place = |name| speed::Place::new(&plan.dir, name);
    let (empty, waiting) = (place("empty")?, place("waiting")?);
    let base: Memory = part(&[&"empty", &empty.path().display()])?;
    // All of these are in memory at a time before the first of them leaves it, and malloc keeps what they needed.
    let few = runs / 5;
    let of_few: Memory = part(&[&"waiting", &waiting.path().display(), &few])?;
    fs::remove_dir_all(waiting.path())?;
    let memory: Memory = part(&[&"waiting", &waiting.path().display(), &runs])?;
    fs::remove_dir_all(waiting.path())?;
    let each = memory.bytes.saturating_sub(of_few.bytes) as f64 / (runs - few) as f64;
    let first = of_few.bytes.saturating_sub(base.bytes) as f64 / 1e6;
    let started = format!("from the first start until all are durable; {:.2} s until all are released", memory.seconds);
    let note = format!("resident, of each beyond the first {few}, which took {first:.1} MB more than an empty store");
    Ok(vec![
        Row::new(format!("W5 {runs} runs that wait"), memory.started, "s").durability("full").note(started),
        Row::new("  memory of each", each, "bytes").note(note),
    ])
}
