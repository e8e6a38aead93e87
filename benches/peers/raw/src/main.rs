//! What the disk alone can do: `bench-raw FILE SECONDS`. Records are appended to a file and synced with fdatasync, one at a time
//! ("raw append"), then 64 at a time ("raw grouped"): the limits of an engine that waits for the disk after every step, and of
//! one that lets 64 runs wait together.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::{
    env, fs,
    fs::File,
    io::{self, Write},
    time::{Duration, Instant},
};

/// A step's record: 100 bytes of result, and what goes with them.
const RECORD: [u8; 256] = [7; 256];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().collect();
    let [_, path, seconds] = args.as_slice() else { return Err("bench-raw FILE SECONDS".into()) };
    for (workload, group) in [("raw append", 1), ("raw grouped", 64)] {
        let rate = records_per_second(path, group, Duration::from_secs_f64(seconds.parse()?))?;
        println!(
            r#"{{"workload":"{workload}","value":{rate:.0},"unit":"records/s","note":"{group} of {} bytes a sync"}}"#,
            RECORD.len()
        );
    }
    Ok(fs::remove_file(path)?)
}

fn records_per_second(path: &str, group: usize, time: Duration) -> io::Result<f64> {
    let mut file = File::create(path)?;
    let (bytes, began, mut records) = (RECORD.repeat(group), Instant::now(), 0);
    while began.elapsed() < time {
        file.write_all(&bytes)?;
        file.sync_data()?;
        records += group;
    }
    Ok(records as f64 / began.elapsed().as_secs_f64())
}
