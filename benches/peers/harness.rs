//! What the Rust harnesses share: what is asked of them, and the lines of JSON in which they say what they measured.

#![allow(dead_code, reason = "not every harness needs all of it")]

use std::{
    env, fs, future, process,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::task::JoinSet;

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How many runs are started at a time in W5.
const AT_ONCE: usize = 64;
/// How long the waiting runs are left alone before memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// What the arguments ask for; `Load` is W3 until the process is killed, `GoOn` what comes after.
pub enum Ask {
    W1 { steps: u64 },
    W2 { runs: usize, steps: u64 },
    Load { steps: u64 },
    GoOn,
    W4 { runs: usize },
    W5 { runs: usize },
}

/// Reads `w1 STEPS`, `w2 RUNS STEPS`, `load STEPS`, `go-on`, `w4 RUNS` or `w5 RUNS` from the end of the arguments, after `before` others.
pub fn asked(before: usize) -> Outcome<Ask> {
    let args: Vec<String> = env::args().skip(1 + before).collect();
    let number = |at: usize| -> Outcome<u64> { Ok(args.get(at).ok_or("an argument is missing")?.parse()?) };
    Ok(match args.first().map(String::as_str) {
        Some("w1") => Ask::W1 { steps: number(1)? },
        Some("w2") => Ask::W2 { runs: number(1)? as usize, steps: number(2)? },
        Some("load") => Ask::Load { steps: number(1)? },
        Some("go-on") => Ask::GoOn,
        Some("w4") => Ask::W4 { runs: number(1)? as usize },
        Some("w5") => Ask::W5 { runs: number(1)? as usize },
        other => return Err(format!("unknown workload {other:?}").into()),
    })
}

/// What each step returns.
pub fn payload() -> String {
    "x".repeat(100)
}

pub fn say(workload: &str, value: f64, unit: &str, note: &str) {
    println!(r#"{{"workload":"{workload}","value":{value:.3},"unit":"{unit}","note":"{note}"}}"#);
}

pub fn say_rate(workload: &str, steps: u64, began: Instant) {
    let rate = steps as f64 / began.elapsed().as_secs_f64();
    say(workload, rate, "steps/s", &format!("{steps} steps"));
}

pub fn say_median(workload: &str, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2].as_secs_f64() * 1e3;
    say(workload, median, "ms", &format!("{} runs", times.len()));
}

/// Starts runs, waits until all of them wait, and says how long it took and what they hold in memory.
pub async fn say_waiting<F>(runs: usize, waiting: &AtomicUsize, start: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let (before, began) = (resident_mib()?, Instant::now());
    at_once(runs, start).await?;
    while waiting.load(Relaxed) < runs {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    say("W5", began.elapsed().as_secs_f64(), "s", &format!("{runs} runs"));
    tokio::time::sleep(SETTLE).await;
    say("W5", resident_mib()? - before, "MiB", &format!("{runs} runs"));
    Ok(())
}

/// Makes that many calls, [`AT_ONCE`] at a time.
pub async fn at_once<F>(count: usize, call: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let mut calls = JoinSet::new();
    for n in 0..count {
        if calls.len() == AT_ONCE {
            calls.join_next().await.ok_or("there are calls")???;
        }
        calls.spawn(call(n));
    }
    while let Some(called) = calls.join_next().await {
        called??;
    }
    Ok(())
}

/// The body of the step after the others in W3. Where `load` comes to it, it says so and waits to be killed; where `go-on` does, it
/// says how long ago its process was started.
pub async fn next_step_asked() -> Outcome {
    let Ok(start) = env::var("START_NS") else {
        println!("loaded");
        return future::pending().await;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let note = format!("{} steps", env::var("W3_STEPS").unwrap_or_default());
    say("W3", (now - start.parse::<u128>()?) as f64 / 1e6, "ms", &note);
    process::exit(0)
}

fn resident_mib() -> Outcome<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
