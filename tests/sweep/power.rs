//! The loss of power: whatever somebody was shown, or a body did, is in what is left.

use crate::{
    common::rng::{Rng, first_seed},
    disk::{Broken, Death},
    exhaustive::{BANKRUPT, COMPANY, EVERYTHING},
    machine::{Job, Machine},
};

const SEEDS: u64 = 300;

/// What is wrong with a run in which the power fails up to three times.
fn fails(seed: u64, broken: Broken) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let job = [EVERYTHING, COMPANY, BANKRUPT][rng.below(3) as usize];
    let job = Job { slots: [2, 3, 1_000][rng.below(3) as usize], ..job };
    let job = if job.speaks { Job { slots: 1_000, ..job } } else { job };
    let mut machine = Machine::new(job, broken, rng.next());
    machine.curious = true;
    let failures = 1 + rng.below(3);
    let deaths: Vec<_> = (0..failures)
        .map(|_| {
            // Mostly nothing survives that was not synced; a disk may have written some of it all the same.
            let kept = if rng.once_in(4) { rng.below(4) as usize } else { 0 };
            Death::PowerLoss { event: rng.below(120), kept }
        })
        .collect();
    machine.lives(&deaths)
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power() {
    let first = first_seed();
    for seed in first..first + SEEDS {
        let wrong = fails(seed, Broken::No);
        assert!(wrong.is_empty(), "CRASH_SEED={seed}: {wrong:#?}");
    }
}

#[test]
fn a_disk_that_acknowledges_before_it_syncs_is_noticed() {
    let noticed = (1..=30).filter(|seed| !fails(*seed, Broken::AcksAtOnce).is_empty()).count();
    println!("noticed with {noticed} of 30 seeds");
    assert!(noticed >= 3, "noticed with {noticed} of 30 seeds only");
}
