//! Every point, for every contract: what is in the ledger when the process dies there, and in the end.

use serde_json::Value as Json;

use crate::{
    child::{How, Place, What},
    common::check::{self, named, only},
    stops::{Broken, Stop},
    work::{RUN, Report},
};

/// A contract, and what is to be seen of it.
struct Case {
    contract: &'static str,
    effect: &'static str,
    /// What the effect gives, if it gives the same however often it ran.
    gives: Option<&'static str>,
    /// How many bodies there are in the end, by point; `None`: one or two, for nothing holds its body back.
    bodies: fn(Stop) -> Option<usize>,
    /// Whether a crash there leaves the step held.
    holds: bool,
}

fn bodies_at(stop: Stop) -> usize {
    usize::from(stop >= Stop::InBody)
}

/// A body that is run again unless its outcome is on disk.
fn repeated(stop: Stop) -> Option<usize> {
    Some(if matches!(stop, Stop::InBody | Stop::BeforeResult) { 2 } else { 1 })
}

impl Case {
    /// Kills a process at each point, lets another one go on, and looks at what is there.
    fn check(&self) {
        let mut kills = 0;
        for stop in Stop::POINTS {
            let (mut place, what) = (Place::new(), What::One { contract: self.contract.to_owned() });
            place.killed_at(what.clone(), stop, Broken::No);
            let before = place.bodies(self.effect);
            self.after_kill(&place, stop, before);
            let report = place.report(what);
            let after = place.bodies(self.effect);
            println!(
                "{:<11} {} {:<14} {before} -> {after} bodies, {}",
                self.contract,
                stop.label(),
                format!("{stop:?}"),
                report.status
            );
            if self.holds && (Stop::Called..=Stop::BeforeResult).contains(&stop) {
                assert_eq!((report.status.as_str(), after), ("held", before), "{stop:?}");
                assert_eq!(place.bodies("save"), 0, "what follows waits for a person: {stop:?}");
            } else {
                if let Some(bodies) = (self.bodies)(stop) {
                    assert_eq!(after, bodies, "{} at {stop:?}", self.contract);
                }
                self.in_the_end(&mut place, &report, 0, &format!("{} at {stop:?}", self.contract));
            }
            kills += place.kills;
        }
        println!("{}: {kills} kills", self.contract);
    }

    fn after_kill(&self, place: &Place, stop: Stop, before: usize) {
        let names = place.names(RUN);
        let has = |name| names.contains(&name);
        let at = format!("{} at {stop:?}: {names:?}", self.contract);
        assert_eq!(names.is_empty(), stop == Stop::BeforeCreated, "{at}");
        // Only a body that needs no barrier may begin before its intent is on disk.
        if self.contract != "read_only" {
            assert_eq!(before, bodies_at(stop), "{at}");
            assert_eq!(has("effect.called"), stop >= Stop::Called, "{at}");
        }
        // Such a body may also be through before its intent is written; then its outcome goes to the disk with it.
        if self.contract != "read_only" || stop != Stop::Called {
            assert_eq!(has("effect.result"), stop >= Stop::Result, "{at}");
        }
        assert!(!has("run.ended"), "{at}");
    }

    fn in_the_end(&self, place: &mut Place, report: &Report, run_again: usize, at: &str) {
        let output =
            report.output.clone().unwrap_or(Err(report.status.clone())).unwrap_or_else(|e| panic!("{at}: {e}"));
        if let Some(gives) = self.gives {
            assert!(
                output == format!("saved notice of: {gives}") || output == "saved notice of: failed: in_doubt",
                "{at}: {output}"
            );
        }
        let wrong = whole(place, report, run_again);
        assert!(wrong.is_empty(), "{at}: {wrong:#?}");
    }
}

/// What all checkers say of a run that has ended.
pub(crate) fn whole(place: &Place, report: &Report, run_again: usize) -> Vec<String> {
    let mut wrong = check::log(RUN, &report.log, true);
    wrong.extend(check::ledger(&place.ledger(), &only(RUN, report.log.clone()), run_again));
    wrong.extend(place.replays([&RUN.to_owned()]));
    wrong
}

#[test]
fn a_read_only_effect_loses_reads_only() {
    let bodies = |stop| match stop {
        Stop::InBody | Stop::BeforeResult => Some(2),
        Stop::Called => None,
        _ => Some(1),
    };
    Case { contract: "read_only", effect: "look_up", gives: Some("found it"), bodies, holds: false }.check();
}

#[test]
fn an_idempotent_effect_runs_again_until_its_outcome_is_on_disk() {
    Case { contract: "idempotent", effect: "save", gives: Some("saved it"), bodies: repeated, holds: false }.check();
}

#[test]
fn a_keyed_effect_runs_again_with_its_key_until_its_outcome_is_on_disk() {
    Case { contract: "keyed", effect: "charge", gives: None, bodies: repeated, holds: false }.check();
}

#[test]
fn an_effect_that_may_run_once_is_held_when_it_is_in_doubt() {
    Case { contract: "hold", effect: "wire", gives: Some("wired it"), bodies: |_| Some(1), holds: true }.check();
}

#[test]
fn an_effect_that_may_run_once_is_reconciled_when_it_is_in_doubt() {
    Case { contract: "reconcile", effect: "mail", gives: Some("mailed it"), bodies: |_| Some(1), holds: false }.check();
}

#[test]
fn an_effect_that_may_run_once_hands_its_doubt_to_the_code_where_that_is_asked() {
    let bodies = |stop| Some(usize::from(stop != Stop::Called));
    Case { contract: "error", effect: "ship", gives: Some("shipped it"), bodies, holds: false }.check();
}

/// What each of a person's words does to a step that was in doubt since each of the points; and that it stays in doubt until then.
#[test]
fn a_held_step_stays_held_until_a_person_says_what_happened() {
    let contract = || "hold".to_owned();
    let words = [How::Succeeded, How::Failed, How::RunAgain];
    for (n, stop) in [Stop::Called, Stop::InBody, Stop::BeforeResult].into_iter().enumerate() {
        for (m, how) in words.into_iter().enumerate() {
            let at = format!("{how:?} after {stop:?}");
            let mut place = Place::new();
            place.killed_at(What::One { contract: contract() }, stop, Broken::No);
            let bodies = place.bodies("wire");
            // Five more restarts once for each point and each word.
            let restarts = if n == m { 5 } else { 1 };
            for _ in 0..restarts {
                let report = place.report(What::One { contract: contract() });
                assert_eq!(report.status, "held", "{at}");
                let doubts = named(&report.log, "effect.in_doubt").count();
                assert_eq!((place.bodies("wire"), place.bodies("save"), doubts), (bodies, 0, 1), "{at}");
            }
            let report = place.report(What::Resolve { contract: contract(), how });
            let (gives, more) = match how {
                How::Succeeded => ("a person's word", 0),
                How::Failed => ("failed: resolved_as_failed", 0),
                How::RunAgain => ("wired it", 1),
            };
            assert_eq!(report.output, Some(Ok(format!("saved notice of: {gives}"))), "{at}");
            assert_eq!(place.bodies("wire"), bodies + more, "{at}");
            assert_eq!(
                report.twice.as_deref().map(|code| &code[..4]),
                Some("DUR-"),
                "{at}: the second word is refused"
            );
            let decided: Vec<&Json> = named(&report.log, "effect.resolved").collect();
            assert_eq!(decided.len(), 1, "{at}: {decided:?}");
            let wrong = whole(&place, &report, more);
            assert!(wrong.is_empty(), "{at}: {wrong:#?}");
            println!("{at}: {} kills", place.kills);
        }
    }
}
