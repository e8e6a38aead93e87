//! Every point at which something is written for runs that wait for each other, for messages and for people; and for runs that
//! are being cancelled or take back what they did.

use std::{collections::BTreeSet, sync::Mutex, thread};

use crate::{
    child::{Place, Said, Talking, Task, What},
    common::{
        check::{self, named},
        company::{WORDS, company_of},
        outside::Known,
    },
    stops::{Broken, Deed, Stop},
    work::RUN,
};

/// What a run does in the end.
#[derive(Clone, Copy, Debug)]
struct Case {
    fails: bool,
    cancelled: bool,
}

impl Case {
    fn what(self) -> What {
        What::Company { fails: self.fails, cancelled: self.cancelled }
    }
}

/// Kills a process at the point, lets another one go on, and answers what is wrong; `None` if a run never gets to that point.
fn killed_at(case: Case, stop: Stop) -> Option<Vec<String>> {
    let (place, known) = (Place::new(), Known::default());
    let mut child = Talking::start(&Task { stop, ..place.task(case.what()) });
    loop {
        match child.next() {
            Some(Said::Stopped) => break,
            Some(Said::Known(news)) => known.add(news),
            Some(Said::Report(_)) => return None,
            Some(_) => {}
            None => panic!("{stop:?}: it ended before its point: {}", child.noise),
        }
    }
    child.kill();
    while let Some(said) = child.next() {
        if let Said::Known(news) = said {
            known.add(news);
        }
    }
    let mut child = Talking::start(&place.task(case.what()));
    let report = loop {
        match child.next() {
            Some(Said::Report(report)) => break report,
            Some(Said::Known(news)) => known.add(news),
            Some(_) => {}
            None => panic!("{stop:?}: the next one ended without a report: {}", child.noise),
        }
    };
    child.kill();
    let mut wrong = whole(&place, &known);
    let expected: &[&str] = match (case.cancelled, case.fails) {
        // It may have completed before its child was seen.
        (true, _) => &["cancelled"],
        (false, true) => &["failed"],
        (false, false) => &["completed"],
    };
    if !expected.contains(&report.status.as_str()) {
        wrong.push(format!("it ended as {:?}", report.status));
    }
    Some(wrong)
}

/// What all checkers say of runs that have ended.
fn whole(place: &Place, known: &Known) -> Vec<String> {
    let (runs, lines) = (place.runs(), place.ledger());
    let mut wrong = Vec::new();
    for (run, seen) in &runs {
        wrong.extend(seen.check(run, true));
    }
    for (run, shown) in &*known.all() {
        wrong.extend(check::shown(run, shown, runs.get(run).unwrap_or(&check::Seen::default()), 0));
    }
    let of = |name: &str| WORDS.iter().filter(|(of, ..)| *of == name).map(|(.., value)| *value).collect();
    let sent = ["word", "steer"].map(|name| (RUN, name, of(name), known.accepted(RUN, name)));
    wrong.extend(check::ledger(&lines, &runs, 0));
    wrong.extend(check::company(&runs, &lines, &sent));
    wrong.extend(place.replays(runs.keys()));
    if let Some(end) = runs.get(RUN).and_then(|seen| named(seen.entries(), "run.completed").next())
        && Ok(end["value"]["Ok"].as_str().unwrap_or_default().to_owned()) != company_of(RUN, false)
    {
        wrong.push(format!("it returned {end}"));
    }
    wrong
}

/// Kills at all these points, two at a time; answers how many there were and which a run never gets to.
fn kills(case: Case, points: Vec<Stop>) -> (usize, Vec<Stop>) {
    let points = Mutex::new(points.into_iter());
    let (done, missed) = (Mutex::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let work = || loop {
            let Some(stop) = points.lock().unwrap().next() else { return };
            match killed_at(case, stop) {
                Some(wrong) => assert!(wrong.is_empty(), "{case:?} at {stop:?}: {wrong:#?}"),
                None => missed.lock().unwrap().push(stop),
            }
            *done.lock().unwrap() += 1;
        };
        let both = [scope.spawn(work), scope.spawn(work)];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
    (done.into_inner().unwrap(), missed.into_inner().unwrap())
}

/// Before and after the nth of each of these deeds.
fn around(deeds: &[Deed], nths: &[u32]) -> Vec<Stop> {
    let all = deeds.iter().flat_map(|deed| nths.iter().map(move |nth| (*deed, *nth)));
    all.flat_map(|(deed, nth)| [Stop::Before(deed, nth), Stop::After(deed, nth)]).collect()
}

#[test]
fn runs_that_wait_survive_a_kill_around_each_of_their_writes() {
    let case = Case { fails: false, cancelled: false };
    let (kills, missed) = kills(case, around(&Deed::ALL, &[1, 2]));
    println!("{kills} kills, never reached: {missed:?}");
    // It has one question that is answered and one that is not, and goes on in a fresh log once.
    let missed: BTreeSet<Stop> = missed.into_iter().collect();
    assert_eq!(missed, around(&[Deed::Restarted], &[2]).into_iter().collect());
}

#[test]
fn a_run_that_is_being_cancelled_survives_a_kill_around_each_of_its_writes() {
    let case = Case { fails: false, cancelled: true };
    let deeds = [Deed::CancelRequested, Deed::Ending, Deed::Undo, Deed::UndoResult, Deed::ChildEnd, Deed::ChildResult];
    let (kills, missed) = kills(case, around(&deeds, &[3, 4, 5]));
    println!("{kills} kills, never reached: {missed:?}");
    assert!(missed.len() < kills / 2, "{missed:?}");
}

#[test]
fn a_run_that_takes_back_what_it_did_survives_a_kill_between_any_two_of_its_compensations() {
    let case = Case { fails: true, cancelled: false };
    let mut points = around(&[Deed::Undo, Deed::UndoResult], &[7, 8, 9, 10]);
    points.extend(around(&[Deed::Ending, Deed::Restarted], &[1]));
    // Its own terminal entry is the last one.
    points.extend(around(&[Deed::End], &[8, 9, 10]));
    let (kills, missed) = kills(case, points);
    println!("{kills} kills, never reached: {missed:?}");
    assert!(missed.len() < kills / 2, "{missed:?}");
}

/// The control: a store that loses a message is noticed.
#[test]
fn a_message_that_was_accepted_and_not_written_is_noticed() {
    let (place, known) = (Place::new(), Known::default());
    let what = Case { fails: false, cancelled: false }.what();
    let mut child = Talking::start(&Task {
        broken: Broken::DropsPuts,
        stop: Stop::After(Deed::Asked, 1),
        ..place.task(what.clone())
    });
    loop {
        match child.next() {
            Some(Said::Stopped) => panic!("nothing that it was sent could bring it there"),
            Some(Said::Known(news)) => {
                known.add(news);
                if known.accepted(RUN, "word") == 3 {
                    break;
                }
            }
            Some(_) => {}
            None => panic!("it ended by itself: {}", child.noise),
        }
    }
    child.kill();
    let wrong = whole(&place, &known);
    assert!(wrong.iter().any(|wrong| wrong.contains("3 of word") && wrong.contains("it got []")), "{wrong:#?}");
}
