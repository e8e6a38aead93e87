//! `purge`, `compact`, `doctor`.

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::Path,
    process::Stdio,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use durable::{
    RunId, Runtime, Seq,
    store::{
        Dump, Record, Store, Write, Written,
        sled::{SledOptions, SledStore},
    },
};
use serde_json::json;

use crate::{
    bench::{BOTH, Bench, until, until_state, until_terminal},
    holder::Holder,
    work::{fails, listens, panics, refunds, restarts, wires},
};

async fn some_ended(runtime: &Runtime) {
    for n in 0..5 {
        runtime.start(format!("done {n}"), refunds("ORD".into(), n)).await.unwrap();
        until_terminal(runtime, &format!("done {n}")).await;
    }
    runtime.start("failed", fails("no".into())).await.unwrap();
    until_terminal(runtime, "failed").await;
    runtime.start("listening", listens()).await.unwrap();
    until_state(runtime, "listening", "awaiting signal").await;
}

fn runs(bench: &Bench) -> Vec<String> {
    let mut runs: Vec<String> = bench
        .durable(["--json", "runs", "--limit", "0"])
        .ok()
        .lines()
        .iter()
        .map(|line| line["run"].as_str().unwrap().to_owned())
        .collect();
    runs.sort();
    runs
}

#[test]
fn a_purge_says_what_it_deletes_and_deletes_ended_runs_only() {
    for held in BOTH {
        let bench = Bench::held(held, some_ended);
        let said = bench.durable(["purge", "--dry-run"]).ok();
        assert!(said.out.contains("done 3") && said.out.contains("6 runs would be deleted"), "{said:?}");
        let said = bench.durable(["--json", "purge", "--dry-run", "--status", "failed"]).ok().json();
        assert_eq!(said, json!({ "dry_run": true, "runs": ["failed"], "deleted": 0 }));
        assert_eq!(bench.durable(["--json", "purge", "--older", "1d", "--yes"]).ok().json()["deleted"], 0);
        // Nobody is there to be asked.
        let said = bench.durable(["purge"]).exits(2);
        assert!(said.err.contains("--yes"), "{said:?}");
        bench.durable(["purge", "--status", "held", "--yes"]).exits(2);
        let said = bench.durable(["purge", "--status", "ended", "--dry-run"]).ok();
        assert!(said.out.contains("6 runs would be deleted"), "as runs takes it: {said:?}");
        assert_eq!(runs(&bench).len(), 7, "nothing was deleted so far");

        let said = bench.durable(["--json", "purge", "--status", "failed", "--yes"]).ok().json();
        assert_eq!(said, json!({ "dry_run": false, "deleted": 1 }));
        assert_eq!(bench.durable(["--json", "purge", "--older", "0s", "--yes"]).ok().json()["deleted"], 5);
        assert_eq!(runs(&bench), ["listening"]);
        bench.durable(["show", "done 1"]).exits(3);
        bench.durable(["doctor"]).ok();
        // It is none of the id's business that there was a run of this name.
        bench.durable(["signal", "listening", "steer", "1"]).ok();
        assert_eq!(bench.end_of("listening")["state"], "completed");
    }
}

#[test]
fn a_purge_that_is_killed_is_just_run_again() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            for n in 0..200 {
                runtime.start(format!("done {n}"), refunds("ORD".into(), n)).await.unwrap();
            }
            runtime.start("listening", listens()).await.unwrap();
            until_state(runtime, "listening", "awaiting signal").await;
            for n in 0..200 {
                until_terminal(runtime, &format!("done {n}")).await;
            }
        });
        // At ever later moments of its work, until one has come to its end.
        for wait in 0.. {
            let mut purge =
                bench.command(["purge", "--yes"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_millis(5 * wait * wait));
            let _ = purge.kill();
            let status = purge.wait().unwrap();
            bench.durable(["doctor"]).ok();
            assert!(runs(&bench).contains(&"listening".to_owned()));
            if status.success() {
                break;
            }
        }
        assert_eq!(runs(&bench), ["listening"]);
    }
}

#[test]
fn compact_gives_room_back_and_wants_the_store_for_itself() {
    let mut bench = Bench::new(async |runtime| {
        for n in 0..20 {
            runtime.start(format!("done {n}"), refunds("x".repeat(100_000), n)).await.unwrap();
            until_terminal(runtime, &format!("done {n}")).await;
        }
        runtime.start("held", wires(1)).await.unwrap();
        until_state(runtime, "held", "held").await;
    });
    bench.durable(["purge", "--yes"]).ok();
    bench.hold();
    let said = bench.durable(["compact"]).exits(4);
    assert!(said.err.contains("in use"), "{said:?}");
    bench.kill();
    until("the store is free", || bench.durable(["runs"]).code == Some(0));
    let export = bench.durable(["export", "held"]).ok().out;
    let said = bench.durable(["--json", "compact"]).ok().json();
    assert_eq!(said["runs"], 1);
    assert!(said["bytes_after"].as_u64().unwrap() < said["bytes_before"].as_u64().unwrap(), "{said}");
    bench.durable(["doctor"]).ok();
    assert_eq!(bench.durable(["export", "held"]).ok().out, export);
}

/// Changes what the store holds of a run, as no runtime would.
fn tamper(store: &Path, run: &str, change: impl FnOnce(&mut Dump)) {
    let store = Arc::new(SledStore::open(store, SledOptions::new()).unwrap());
    let id = RunId::new(run).unwrap();
    let mut dump = store.dump(&id).unwrap().unwrap();
    let write = |write: Write| {
        let (done, wait) = mpsc::channel();
        store.submit(write, Box::new(move |result| done.send(result).unwrap()));
        wait.recv().unwrap().unwrap()
    };
    assert_eq!(write(Write::Remove { run: id.clone() }), Written::Done);
    change(&mut dump);
    assert_eq!(write(Write::Restore { run: id, dump: Box::new(dump) }), Written::Created);
    store.close().unwrap();
}

#[test]
fn a_whole_store_has_nothing_for_a_doctor() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            some_ended(runtime).await;
            runtime.start("again", restarts(3)).await.unwrap();
            until_terminal(runtime, "again").await;
            runtime.start("held", wires(1)).await.unwrap();
            until_state(runtime, "held", "held").await;
        });
        let said = bench.durable(["--json", "doctor"]).ok().json();
        assert_eq!(said, json!({ "runs": 9, "findings": [], "parked": 0 }));
        assert!(bench.durable(["doctor"]).ok().out.contains("9 runs verified: nothing found"));
    }
}

#[test]
fn a_doctor_finds_each_planted_damage_and_says_what_to_do() {
    type Change = fn(&mut Dump);
    let damages: [(&str, Change); 7] = [
        ("damaged", |dump| {
            // One bit of a frame.
            let record = &mut dump.logs[0].1[0];
            let mut frames = record.frames.to_vec();
            *frames.last_mut().unwrap() ^= 1;
            record.frames = frames.into();
        }),
        ("illegal", |dump| {
            let next = dump.logs[0].1.iter().map(|record| u64::from(record.count)).sum();
            let first = dump.logs[0].1[0].clone();
            dump.logs[0].1.push(Record { first: Seq(next), ..first });
        }),
        ("index", |dump| dump.record.head.live = true),
        ("index", |dump| dump.record.head.bytes = vec![0xC1].into()),
        ("index", |dump| dump.owner = 77),
        ("index", |dump| {
            dump.logs[0].1.pop();
        }),
        ("mailbox", |dump| {
            dump.record.version = 1;
            dump.rows.push((1, durable::store::Row { id: 1, kind: 250, bytes: vec![1].into() }));
        }),
    ];
    for (n, (sort, change)) in damages.into_iter().enumerate() {
        let mut bench = Bench::new(some_ended);
        tamper(&bench.store(), "done 3", change);
        for held in BOTH {
            if held {
                bench.hold_as_it_is();
            }
            let said = bench.durable(["--json", "doctor"]).exits(1).json();
            let findings = said["findings"].as_array().unwrap();
            let found = findings.iter().find(|found| found["run"] == "done 3" && found["sort"] == sort);
            let found = found.unwrap_or_else(|| panic!("damage {n}, {sort}: {said}"));
            assert!(!found["what"].as_str().unwrap().is_empty() && !found["next"].as_str().unwrap().is_empty());
            assert!(findings.iter().all(|found| found["run"] == "done 3"), "damage {n}: {said}");
            let person = bench.durable(["doctor"]).exits(1).out;
            assert!(person.contains("run done 3") && person.contains("next:"), "{person}");
        }
    }
}

#[test]
fn a_store_that_does_not_open_is_a_finding_with_a_way_on() {
    let bench = Bench::new(some_ended);
    // As if acknowledged writes were gone: the count of them says more than the database holds.
    let water = bench.store().join("high-water");
    fs::remove_file(&water).unwrap();
    let said = bench.durable(["--json", "doctor"]).exits(1).json();
    assert_eq!((&said["findings"][0]["run"], &said["findings"][0]["sort"]), (&json!(null), &json!("damaged")));
    assert!(said["findings"][0]["next"].as_str().unwrap().contains("--accept-loss"), "{said}");
    assert_eq!(bench.durable(["--json", "runs"]).exits(4).error_code(), "DUR-0031");
    bench.durable(["doctor", "--accept-loss"]).ok();
    assert_eq!(runs(&bench).len(), 7);
}

#[test]
fn a_doctor_says_that_runs_of_a_whole_store_cannot_go_on() {
    for held in BOTH {
        let bench = Bench::held(held, async |runtime| {
            runtime.start("sick", panics("/nowhere/at/all".into())).await.unwrap();
            until_state(runtime, "sick", "parked").await;
        });
        bench.until_state("sick", "parked");
        let said = bench.durable(["doctor"]).ok().out;
        assert!(said.contains("1 run verified: nothing found"), "{said}");
        assert!(said.contains("1 run cannot go on") && said.contains("durable runs --status parked"), "{said}");
        assert_eq!(bench.durable(["--json", "doctor"]).ok().json()["parked"], 1);
    }
}

#[test]
fn a_torn_or_flipped_database_is_never_taken_for_a_whole_one() {
    let bench = Bench::new(some_ended);
    let db = bench.store().join("sled/db");
    let before: Vec<String> = runs(&bench).iter().map(|run| bench.durable(["export", run]).ok().out).collect();
    let whole = fs::read(&db).unwrap();
    let copy = |n: usize| {
        let place = bench.dir.path().join(format!("copy {n}"));
        copy_dir(&bench.store(), &place);
        place
    };
    let mut told = 0;
    // Only where there is something: the file is mostly room.
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    for n in 0..24 {
        let place = copy(n);
        let file = fs::OpenOptions::new().write(true).open(place.join("sled/db")).unwrap();
        let at = used[n * used.len() / 24];
        match n % 2 {
            0 => file.set_len(at as u64).unwrap(),
            _ => file.write_all_at(&[whole[at] ^ 0x10], at as u64).unwrap(),
        }
        let said = crate::bench::run(crate::bench::command(&place).args(["--json", "doctor"]));
        match said.code {
            // What was hit was not in use: then all is as before.
            Some(0) => {
                let list = crate::bench::run(crate::bench::command(&place).args(["--json", "runs"])).ok().lines();
                assert_eq!(list.len(), before.len());
                for export in &before {
                    let first: serde_json::Value = serde_json::from_str(export.lines().next().unwrap()).unwrap();
                    let run = first["run"].as_str().unwrap();
                    let again = crate::bench::run(crate::bench::command(&place).args(["export", run])).ok();
                    assert_eq!(again.out, *export, "damage {n}");
                }
            }
            Some(1) => {
                told += 1;
                let found = &said.json()["findings"][0];
                let next = found["next"].as_str().unwrap();
                assert!(next.contains("backup"), "{next}");
                let durable = |args: &[&str]| crate::bench::run(crate::bench::command(&place).args(args));
                let export = durable(&["export", "failed"]).exits(4);
                assert!(export.err.contains("durable doctor says what can be done"), "{export:?}");
                let accepted = durable(&["--json", "doctor", "--accept-loss"]);
                match next.contains("--accept-loss") {
                    true => assert!(
                        accepted.json()["findings"][0]["run"] != found["run"],
                        "damage {n}: it opens: {accepted:?}"
                    ),
                    // What is no way on is not recommended.
                    false => assert_eq!(accepted.exits(1).json()["findings"][0], *found, "damage {n}"),
                }
            }
            Some(4) => told += 1,
            other => panic!("damage {n}: {other:?}: {said:?}"),
        }
    }
    assert!(told >= 12, "what is cut off or changed is noticed: {told} of 24");
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_dir(&entry.path(), &to),
            kind if kind.is_file() => drop(fs::copy(entry.path(), &to).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn a_doctor_beside_a_busy_process_finds_nothing() {
    let mut bench = Bench::new(async |runtime| {
        for n in 0..30 {
            runtime.start(format!("listening {n}"), listens()).await.unwrap();
        }
        for n in 0..30 {
            until_state(runtime, &format!("listening {n}"), "awaiting signal").await;
        }
    });
    bench.hold();
    thread::scope(|scope| {
        let signals = scope.spawn(|| {
            for n in 0..30 {
                bench.durable(["signal", &format!("listening {n}"), "steer", "1"]).ok();
            }
        });
        while !signals.is_finished() {
            let said = bench.durable(["--json", "doctor"]).ok().json();
            assert_eq!(said["findings"], json!([]));
        }
    });
    let _: &Holder = bench.holder();
}
