//! Death at every place of one run, and at every place of the run of [`everything`].

use crate::{
    common::{
        check,
        everything::{everything, everything_of, one},
        ledger::Line,
        replay,
        rng::{Rng, first_seed},
    },
    disk::{Broken, Death},
    machine::{Fate, Job, Machine, RUN},
};

const EVERYTHING: Job =
    Job { call: || everything("order".to_owned()), output: || everything_of("order"), slots: 1_000 };
/// An effect that lies about its contract.
const LIAR: Job =
    Job { call: || one("liar".to_owned()), output: || "saved notice of: wired it".to_owned(), slots: 1_000 };

/// How many writes and syncs a life has in which nobody dies; with a disk that syncs each write, and one that does not.
fn counts(job: Job) -> (u64, u64) {
    let mut machine = Machine::new(job, Broken::No, 0);
    assert_eq!(machine.live(Death::BeforeWrite(u64::MAX)), Fate::Returned((job.output)()));
    let writes = machine.counts.0;
    let mut machine = Machine::new(job, Broken::No, 0);
    assert_eq!(machine.live(Death::BeforeSync(u64::MAX)), Fate::Returned((job.output)()));
    (writes, machine.counts.1)
}

/// Every death there is, one a run; what was wrong.
fn sweep(job: Job, broken: Broken) -> (usize, Vec<String>) {
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
fn a_run_survives_two_deaths_at_any_places() {
    let seed = first_seed();
    println!("CRASH_SEED={seed}");
    let mut rng = Rng::new(seed);
    let jobs = [2, 3, 1_000].map(|slots| Job { slots, ..EVERYTHING });
    let counts = jobs.map(counts);
    for pair in 0..500 {
        let which = rng.below(3) as usize;
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
    let (writes, _) = counts(EVERYTHING);
    let mut rng = Rng::new(first_seed());
    for (at, patient) in (0..writes).flat_map(|at| [(at, true), (at, false)]) {
        let shutdown = Death::Shutdown { writes: at, patient };
        let mut machine = Machine::new(EVERYTHING, Broken::No, 0);
        let wrong = machine.lives(&[shutdown]);
        assert!(wrong.is_empty(), "{shutdown:?}: {wrong:#?}");
        let log = machine.log();
        let doubt = check::named(&log, "effect.in_doubt").next();
        assert!(!patient || doubt.is_none(), "{shutdown:?}: bodies had the time to return, and yet {doubt:?}");
        // And a death soon after.
        let deaths = [shutdown, Death::BeforeWrite(rng.below(20))];
        let wrong = Machine::new(EVERYTHING, Broken::No, 0).lives(&deaths);
        assert!(wrong.is_empty(), "{deaths:?}: {wrong:#?}");
    }
}

#[test]
fn the_sweep_notices_a_missing_barrier() {
    let (runs, wrong) = sweep(EVERYTHING, Broken::AcksAtOnce);
    println!("{} findings in {runs} runs, the first: {}", wrong.len(), wrong.first().map_or("none", String::as_str));
    assert!(
        wrong.iter().any(|what| what.contains("no entry of the log decided it") || what.contains("bodies, and at"))
    );
}

#[test]
fn the_sweep_notices_outcomes_that_are_acknowledged_and_not_written() {
    let (runs, wrong) = sweep(EVERYTHING, Broken::LosesOutcomes);
    println!("{} findings in {runs} runs, the first: {}", wrong.len(), wrong.first().map_or("none", String::as_str));
    assert!(!wrong.is_empty());
}

#[test]
fn the_sweep_notices_an_effect_whose_contract_is_a_lie() {
    let (runs, wrong) = sweep(LIAR, Broken::No);
    println!("{} findings in {runs} runs, the first: {}", wrong.len(), wrong.first().map_or("none", String::as_str));
    assert!(wrong.iter().any(|what| what.contains("2 bodies, and at most 1 may be")));
}

#[test]
fn the_checker_of_logs_notices_what_is_missing_doubled_or_late() {
    let mut machine = Machine::new(EVERYTHING, Broken::No, 0);
    assert_eq!(machine.live(Death::Never), Fate::Returned((EVERYTHING.output)()));
    let log = machine.log();
    assert_eq!(check::log(RUN, &log, true), Vec::<String>::new());
    for place in 0..log.len() {
        let (mut less, mut more) = (log.clone(), log.clone());
        less.remove(place);
        more.insert(place, log[place].clone());
        for wrong in [less, more] {
            assert!(!check::log(RUN, &wrong, true).is_empty(), "place {place}: {}", log[place]);
        }
    }
    // Places made right again, so that only what is said of steps is wrong.
    for name in ["effect.called", "timer.set", "run.completed", "run.started"] {
        let place = log.iter().position(|entry| entry["entry"] == name).unwrap();
        let mut wrong = log.clone();
        wrong.remove(place);
        wrong.iter_mut().enumerate().for_each(|(place, entry)| entry["seq"] = place.into());
        assert!(!check::log(RUN, &wrong, true).is_empty(), "without {name}");
    }
}

#[test]
fn the_checker_of_ledgers_notices_orphans_and_changed_keys() {
    let mut machine = Machine::new(EVERYTHING, Broken::No, 0);
    assert_eq!(machine.live(Death::Never), Fate::Returned((EVERYTHING.output)()));
    let logs = check::Logs::from([(RUN.to_owned(), machine.log())]);
    let lines = machine.ledger.lines();
    assert_eq!(check::ledger(&lines, &logs, 0), Vec::<String>::new());
    let changed = |effect: &str, change: &dyn Fn(&mut Line)| {
        let mut more = lines.clone();
        let mut line = lines.iter().find(|line| line.effect == effect).unwrap().clone();
        change(&mut line);
        more.push(line);
        check::ledger(&more, &logs, 0)
    };
    assert!(!changed("save", &|_| {}).is_empty(), "one attempt twice");
    assert!(!changed("save", &|line| line.attempt += 1).is_empty(), "an attempt that was not decided");
    assert!(!changed("wire", &|line| line.path.push('x')).is_empty(), "a step that is in no log");
    assert!(!changed("charge", &|line| line.key.push('x')).is_empty(), "another key");
    assert!(changed("look_up", &|_| {}).is_empty(), "nobody can tell how often it is looked up");
}

#[test]
fn the_replay_check_notices_a_log_that_is_not_of_this_code() {
    let mut machine = Machine::new(EVERYTHING, Broken::No, 0);
    assert_eq!(machine.live(Death::Never), Fate::Returned((EVERYTHING.output)()));
    let image = machine.image();
    let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    threads.block_on(replay::replays(&*image, RUN)).unwrap();
    // A log that lacks an outcome: the replay would have to run a body.
    let run = durable::RunId::new(RUN).unwrap();
    let tape = crate::common::frames::tape(&*image, &run);
    let names: Vec<_> = tape.iter().map(crate::common::frames::name).collect();
    let shown = machine.log();
    let of_library = shown.iter().map(|entry| entry["entry"].as_str().unwrap().replace("completed", "ended"));
    assert_eq!(names, of_library.collect::<Vec<_>>(), "the bytes are understood as the library does");
    let last = names.iter().rposition(|name| *name == "effect.result").unwrap();
    let mut cut = tape[..last].to_vec();
    cut.extend_from_slice(&tape[tape.len() - 1..]);
    let store = crate::common::frames::store_of(&run, &cut);
    assert!(threads.block_on(replay::replays(&store, RUN)).is_err());
}
