//! O-RI-2 over the command: odd ids on every way in.

use durable::{Filter, RUN_ID_BYTES_MAX};
use serde_json::json;

use crate::{
    bench::{BOTH, Bench, until_state},
    work::listens,
};

/// Texts that an argument can be; those with NUL are in [`WITH_NUL`].
fn ids() -> Vec<String> {
    let long = "x".repeat(RUN_ID_BYTES_MAX);
    let mut ids: Vec<String> = [
        " ",
        "a/b",
        "a",
        "a/",
        "..",
        "-x",
        "--json",
        "-",
        "--",
        "\n",
        "a\nb",
        "\u{1F600}",
        "\u{202E}evil",
        "\u{E9}",
        "e\u{301}",
        "%",
        "%2F",
        "'",
        "\"",
        "run-1",
        "run-10",
        "$HOME",
        "\\",
        "a\\nb",
        "\t",
        "\u{7F}",
        "\u{1}",
        "*",
        "\u{10FFFF}",
    ]
    .map(str::to_owned)
    .into();
    ids.extend([long.clone(), format!("{}y", &long[1..])]);
    ids
}

const WITH_NUL: [(&str, &str); 2] = [("\0", "\\u{0}"), ("a\0b", "a\\u{0}b")];

#[test]
fn every_text_is_an_id_of_its_own_on_every_way_in() {
    for held in BOTH {
        let all: Vec<String> = ids().into_iter().chain(WITH_NUL.map(|(id, _)| id.to_owned())).collect();
        let bench = Bench::held(held, async |runtime| {
            for id in &all {
                runtime.start(id, listens()).await.unwrap();
            }
            for id in &all {
                until_state(runtime, id, "awaiting signal").await;
            }
        });
        let mut listed: Vec<String> = bench
            .durable(["--json", "runs"])
            .ok()
            .lines()
            .iter()
            .map(|line| line["run"].as_str().unwrap().to_owned())
            .collect();
        listed.sort();
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(listed, sorted);

        // On the command line as they are, behind `--`; those that cannot be there, with escapes.
        let plain = ids().into_iter().map(|id| (id.clone(), false, id));
        let escaped = WITH_NUL.iter().map(|(id, word)| ((*id).to_owned(), true, (*word).to_owned()));
        for (n, (id, escaped, word)) in plain.chain(escaped).enumerate() {
            let with = |first: &[&str], rest: &[&str]| {
                let mut args: Vec<&str> = if escaped { vec!["--escaped"] } else { Vec::new() };
                args.extend(first);
                args.extend(["--", &*word]);
                args.extend(rest);
                bench.durable(args)
            };
            assert_eq!(with(&["--json", "show"], &[]).ok().json()["run"], json!(id));
            assert_eq!(with(&["--json", "log"], &[]).ok().lines()[0]["entry"], "run.started");
            let exported = with(&["export"], &[]).ok().lines();
            assert_eq!(exported[0]["run"], json!(id));
            with(&["retry"], &[]).exits(1);
            with(&["resolve", "--run-again"], &["0", "1"]).exits(1);
            match n % 2 {
                0 => drop(with(&["signal"], &["steer", &n.to_string()]).ok()),
                _ => drop(with(&["cancel"], &[&format!("reason {n}")]).ok()),
            }
        }
        for (n, id) in all.iter().enumerate() {
            let end = bench.end_of(id);
            match n % 2 {
                0 => assert_eq!(end, json!({ "state": "completed", "outcome": n }), "{id:?}"),
                _ => assert_eq!(end["state"], "cancelled", "{id:?}"),
            }
        }
        bench.durable(["purge", "--yes"]).ok();
        assert_eq!(bench.durable(["--json", "runs"]).ok().out, "");
        if !held {
            assert!(bench.here(async |runtime| runtime.runs(Filter::all()).await.unwrap().is_empty()));
        }
    }
}

#[test]
fn what_is_no_id_is_refused_with_its_code_on_every_way_in() {
    for held in BOTH {
        let bench = Bench::held(held, async |_| {});
        for id in [String::new(), "x".repeat(RUN_ID_BYTES_MAX + 1), "\u{E9}".repeat(400), "x".repeat(64 * 1024)] {
            for (first, rest) in [
                (&["show"][..], &[][..]),
                (&["log"], &[]),
                (&["export"], &[]),
                (&["retry"], &[]),
                (&["signal"], &["name", "1"]),
                (&["cancel"], &["why"]),
                (&["resolve", "--run-again"], &["0", "1"]),
            ] {
                let said = bench
                    .durable(["--json"].iter().chain(first).copied().chain(["--", &*id]).chain(rest.iter().copied()));
                let said = said.exits(2);
                assert_eq!(said.error_code(), "DUR-0001", "{first:?}");
                assert!(said.err.len() < 400, "the message does not repeat the id: {said:?}");
            }
        }
        for escape in ["\\x", "\\u{110000}", "\\"] {
            bench.durable(["--escaped", "show", escape]).exits(2);
        }
    }
}

#[test]
fn a_word_that_is_no_utf_8_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let bench = Bench::new(async |_| {});
    let said = bench.durable([std::ffi::OsStr::new("show"), std::ffi::OsStr::from_bytes(b"a\xFFb")]).exits(2);
    assert!(!said.err.is_empty());
}
