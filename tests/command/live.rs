//! O-ST-3 with the command beside a process that holds the store.

use std::{fs, path::Path};

use crate::{
    bench::{Bench, until, until_state, until_terminal},
    holder::Holder,
    work::{listens, refunds},
};

/// Names and contents of a store's files, but for the lock and the socket.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            all.extend(files(&path));
        } else if kind.is_file() && entry.file_name() != "LOCK" {
            all.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

/// Nothing goes on by itself, and so nothing changes by itself.
async fn done(runtime: &durable::Runtime) {
    runtime.start("done", refunds("ORD-1".into(), 1)).await.unwrap();
    until_terminal(runtime, "done").await;
}

async fn listening(runtime: &durable::Runtime) {
    runtime.start("listening", listens()).await.unwrap();
    until_state(runtime, "listening", "awaiting signal").await;
}

#[test]
fn a_process_without_a_socket_is_named_and_its_store_is_not_touched() {
    let bench = Bench::new(done);
    let holder = Holder::start_with(bench.dir.path(), false);
    let before = files(&bench.store());
    for args in [
        &["--json", "runs"][..],
        &["--json", "show", "done"],
        &["--json", "doctor"],
        &["--json", "signal", "done", "a", "1"],
    ] {
        let said = bench.durable(args).exits(4);
        assert_eq!(said.error_code(), "DUR-0030");
        assert!(said.err.contains(&holder.pid().to_string()) && said.err.contains("control"), "{said:?}");
    }
    assert!(files(&bench.store()) == before, "the files have changed");
    // One that was killed leaves nothing in the way.
    drop(holder);
    bench.durable(["show", "done"]).ok();
}

#[test]
fn looking_into_a_live_store_changes_none_of_its_files() {
    let mut bench = Bench::new(done);
    bench.hold();
    let before = files(&bench.store());
    for args in [
        &["runs"][..],
        &["show", "done"],
        &["log", "done"],
        &["ask"],
        &["holds"],
        &["doctor"],
        &["export", "done"],
        &["purge", "--dry-run"],
        &["workflows"],
    ] {
        bench.durable(args).ok();
    }
    assert!(files(&bench.store()) == before, "the files have changed");
}

#[test]
fn the_store_changes_hands_between_the_command_and_processes_again_and_again() {
    let mut bench = Bench::new(listening);
    for n in 0..15 {
        bench.durable(["signal", "listening", "other", &n.to_string()]).ok();
        bench.hold();
        bench.durable(["signal", "listening", "other", &n.to_string()]).ok();
        let messages = bench.durable(["--json", "show", "listening"]).ok().json()["messages"].as_array().unwrap().len();
        assert_eq!(messages, 2 * (n + 1));
        match n % 2 {
            0 => bench.kill(),
            _ => bench.let_go(),
        }
    }
    bench.durable(["doctor"]).ok();
}

#[test]
fn many_commands_at_once_are_all_served() {
    let mut bench = Bench::new(async |runtime| {
        for n in 0..20 {
            runtime.start(format!("listening {n}"), listens()).await.unwrap();
        }
    });
    bench.hold();
    let signals: Vec<_> = (0..20)
        .map(|n| bench.command(["signal", &format!("listening {n}"), "steer", &n.to_string()]).spawn().unwrap())
        .collect();
    for mut signal in signals {
        assert!(signal.wait().unwrap().success());
    }
    for n in 0..20 {
        assert_eq!(bench.end_of(&format!("listening {n}"))["outcome"], n);
    }
    until("nothing is left of it", || bench.durable(["runs", "--status", "unfinished"]).ok().out.is_empty());
}
