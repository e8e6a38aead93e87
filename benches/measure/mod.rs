//! What the benchmarks share: parts in processes of their own, the disk by itself, memory, and tables.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

#[path = "../../tests/common/counting.rs"]
pub(crate) mod counting;
pub(crate) mod raw;
pub(crate) mod table;
pub(crate) mod waiters;

use std::{
    env,
    fmt::Display,
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde::{Serialize, de::DeserializeOwned};

/// Says what a part has measured.
pub(crate) fn tell(measured: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(measured)?);
    Ok(())
}

/// This benchmark again, to do one part.
pub(crate) fn part_command(args: &[&dyn Display]) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("part").args(args.iter().map(ToString::to_string)).stdout(Stdio::piped());
    Ok(command)
}

/// Has a part measured by a process of its own.
pub(crate) fn part<T: DeserializeOwned>(args: &[&dyn Display]) -> Result<T> {
    let out = part_command(args)?.stderr(Stdio::piped()).output()?;
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    ensure!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).with_context(|| format!("{args:?}: {}", String::from_utf8_lossy(&out.stdout)))
}

/// Resident memory, now and at most.
pub(crate) fn resident() -> Result<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").context("this bench reads /proc")?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// How long the threads that this process has now have had a processor: what others do at the same time is no part of it.
pub(crate) fn processor() -> Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task").context("this bench reads /proc")? {
        // A thread may have ended meanwhile.
        let stat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The middle one, and the lowest and highest.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort();
    times
}
