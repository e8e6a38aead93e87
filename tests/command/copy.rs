//! `export` and `import`.

use std::fs;

use durable::Runtime;
use serde_json::{Value as Json, json};

use crate::{
    bench::{BOTH, Bench, run, until_state, until_terminal},
    work::{adopts, approves, listens, parents, refunds, restarts, wires},
};

async fn all_sorts(runtime: &Runtime) {
    runtime.start("done", refunds("ORD-1".into(), 120)).await.unwrap();
    runtime.start("again", restarts(2)).await.unwrap();
    runtime.start("held", wires(5)).await.unwrap();
    runtime.start("asking", approves("ORD-2".into(), 9)).await.unwrap();
    runtime.start("parent", parents("child".into())).await.unwrap();
    until_terminal(runtime, "done").await;
    until_terminal(runtime, "again").await;
    until_state(runtime, "held", "held").await;
    until_state(runtime, "asking", "awaiting answer").await;
    until_state(runtime, "parent", "awaiting child").await;
    until_state(runtime, "child", "awaiting signal").await;
    runtime.signal("child", "other", &json!({ "unread": true })).await.unwrap();
}

const ALL: [&str; 6] = ["done", "again", "held", "asking", "parent", "child"];

/// The lines of an export, without what names the store that it comes from and the sum over that.
fn but_for_its_origin(export: &str) -> Vec<Json> {
    let mut lines: Vec<Json> = export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[0].as_object_mut().unwrap().remove("store").unwrap();
    lines.last_mut().unwrap()["end"].as_object_mut().unwrap().remove("sum").unwrap();
    lines
}

#[test]
fn a_run_survives_the_way_through_a_file_byte_for_byte() {
    for held in BOTH {
        let bench = Bench::held(false, all_sorts);
        let before: Vec<String> = ALL.iter().map(|id| bench.durable(["export", id]).ok().out).collect();
        let mut other = Bench::new(async |_| {});
        if held {
            other.hold();
        }
        for (id, export) in ALL.iter().zip(&before) {
            let file = bench.file(id);
            let said = bench.durable(["--json", "export", id, "-o", file.to_str().unwrap()]).ok().json();
            assert_eq!(said["run"], *id);
            assert_eq!(fs::read_to_string(&file).unwrap(), *export);
            let said = bench.durable(["export", id, "-o", file.to_str().unwrap()]).exits(1);
            assert!(said.err.contains("is there already") && said.err.contains("name another"), "{said:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), *export, "a file that is there is not overwritten");
            let word = file.to_str().unwrap();
            let ended = ["done", "again"].contains(id);
            if !ended {
                let said = other.durable(["import", word]).exits(1);
                assert!(said.err.contains("goes on twice"), "{said:?}");
            }
            let flag = if ended { &[][..] } else { &["--unfinished"] };
            let said = other.durable(["--json", "import", word].iter().chain(flag)).ok().json();
            assert_eq!((&said["run"], &said["imported"]), (&json!(id), &json!(true)));
            assert_eq!(
                said.get("missing"),
                (*id == "parent").then_some(&json!(["child"])),
                "it comes after its parent"
            );
            other.durable(["import", word].iter().chain(flag)).exits(1);
        }
        for (id, export) in ALL.iter().zip(&before) {
            if !held || ["done", "again"].contains(id) {
                let back = other.durable(["export", id]).ok().out;
                assert_eq!(but_for_its_origin(&back), but_for_its_origin(export), "{id}");
            }
        }
        other.durable(["doctor"]).ok();
        // What has not ended goes on there.
        if held {
            other.until_state("held", "held");
        }
        other.durable(["signal", "child", "steer", "7"]).ok();
        assert_eq!(other.end_of("parent")["outcome"], json!({ "Ok": 7 }));
    }
}

#[test]
fn a_run_comes_back_to_its_own_store_in_the_same_bytes() {
    for held in BOTH {
        let bench = Bench::held(held, all_sorts);
        for id in ["done", "again"] {
            let export = bench.durable(["export", id]).ok().out;
            let file = bench.file("export");
            fs::write(&file, &export).unwrap();
            bench.durable(["purge", "--workflow", if id == "done" { "refunds" } else { "restarts" }, "--yes"]).ok();
            bench.durable(["show", id]).exits(3);
            bench.durable(["import", file.to_str().unwrap()]).ok();
            assert_eq!(bench.durable(["export", id]).ok().out, export);
        }
    }
}

#[test]
fn an_export_can_be_read_line_by_line() {
    let bench = Bench::new(all_sorts);
    let export = bench.durable(["export", "done"]).ok().lines();
    let entries: Vec<Json> = export[1..export.len() - 1].to_vec();
    let mut bare = entries.clone();
    bare.iter_mut().for_each(|line| drop(line.as_object_mut().unwrap().remove("frame").unwrap()));
    assert_eq!(bare, bench.log("done"), "a log that is read without the code, so without places in the source");
    assert_eq!(export.last().unwrap()["end"]["entries"], entries.len());
}

#[test]
fn what_was_changed_is_refused_and_nothing_is_written() {
    for held in BOTH {
        let bench = Bench::new(all_sorts);
        let export = bench.durable(["export", "done"]).ok().out;
        let other = Bench::held(held, async |_| {});
        let refused = |text: &str, why: &str| {
            let file = bench.file("tampered");
            fs::write(&file, text).unwrap();
            let said = other.durable(["import", file.to_str().unwrap()]).exits(2);
            assert!(said.err.contains(why), "{why}: {said:?}");
            assert_eq!(other.durable(["runs"]).ok().out, "");
        };
        let lines: Vec<&str> = export.lines().collect();
        let with = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            change(&mut lines);
            lines.join("\n") + "\n"
        };
        refused("", "empty");
        refused("{}\n", "no exported run");
        refused("not json\n", "no exported run");
        refused(&"\0".repeat(1 << 16), "no exported run");
        refused(&with(&|lines| drop(lines.pop())), "cut off");
        refused(&with(&|lines| drop(lines.remove(3))), "cut off");
        refused(&with(&|lines| lines.swap(2, 3)), "checksum");
        refused(&with(&|lines| lines[2] = lines[2].replace("look", "book")), "checksum");
        refused(&with(&|lines| lines[0] = lines[0].replace("\"format\":1", "\"format\":9")), "format 9");
        refused(&with(&|lines| lines.push(lines[1].clone())), "after the last line");
        refused(&with(&|lines| lines[0] = lines[0].replace("\"done\"", "\"other\"")), "checksum");
    }
}

#[test]
fn what_was_changed_with_its_checksum_is_found_in_the_log() {
    use durable_runtime::control::Reader;
    // Someone who makes the sum anew cannot make a log that no run has: each frame has its own sum, and the fold has its rules.
    let bench = Bench::new(all_sorts);
    let export = bench.durable(["export", "done"]).ok().out;
    let read = || {
        let mut reader = Reader::new();
        export.lines().for_each(|line| reader.take(line).unwrap());
        reader.finish().unwrap()
    };
    let other = Bench::new(async |_| {});
    let refused = |change: &dyn Fn(&mut durable::store::Dump), why: &str| {
        let mut exported = read();
        change(&mut exported.dump);
        let mut text = String::new();
        let _ = exported.bare_lines(&mut |line| {
            text.push_str(&line);
            text.push('\n');
        });
        let file = bench.file("forged");
        fs::write(&file, text).unwrap();
        let said = other.durable(["import", file.to_str().unwrap()]).exits(2);
        assert!(said.err.contains(why), "{why}: {said:?}");
        assert_eq!(other.durable(["runs"]).ok().out, "");
    };
    refused(&|dump| dump.record.head.live = true, "the index lists the run as going on");
    refused(&|dump| dump.owner = 5, "child of another run");
    refused(&|dump| drop(dump.logs[0].1.pop()), "the index lists the run as ended");
    refused(
        &|dump| {
            let first = dump.logs[0].1[0].clone();
            dump.logs[0].1.push(durable::store::Record { first: durable::Seq(6), ..first });
        },
        "the run has ended",
    );
    // Untouched it is taken.
    let file = bench.file("whole");
    fs::write(&file, &export).unwrap();
    assert_eq!(run(&mut other.command(["import", file.to_str().unwrap()])).code, Some(0));
}

#[test]
fn an_import_makes_the_store_where_there_is_none() {
    let bench = Bench::new(async |runtime| {
        runtime.start("done", refunds("ORD-1".into(), 120)).await.unwrap();
        until_terminal(runtime, "done").await;
    });
    let file = bench.file("done.jsonl");
    bench.durable(["export", "done", "-o", file.to_str().unwrap()]).ok();
    let import = |store: &str, file: &str| {
        run(bench.command(["import", file, "--store", bench.file(store).to_str().unwrap()]).env_remove("DURABLE_STORE"))
    };
    fs::create_dir(bench.file("empty")).unwrap();
    fs::create_dir(bench.file("foreign")).unwrap();
    fs::write(bench.file("foreign/letter"), "dear ann").unwrap();
    fs::write(bench.file("torn"), "{}").unwrap();
    // What is no run makes no store, and what is something else is left alone.
    import("new", bench.file("torn").to_str().unwrap()).exits(2);
    assert!(!bench.file("new").exists());
    assert_eq!(import("foreign", file.to_str().unwrap()).code, Some(4));
    assert_eq!(fs::read_dir(bench.file("foreign")).unwrap().count(), 1);
    for store in ["new", "deep/in/new", "empty"] {
        import(store, file.to_str().unwrap()).ok();
        let place = bench.file(store);
        let shown = run(crate::bench::command(&place).args(["--json", "show", "done"])).ok().json();
        assert_eq!(shown["outcome"], json!({ "Ok": 120 }));
        run(crate::bench::command(&place).arg("doctor")).ok();
    }
}

#[test]
fn what_has_no_lines_is_not_read_to_its_end() {
    let other = Bench::new(async |_| {});
    let said = other.durable(["import", "/dev/zero"]).exits(2);
    assert!(said.err.contains("no exported run"), "{said:?}");
}

#[test]
fn an_import_reads_standard_input() {
    use std::{io::Write as _, process::Stdio};
    let bench = Bench::new(async |runtime| {
        runtime.start("listening", listens()).await.unwrap();
        until_state(runtime, "listening", "awaiting signal").await;
    });
    let export = bench.durable(["export", "listening"]).ok().out;
    let other = Bench::new(async |_| {});
    let mut child =
        other.command(["import", "-", "--unfinished"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(export.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(other.durable(["--json", "runs"]).ok().lines().len(), 1);
}

#[test]
fn a_child_that_was_given_no_id_is_its_parents_in_another_store_too() {
    let bench = Bench::new(async |runtime| {
        runtime.start("parent", adopts()).await.unwrap();
        until_state(runtime, "parent", "awaiting child").await;
    });
    let runs = bench.durable(["--json", "runs"]).ok().lines();
    let ids: Vec<&str> = runs.iter().map(|run| run["run"].as_str().unwrap()).collect();
    let child = ids.iter().find(|id| **id != "parent").unwrap();
    let mut other = Bench::new(async |_| {});
    for id in &ids {
        let file = bench.file("export");
        let _ = fs::remove_file(&file);
        bench.durable(["export", id, "-o", file.to_str().unwrap()]).ok();
        other.durable(["import", "--unfinished", file.to_str().unwrap()]).ok();
    }
    other.hold();
    other.durable(["signal", child, "steer", "7"]).ok();
    assert_eq!(other.end_of("parent")["outcome"], json!({ "Ok": 7 }));
    other.durable(["doctor"]).ok();
}

#[test]
fn a_run_that_is_imported_without_its_child_says_which_one_and_what_to_do() {
    for held in BOTH {
        let bench = Bench::new(async |runtime| {
            runtime.start("parent", parents("child/1".into())).await.unwrap();
            until_state(runtime, "parent", "awaiting child").await;
            until_state(runtime, "child/1", "awaiting signal").await;
        });
        let file = |name: &str| bench.file(name).to_str().unwrap().to_owned();
        let said = bench.durable(["export", "parent", "-o", &file("parent")]).ok();
        assert!(
            said.err.contains("waits for its child child/1") && said.err.contains("durable export child/1"),
            "{said:?}"
        );
        let said = bench.durable(["export", "parent"]).ok();
        assert!(said.err.contains("durable export child/1"), "{said:?}");
        assert_eq!(bench.durable(["export", "child/1", "-o", &file("child")]).ok().err, "");

        let other = Bench::held(held, async |_| {});
        let said = other.durable(["import", &file("parent"), "--unfinished"]).ok().out;
        for command in ["durable export child/1 -o child-1.jsonl", "durable import child-1.jsonl --unfinished"] {
            assert!(said.contains(command), "{said}");
        }
        other.until_state("parent", "awaiting child");
        let row = other.durable(["--json", "runs"]).ok().lines().remove(0);
        assert!(row["next"].as_str().unwrap().contains("import the run child/1 too"), "{row}");
        let shown = other.durable(["show", "parent"]).ok().out;
        assert!(
            shown.contains("not in this store") && shown.contains("next: it waits for its child child/1"),
            "{shown}"
        );
        let found = other.durable(["--json", "doctor"]).exits(1).json()["findings"][0].clone();
        assert!(found["next"].as_str().unwrap().contains("import that one too"), "{found}");
        assert!(found["next"].as_str().unwrap().contains("durable cancel parent"), "{found}");
        assert!(!found.to_string().contains("fault of the library"), "{found}");

        let said = other.durable(["--json", "import", &file("child"), "--unfinished"]).ok().json();
        assert_eq!(said, json!({ "run": "child/1", "imported": true }));
        other.durable(["doctor"]).ok();
        assert!(!other.durable(["show", "parent"]).ok().out.contains("import"));
        other.durable(["signal", "child/1", "steer", "7"]).ok();
        assert_eq!(other.end_of("parent")["outcome"], json!({ "Ok": 7 }));
        assert_eq!(other.durable(["export", "parent"]).ok().err, "", "it waits for nobody any more");
    }
}

#[test]
fn an_export_to_a_dash_is_on_standard_output() {
    let bench = Bench::new(async |runtime| {
        runtime.start("done", refunds("ORD-1".into(), 120)).await.unwrap();
        until_terminal(runtime, "done").await;
    });
    let plain = bench.durable(["export", "done"]).ok().out;
    let said = run(bench.command(["export", "done", "-o", "-"]).current_dir(bench.dir.path())).ok();
    assert_eq!(said.out, plain);
    assert!(!bench.file("-").exists());
}
