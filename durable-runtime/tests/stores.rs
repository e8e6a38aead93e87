//! The stores: one suite for all kinds, and what only the one on disk can get wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests measure how long something takes")]

#[path = "store/acting.rs"]
mod acting;
#[path = "store/child.rs"]
mod child;
#[path = "store/conformance.rs"]
mod conformance;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/damage.rs"]
mod damage;
#[path = "store/keeping.rs"]
mod keeping;
#[path = "store/killed.rs"]
mod killed;
#[path = "store/moving.rs"]
mod moving;
#[path = "store/opening.rs"]
mod opening;
#[path = "store/simulated.rs"]
mod simulated;
#[path = "store/subject.rs"]
mod subject;
#[path = "store/synced.rs"]
mod synced;

use subject::{Kind, Subject};

fn conforms(kind: Kind) {
    for (name, check) in conformance::CHECKS {
        // Shown if the check fails.
        println!("{kind:?}: {name}");
        check(&mut Subject::new(kind));
    }
}

#[test]
fn the_store_in_memory_keeps_the_contract() {
    conforms(Kind::Memory);
}

#[test]
fn the_store_of_the_crash_tests_keeps_the_contract() {
    conforms(Kind::Crash);
}

#[test]
fn the_store_in_a_directory_keeps_the_contract() {
    conforms(Kind::Sled);
}

#[test]
fn the_store_in_a_directory_that_is_not_synchronous_keeps_the_contract() {
    conforms(Kind::SledBestEffort);
}
