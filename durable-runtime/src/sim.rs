//! Simulation on the engine's own code: one thread, one seed. Random workflows of real steps, driven by real [`Life`]s
//! over a real store in memory, against random completion orders, crashes, lost answers and clocks that are set. Only the
//! tokio worker and the disk are replaced. `SIM_SEED=17 cargo test -p durable-runtime sim` runs one seed and shows its logs.
//!
//! [`Life`]: crate::drive::Life

mod check;
mod controls;
mod effects;
mod faults;
mod log;
mod outside;
mod process;
mod prog;
mod world;

use controls::Control;
use world::World;

/// Two numbers, mixed.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(23) ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x632B_E59B_D9B4_E019);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Random numbers from a seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What happened in how many worlds; a simulation in which nothing happens finds nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    runs: u64,
    entries: u64,
    lives: u64,
    crashes: u64,
    shutdowns: u64,
    parked: u64,
    adopted: u64,
    bodies: u64,
    outcome_rows: u64,
    lost_answers: u64,
    rejected: u64,
    reconciled: u64,
    resolved: u64,
    replays: u64,
}

impl Stats {
    fn add(&mut self, other: Stats) {
        for (sum, n) in [
            (&mut self.runs, other.runs),
            (&mut self.entries, other.entries),
            (&mut self.lives, other.lives),
            (&mut self.crashes, other.crashes),
            (&mut self.shutdowns, other.shutdowns),
            (&mut self.parked, other.parked),
            (&mut self.adopted, other.adopted),
            (&mut self.bodies, other.bodies),
            (&mut self.outcome_rows, other.outcome_rows),
            (&mut self.lost_answers, other.lost_answers),
            (&mut self.rejected, other.rejected),
            (&mut self.reconciled, other.reconciled),
            (&mut self.resolved, other.resolved),
            (&mut self.replays, other.replays),
        ] {
            *sum += n;
        }
    }
}

/// Runs a world; what is wrong with it, and what happened.
fn run(seed: u64, control: Control, cuts: usize) -> (Vec<String>, Stats) {
    let world = std::panic::catch_unwind(|| {
        let mut world = World::new(seed, control).run();
        check::all(&mut world, cuts);
        if std::env::var("SIM_SEED").is_ok() {
            world.show();
        }
        (world.bad, world.stats)
    });
    world.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        (vec![format!("panic: {}", text.unwrap_or_default())], Stats::default())
    })
}

#[test]
fn a_thousand_worlds_keep_every_promise() {
    let one = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let most = std::env::var("SIM_SEEDS").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_000);
    let seeds = one.map_or(0..most, |seed| seed..seed + 1);
    let (mut failures, mut stats) = (Vec::new(), Stats::default());
    for seed in seeds {
        let (bad, happened) = run(seed, Control::None, 8);
        stats.add(happened);
        if !bad.is_empty() {
            failures.push(format!("seed={seed}\n   {}", bad.join("\n   ")));
        }
    }
    println!("{stats:?}");
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
}
