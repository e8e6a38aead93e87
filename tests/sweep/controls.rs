//! The sweep notices what it is for: broken disks, a contract that is a lie, and every kind of history that must not be.

use serde_json::{Value as Json, json};

use crate::{
    common::{
        check::{self, Runs, named},
        company::WORDS,
        everything::one,
        frames,
        ledger::Line,
        replay,
        rng::Rng,
        tape::Tape,
    },
    disk::{Broken, Death},
    exhaustive::{BANKRUPT, COMPANY, EVERYTHING, counts, sweep},
    machine::{Ended, Fate, Job, Machine, RUN},
};

/// An effect that lies about its contract.
const LIAR: Job = Job::new(|| one("liar".to_owned()), || Ok("saved notice of: wired it".to_owned()));

fn found(job: Job, broken: Broken) -> Vec<String> {
    let (runs, wrong) = sweep(job, broken);
    println!("{} findings in {runs} runs, the first: {}", wrong.len(), wrong.first().map_or("none", String::as_str));
    wrong
}

#[test]
fn the_sweep_notices_a_missing_barrier() {
    let wrong = found(EVERYTHING, Broken::AcksAtOnce);
    assert!(
        wrong.iter().any(|what| what.contains("no entry of the log decided it") || what.contains("bodies, and at"))
    );
}

#[test]
fn the_sweep_notices_outcomes_that_are_acknowledged_and_not_written() {
    assert!(!found(EVERYTHING, Broken::LosesOutcomes).is_empty());
}

#[test]
fn the_sweep_notices_an_effect_whose_contract_is_a_lie() {
    assert!(found(LIAR, Broken::No).iter().any(|what| what.contains("2 bodies, and at most 1 may be")));
}

/// What a broken disk does is noticed at one of these deaths.
fn notices(broken: Broken, what: &[&str]) {
    let (writes, _) = counts(COMPANY);
    let mut rng = Rng::new(1);
    let mut all = Vec::new();
    for nth in 0..writes {
        let wrong = Machine::new(COMPANY, broken, nth).lives(&[Death::BeforeWrite(rng.below(2 * writes))]);
        if wrong.iter().any(|wrong| what.iter().any(|what| wrong.contains(what))) {
            println!("{broken:?} is noticed in life {nth}: {wrong:?}");
            return;
        }
        all.extend(wrong);
    }
    panic!("{broken:?} is not noticed: {all:#?}");
}

#[test]
fn the_sweep_notices_messages_that_are_sent_apart_from_the_entry_that_says_so() {
    // A message that is lost is missing, or somebody waits for it for ever; a whole disk has neither.
    notices(Broken::PutsApart, &["other runs sent", "nothing moves any more"]);
}

#[test]
fn the_sweep_notices_messages_that_are_taken_apart_from_the_entry_that_says_so() {
    notices(Broken::TakesApart, &["and it got"]);
}

#[test]
fn the_sweep_notices_a_message_that_counts_twice_when_it_is_sent_twice() {
    notices(Broken::ForgetsIds, &["were accepted, and it got"]);
}

/// A life in which nobody dies.
fn lived(job: Job) -> (Machine, Runs) {
    let mut machine = Machine::new(job, Broken::No, 0);
    assert_eq!(machine.live(Death::Never), Fate::Ended(Ended::Returned((job.output)())));
    let runs = machine.runs();
    (machine, runs)
}

#[test]
fn the_checker_of_logs_notices_what_is_missing_doubled_or_late() {
    for job in [EVERYTHING, COMPANY] {
        let (_, runs) = lived(job);
        for (run, log) in runs.iter().flat_map(|(run, seen)| seen.logs.iter().map(move |log| (run, log))) {
            assert_eq!(check::log(run, log, true), Vec::<String>::new());
            for place in 0..log.len() {
                let (mut less, mut more) = (log.clone(), log.clone());
                less.remove(place);
                more.insert(place, log[place].clone());
                for wrong in [less, more] {
                    assert!(!check::log(run, &wrong, true).is_empty(), "{run}, place {place}: {}", log[place]);
                }
            }
        }
    }
}

/// Places made right again, so that only what is said of steps is wrong.
fn renumbered(log: &mut [Json]) {
    log.iter_mut().enumerate().for_each(|(place, entry)| entry["seq"] = place.into());
}

#[test]
fn the_checker_of_logs_notices_commands_that_are_missing_and_completions_that_are_not_theirs() {
    let (_, everything) = lived(EVERYTHING);
    let (_, company) = lived(COMPANY);
    let cases = [
        (&everything, "effect.called"),
        (&everything, "timer.set"),
        (&everything, "run.completed"),
        (&everything, "run.started"),
        (&company, "signal.awaited"),
        (&company, "question.asked"),
        (&company, "child.spawned"),
        (&company, "message.sent"),
        (&company, "value.published"),
        (&company, "undo.added"),
        (&company, "run.restarted"),
    ];
    for (runs, name) in cases {
        let log = &runs[RUN].logs[0];
        let place = log.iter().position(|entry| entry["entry"] == name).unwrap();
        let mut wrong = log.clone();
        wrong.remove(place);
        renumbered(&mut wrong);
        assert!(!check::log(RUN, &wrong, true).is_empty(), "without {name}");
    }
    for name in ["signal.received", "question.answered", "child.result", "timer.fired"] {
        let log = &company[RUN].logs[0];
        let place = log.iter().position(|entry| entry["entry"] == name).unwrap();
        // Twice, and for another step.
        let (mut twice, mut other) = (log.clone(), log.clone());
        twice.insert(place, log[place].clone());
        renumbered(&mut twice);
        other[place]["step"] = 0.into();
        for wrong in [twice, other] {
            assert!(!check::log(RUN, &wrong, true).is_empty(), "{name}");
        }
    }
}

#[test]
fn the_checker_of_logs_notices_what_is_asked_after_a_cancel_and_after_the_end() {
    let entry = |seq: u64, name: &str, step: Option<u64>, path: &str| {
        let mut entry = json!({ "seq": seq, "at": "2026-01-01T00:00:00.000Z", "entry": name, "path": path });
        step.into_iter().for_each(|step| entry["step"] = step.into());
        entry
    };
    let legal = |before: &str, asked: &str, path: &str| {
        let log = [
            entry(0, "run.started", None, ""),
            entry(1, before, None, ""),
            entry(2, asked, Some(0), path),
            entry(3, "run.cancelled", None, ""),
        ];
        check::log(RUN, &log, true).is_empty()
    };
    assert!(legal("run.cancel_requested", "undo.added", "undo:x[0]"));
    assert!(legal("run.cancel_requested", "timer.set", "shield[0]/sleep[0]"));
    assert!(!legal("run.cancel_requested", "timer.set", "sleep[0]"));
    assert!(!legal("run.cancel_requested", "message.sent", "send:x[0]"));
    assert!(!legal("run.ending", "undo.added", "undo:x[0]"));
    assert!(!legal("run.ending", "timer.set", "shield[0]/sleep[0]"));
}

#[test]
fn the_checker_of_ledgers_notices_orphans_and_changed_keys() {
    let (machine, runs) = lived(EVERYTHING);
    let lines = machine.ledger.lines();
    assert_eq!(check::ledger(&lines, &runs, 0), Vec::<String>::new());
    let changed = |effect: &str, change: &dyn Fn(&mut Line)| {
        let mut more = lines.clone();
        let mut line = lines.iter().find(|line| line.effect == effect).unwrap().clone();
        change(&mut line);
        more.push(line);
        check::ledger(&more, &runs, 0)
    };
    assert!(!changed("save", &|_| {}).is_empty(), "one attempt twice");
    assert!(!changed("save", &|line| line.attempt += 1).is_empty(), "an attempt that was not decided");
    assert!(!changed("wire", &|line| line.path.push('x')).is_empty(), "a step that is in no log");
    assert!(!changed("charge", &|line| line.key.push('x')).is_empty(), "another key");
    assert!(changed("look_up", &|_| {}).is_empty(), "nobody can tell how often it is looked up");
}

/// What the checker says of these runs.
fn company(runs: &Runs, lines: &[Line]) -> Vec<String> {
    let of = |of: &str| WORDS.iter().filter(|(name, ..)| *name == of).map(|(.., value)| *value).collect::<Vec<_>>();
    check::company(runs, lines, &[(RUN, "word", of("word"), 3), (RUN, "steer", of("steer"), 2)])
}

/// Takes an entry out of the first log of a run.
fn without(runs: &Runs, run: &str, log: usize, name: &str) -> Runs {
    let mut runs = runs.clone();
    let log = &mut runs.get_mut(run).unwrap().logs[log];
    let place = log.iter().position(|entry| entry["entry"] == name).unwrap();
    log.remove(place);
    runs
}

#[test]
fn the_checker_of_companies_notices_messages_and_children_that_are_lost_doubled_or_changed() {
    let (machine, runs) = lived(COMPANY);
    let lines = machine.ledger.lines();
    assert_eq!(company(&runs, &lines), Vec::<String>::new());
    let names = |what: &[String], part: &str| what.iter().any(|what| what.contains(part));
    let lost = company(&without(&runs, RUN, 0, "signal.received"), &lines);
    assert!(names(&lost, "and it got"), "{lost:#?}");
    let mut doubled = runs.clone();
    doubled.get_mut(RUN).unwrap().unread.push(("word".to_owned(), "third".into()));
    assert!(names(&company(&doubled, &lines), "and it got"));
    let mut swapped = runs.clone();
    let log = &mut swapped.get_mut(RUN).unwrap().logs[0];
    let received: Vec<_> = (0..log.len()).filter(|at| log[*at]["entry"] == "signal.received").take(2).collect();
    let first = log[received[0]]["messages"].take();
    log[received[0]]["messages"] = log[received[1]]["messages"].take();
    log[received[1]]["messages"] = first;
    assert!(names(&company(&swapped, &lines), "and it got"));
    for child in runs.keys().filter(|run| *run != RUN) {
        let mut orphan = runs.clone();
        orphan.remove(child);
        assert!(names(&company(&orphan, &lines), "is not there"), "{child}");
    }
    let other = company(&without(&runs, RUN, 0, "child.result"), &lines);
    assert!(names(&other, "has outlived it"), "{other:#?}");
    let mut other = runs.clone();
    let log = &mut other.get_mut(RUN).unwrap().logs[0];
    let result = log.iter_mut().find(|entry| entry["entry"] == "child.result").unwrap();
    result["end"] = "lost".into();
    assert!(names(&company(&other, &lines), "ended with"));
}

#[test]
fn the_checker_of_companies_notices_what_is_not_taken_back_or_in_another_order() {
    let (machine, runs) = lived(BANKRUPT);
    let lines = machine.ledger.lines();
    assert_eq!(company(&runs, &lines), Vec::<String>::new());
    let names = |what: &[String], part: &str| what.iter().any(|what| what.contains(part));
    let undone = |log: &[Json]| -> Vec<usize> {
        let is = |entry: &Json| entry["entry"] == "effect.called" && entry["undo"].is_u64();
        (0..log.len()).filter(|at| is(&log[*at])).collect()
    };
    let mut forward = runs.clone();
    let log = &mut forward.get_mut(RUN).unwrap().logs[1];
    let places = undone(log);
    assert_eq!(places.len(), 3, "one of each log, and one that may run once");
    log[places[0]]["undo"] = 0.into();
    log[places[2]]["undo"] = 2.into();
    assert!(names(&company(&forward, &lines), "compensations, taken back"));
    let mut one_less = runs.clone();
    one_less.get_mut(RUN).unwrap().logs[1].remove(places[1]);
    assert!(names(&company(&one_less, &lines), "compensations, taken back"));
    let mut fewer = lines.clone();
    fewer.retain(|line| line.run != RUN || line.path != "undo[1]");
    assert!(names(&company(&runs, &fewer), "compensations ran"));
    let mut late = lines.clone();
    let first = lines.iter().find(|line| line.run == RUN && line.effect == "save").unwrap().clone();
    late.push(first);
    assert!(names(&company(&runs, &late), "came after"));
}

#[test]
fn the_replay_check_notices_a_log_that_is_not_of_this_code() {
    let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for job in [EVERYTHING, COMPANY] {
        let (mut machine, runs) = lived(job);
        let image = machine.image();
        for (run, seen) in &runs {
            threads.block_on(replay::replays(&*image, run)).unwrap();
            let tape = Tape::of(&*image, run).unwrap();
            for (n, log) in seen.logs.iter().enumerate() {
                let entries = tape.frames(n);
                let names: Vec<_> = entries.iter().map(frames::name).collect();
                let ends = ["run.completed", "run.failed", "run.cancelled", "run.restarted"];
                let shown = log.iter().map(|entry| entry["entry"].as_str().unwrap());
                let shown = shown.map(|name| if ends.contains(&name) { "run.ended" } else { name });
                assert_eq!(names, shown.collect::<Vec<_>>(), "{run}: the bytes are understood as the library does");
            }
        }
        // A log that lacks an outcome: the replay would have to run a body.
        let tape = Tape::of(&*image, RUN).unwrap();
        let mut entries = tape.frames(0);
        let first = entries.iter().position(|entry| frames::name(entry) == "effect.result").unwrap();
        let end = entries.pop().unwrap();
        entries.truncate(first);
        assert!(threads.block_on(replay::replays_to(&tape, 0, &entries, &end)).is_err());
    }
    assert!(named(lived(COMPANY).1[RUN].entries(), "run.restarted").next().is_some());
}
