//! Death at every place of one life, and at every place of the runs of [`everything`] and [`company`].

use std::time::Duration;

use crate::{
    common::{
        check::named,
        company::{company, company_of},
        everything::{everything, everything_of},
        rng::{Rng, first_seed},
    },
    disk::{Broken, Death},
    machine::{Ended, Fate, Job, Machine, RUN},
};

pub(crate) const EVERYTHING: Job = Job::new(|| everything("order".to_owned()), || Ok(everything_of("order")));
/// Runs that wait for each other, for messages and for people, and go on in a fresh log.
pub(crate) const COMPANY: Job =
    Job { speaks: true, ..Job::new(|| company(RUN.to_owned(), false), || company_of(RUN, false)) };
/// The same, and in the end all is taken back.
pub(crate) const BANKRUPT: Job =
    Job { speaks: true, ..Job::new(|| company(RUN.to_owned(), true), || company_of(RUN, true)) };
/// Whoever waits leaves memory at once.
const EVICTED: Job = Job { evict_after: Duration::ZERO, ..COMPANY };

/// How many writes and syncs a life has in which nobody dies; with a disk that syncs each write, and one that does not.
pub(crate) fn counts(job: Job) -> (u64, u64) {
    let ended = Fate::Ended(Ended::Returned((job.output)()));
    let mut machine = Machine::new(job, Broken::No, 0);
    assert_eq!(machine.live(Death::BeforeWrite(u64::MAX)), ended);
    let writes = machine.counts.0;
    let mut machine = Machine::new(job, Broken::No, 0);
    assert_eq!(machine.live(Death::BeforeSync(u64::MAX)), ended);
    (writes, machine.counts.1)
}

/// Every death there is, one a run; what was wrong.
pub(crate) fn sweep(job: Job, broken: Broken) -> (usize, Vec<String>) {
    let (writes, syncs) = counts(job);
    let deaths = (0..writes).map(Death::BeforeWrite).chain((0..syncs).map(Death::BeforeSync));
    let (mut runs, mut wrong) = (0, Vec::new());
    for death in deaths {
        runs += 1;
        let found = Machine::new(job, broken, 0).lives(&[death]);
        wrong.extend(found.into_iter().map(|what| format!("{death:?}: {what}")));
    }
    (runs, wrong)
}

fn survives_each_death(job: Job) {
    let (runs, wrong) = sweep(job, Broken::No);
    println!("{runs} deaths");
    assert!(wrong.is_empty(), "{} wrong, the first: {}", wrong.len(), wrong[0]);
}

#[test]
fn a_run_survives_a_death_before_each_of_its_writes_and_syncs() {
    survives_each_death(EVERYTHING);
}

#[test]
fn a_run_whose_bodies_wait_for_slots_survives_a_death_before_each_of_its_writes_and_syncs() {
    survives_each_death(Job { slots: 2, ..EVERYTHING });
}

#[test]
fn runs_that_wait_for_each_other_survive_a_death_before_each_of_their_writes_and_syncs() {
    survives_each_death(COMPANY);
}

#[test]
fn what_is_taken_back_survives_a_death_before_each_write_and_sync() {
    survives_each_death(BANKRUPT);
}

#[test]
fn runs_that_leave_memory_whenever_they_can_survive_a_death_before_each_of_their_writes_and_syncs() {
    survives_each_death(EVICTED);
}

/// A few writes more than a life has: then the cancel comes too late.
const TOO_LATE: u64 = 2;

#[test]
fn a_run_that_is_cancelled_at_each_of_its_writes_ends_as_its_canceller_is_told() {
    for job in [COMPANY, BANKRUPT] {
        let (writes, _) = counts(job);
        let mut cancelled = 0;
        for at in 0..writes + TOO_LATE {
            let mut machine = Machine::new(Job { cancel_at: Some(at), ..job }, Broken::No, 0);
            let wrong = machine.lives(&[]);
            assert!(wrong.is_empty(), "cancelled at {at}: {wrong:#?}");
            let runs = machine.runs();
            cancelled += named(runs[RUN].entries(), "run.cancelled").count() as u64;
        }
        println!("{cancelled} of {writes} cancels came in time");
        assert!(cancelled > writes / 2, "{cancelled} of {writes} cancels only came in time");
    }
}

#[test]
fn a_run_that_is_cancelled_anywhere_survives_a_death_anywhere() {
    let seed = first_seed();
    let mut rng = Rng::new(seed);
    let jobs = [COMPANY, BANKRUPT, EVICTED].map(|job| (job, counts(job)));
    for nth in 0..400 {
        let (job, (writes, syncs)) = jobs[rng.below(3) as usize];
        let job = Job { cancel_at: Some(rng.below(writes)), ..job };
        // Half of the deaths come soon after the cancel: in the middle of it.
        let at = job.cancel_at.unwrap_or_default();
        let death = match rng.below(4) {
            0 | 1 => Death::BeforeWrite(at + rng.below(12)),
            2 => Death::BeforeWrite(rng.below(writes)),
            _ => Death::BeforeSync(rng.below(syncs)),
        };
        let wrong = Machine::new(job, Broken::No, seed + nth).lives(&[death]);
        assert!(wrong.is_empty(), "CRASH_SEED={seed}, {nth}, cancelled at {at}, {death:?}: {wrong:#?}");
    }
}

#[test]
fn a_run_survives_two_deaths_at_any_places() {
    let seed = first_seed();
    println!("CRASH_SEED={seed}");
    let mut rng = Rng::new(seed);
    let jobs = [EVERYTHING, Job { slots: 2, ..EVERYTHING }, Job { slots: 3, ..EVERYTHING }, COMPANY, BANKRUPT, EVICTED];
    let counts = jobs.map(counts);
    for pair in 0..500 {
        let which = rng.below(jobs.len() as u64) as usize;
        let (writes, syncs) = counts[which];
        let mut death = || match rng.once_in(2) {
            true => Death::BeforeWrite(rng.below(writes)),
            false => Death::BeforeSync(rng.below(syncs)),
        };
        let deaths = [death(), death()];
        let wrong = Machine::new(jobs[which], Broken::No, seed + pair).lives(&deaths);
        assert!(wrong.is_empty(), "CRASH_SEED={seed}, pair {pair}, {deaths:?}: {wrong:#?}");
    }
}

#[test]
fn a_run_survives_a_shutdown_at_each_of_its_writes() {
    let mut rng = Rng::new(first_seed());
    for job in [EVERYTHING, COMPANY] {
        let (writes, _) = counts(job);
        for (at, patient) in (0..writes).flat_map(|at| [(at, true), (at, false)]) {
            let shutdown = Death::Shutdown { writes: at, patient };
            // And a death soon after, every other time.
            let deaths = [shutdown, Death::BeforeWrite(rng.below(20))];
            let deaths = &deaths[..if rng.once_in(2) { 1 } else { 2 }];
            let mut machine = Machine::new(job, Broken::No, 0);
            let wrong = machine.lives(deaths);
            assert!(wrong.is_empty(), "{deaths:?}: {wrong:#?}");
            let runs = machine.runs();
            let doubt = runs.values().flat_map(|seen| named(seen.entries(), "effect.in_doubt")).next();
            let in_time = !patient || deaths.len() > 1 || doubt.is_none();
            assert!(in_time, "{shutdown:?}: bodies had the time to return, and yet {doubt:?}");
        }
    }
}
