//! The language-neutral conformance list of durable execution, groups 1 to 9, a row per case in a table per group.
//!
//! A row says which workflow runs, where its process ends and the next one goes on, and what must come of it: the end, the
//! log and the bodies begun. `play` is the one runner of all rows, on both stores; `row` is what a row says, `lines` how a
//! log is compared with what the row says of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "conformance/callback.rs"]
mod callback;
#[path = "conformance/child_run.rs"]
mod child_run;
#[path = "common/mod.rs"]
mod common;
#[path = "conformance/controls.rs"]
mod controls;
#[path = "conformance/dying.rs"]
mod dying;
#[path = "conformance/effect.rs"]
mod effect;
#[path = "conformance/effects.rs"]
mod effects;
#[path = "conformance/hand_out.rs"]
mod hand_out;
#[path = "conformance/join.rs"]
mod join;
#[path = "conformance/lines.rs"]
mod lines;
#[path = "conformance/map.rs"]
mod map;
#[path = "conformance/play.rs"]
mod play;
#[path = "conformance/polling.rs"]
mod polling;
#[path = "conformance/row.rs"]
mod row;
#[path = "conformance/scope.rs"]
mod scope;
#[path = "conformance/sleep.rs"]
mod sleep;
#[path = "conformance/tolerant.rs"]
mod tolerant;
#[path = "common/traces.rs"]
mod traces;

use row::Row;

/// Number, how many cases the list has, and our rows.
type Group = (&'static str, u32, fn() -> Vec<Row>);

const GROUPS: [Group; 9] = [
    ("1", 20, effect::rows),
    ("2", 5, sleep::rows),
    ("3", 18, scope::rows),
    ("4", 19, callback::rows),
    ("5", 16, child_run::rows),
    ("6", 13, polling::rows),
    ("7", 15, hand_out::rows),
    ("8", 22, join::rows),
    ("9", 20, map::rows),
];

/// Plays a group on both stores, and fails with all that is wrong.
fn group(number: &str) {
    let (_, _, rows) = GROUPS.iter().find(|(group, ..)| *group == number).unwrap();
    let rows = rows();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wrong = threads.block_on(async {
        let mut wrong = Vec::new();
        for row in &rows {
            for backend in play::BOTH {
                if let Err(what) = play::check(row, backend).await {
                    wrong.push(format!("{} on {backend:?}: {}\n{what}", row.id, row.says));
                }
            }
        }
        wrong
    });
    let left_out: Vec<_> = rows.iter().filter_map(|row| Some((row.id, row.na?))).collect();
    let ran = rows.len() - left_out.len();
    println!("group {number}: {ran} cases ran on two stores, {} have no counterpart", left_out.len());
    left_out.iter().for_each(|(id, why)| println!("  {id} has none: {why}"));
    assert!(wrong.is_empty(), "{} of {} are wrong\n\n{}", wrong.len(), 2 * ran, wrong.join("\n\n"));
}

/// What is wrong with the numbers of a group's rows.
fn misnumbered(group: &str, cases: u32, rows: &[Row]) -> Vec<String> {
    let count = |id: &str| rows.iter().filter(|row| row.id == id).count();
    let ids: Vec<_> = (1..=cases).map(|n| format!("{group}-{n}")).collect();
    let not_once = ids.iter().filter(|id| count(id) != 1).map(|id| format!("{id}: {} rows", count(id)));
    let unknown = rows.iter().filter(|row| !ids.iter().any(|id| id == row.id));
    not_once.chain(unknown.map(|row| format!("{}: no such case", row.id))).collect()
}

#[test]
fn every_case_of_the_list_has_one_row() {
    let wrong: Vec<_> = GROUPS.iter().flat_map(|(group, cases, rows)| misnumbered(group, *cases, &rows())).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn effects() {
    group("1");
}

#[test]
fn sleeps() {
    group("2");
}

#[test]
fn nested_scopes() {
    group("3");
}

#[test]
fn tokens_that_are_answered() {
    group("4");
}

#[test]
fn child_runs() {
    group("5");
}

#[test]
fn tokens_that_are_handed_out() {
    group("7");
}

#[test]
fn polling_loops() {
    group("6");
}

#[test]
fn joins() {
    group("8");
}

#[test]
fn joins_over_items() {
    group("9");
}
