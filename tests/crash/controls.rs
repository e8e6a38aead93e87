//! The harness notices what it is for: broken stores and a contract that is a lie.

use crate::{
    child::{Place, What},
    common::check::{self, Seen, Shown, only},
    points::whole,
    stops::{Broken, Stop},
    work::RUN,
};

fn one(contract: &str) -> What {
    What::One { contract: contract.to_owned() }
}

#[test]
fn a_missing_barrier_is_noticed() {
    let mut place = Place::new();
    // The intent is acknowledged, so the body begins; and it was never written.
    place.killed_at(one("hold"), Stop::InBody, Broken::DropsAppends { after: 0 });
    let report = place.report(one("hold"));
    let wrong = whole(&place, &report, 0);
    println!("{wrong:#?}");
    assert!(wrong.iter().any(|what| what.contains("2 bodies, and at most 1 may be")), "{wrong:#?}");
}

#[test]
fn an_outcome_that_was_acknowledged_and_not_written_is_noticed() {
    let mut place = Place::new();
    let shown = place.report_on(one("hold"), Broken::DropsOutcomes);
    let Some(Ok(output)) = shown.output else { panic!("it was to be lost after it was shown: {shown:?}") };
    let report = place.report(one("hold"));
    let shown = Shown { started: true, output: Some(Ok(output)), ..Shown::default() };
    let wrong = check::shown(RUN, &shown, &Seen::of(report.log.clone()), 0);
    println!("{wrong:#?}");
    assert!(wrong.iter().any(|what| what.contains("its output was given")), "{report:#?}");
}

#[test]
fn a_contract_that_is_a_lie_is_noticed() {
    for stop in [Stop::InBody, Stop::BeforeResult] {
        let mut place = Place::new();
        place.killed_at(one("a lie"), stop, Broken::No);
        let report = place.report(one("a lie"));
        let wrong = check::ledger(&place.ledger(), &only(RUN, report.log), 0);
        println!("{wrong:#?}");
        assert!(wrong.iter().any(|what| what.contains("2 bodies, and at most 1 may be")), "{stop:?}: {wrong:#?}");
    }
}
