//! `workflows`, `explain`, `completions`, `--help`.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::json;

use crate::bench::{Bench, Said, command, run};

/// Outside of any store.
fn durable(args: &[&str]) -> Said {
    let nowhere = tempfile::tempdir().unwrap();
    run(command(&nowhere.path().join("none")).args(args))
}

/// A program of the test's own.
fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    (dir, path)
}

#[test]
fn a_binary_and_a_process_describe_their_workflows_alike() {
    let binary = env::current_exe().unwrap();
    let binary = binary.to_str().unwrap();
    let of_binary = durable(&["--json", "workflows", binary]).ok().json();
    let bench = Bench::held(true, async |_| {});
    let of_process = bench.durable(["--json", "workflows"]).ok().json();
    assert_eq!(of_binary, of_process);
    let (_dir, wordy) = script(&format!("printf 'half a line'\nexec '{binary}'"));
    assert_eq!(durable(&["--json", "workflows", wordy.to_str().unwrap()]).ok().json(), of_binary);
    let refunds = of_binary.as_array().unwrap().iter().find(|workflow| workflow["name"] == "refunds").unwrap();
    let steps = refunds["steps"].as_array().unwrap();
    let told: Vec<_> = steps.iter().map(|step| (&step["number"], &step["callee"], &step["contract"])).collect();
    assert_eq!(told, [(&json!(0), &json!("look"), &json!("read_only")), (&json!(1), &json!("refund"), &json!("key"))]);
    assert!(refunds["file"].as_str().unwrap().ends_with("work.rs") && steps[0]["line"].is_u64());

    let text = durable(&["workflows", binary]).ok().out;
    assert!(text.contains("refunds") && text.contains("0\tlook\tread_only\t"), "{text}");
    let chart = durable(&["workflows", binary, "--mermaid"]).ok().out;
    assert!(chart.starts_with("flowchart TD\n") && chart.contains("0 look<br/>read_only"), "{chart}");
    let said = Bench::new(async |_| {}).durable(["workflows"]).exits(2);
    assert!(said.err.contains("name a binary"), "{said:?}");
}

#[test]
fn a_binary_that_does_not_describe_itself_is_told_apart_from_one_that_hangs() {
    let (_dir, silent) = script("exit 3");
    let said = durable(&["workflows", silent.to_str().unwrap()]).exits(5);
    assert!(said.err.contains("does not describe itself") && said.err.contains("exit status: 3"), "{said:?}");
    let (_dir, chatty) = script("echo hello");
    durable(&["workflows", chatty.to_str().unwrap()]).exits(5);
    let (_dir, hanging) = script("exec sleep 1000");
    let said = durable(&["workflows", hanging.to_str().unwrap(), "--timeout", "50ms"]).exits(5);
    assert!(said.err.contains("50ms") && said.err.contains("killed"), "{said:?}");
    let (_dir, closing) = script("exec >&-; exec sleep 1000");
    durable(&["workflows", closing.to_str().unwrap(), "--timeout", "50ms"]).exits(5);
    durable(&["workflows", "/no/such/program"]).exits(5);
}

#[test]
fn every_code_is_explained() {
    for code in durable::Code::ALL {
        let said = durable(&["--json", "explain", &code.to_string()]).ok().json();
        assert_eq!(
            (said["code"].as_str().unwrap(), said["name"].as_str().unwrap()),
            (&*code.to_string(), &*format!("{code:?}"))
        );
        assert!(said["text"].as_str().unwrap().contains("**Remedy**"), "{said}");
    }
    let said = durable(&["explain", "dur-11"]).ok().out;
    assert!(said.starts_with("DUR-0011 Diverged"), "{said}");
    assert!(!said.contains("DUR-0012"), "one code at a time");
    durable(&["explain", "DUR-9999"]).exits(3);
    durable(&["explain", "what"]).exits(2);
}

#[test]
fn every_command_has_help_with_an_example() {
    let help = durable(&["--help"]).ok().out;
    for part in ["Exit codes:", "DURABLE_STORE", "--json", "NO_COLOR"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    let names = [
        "runs",
        "show",
        "log",
        "signal",
        "ask",
        "answer",
        "holds",
        "resolve",
        "cancel",
        "retry",
        "export",
        "import",
        "purge",
        "compact",
        "doctor",
        "workflows",
        "explain",
        "completions",
    ];
    for name in names {
        assert!(help.contains(&format!("\n  {name}")), "{name}");
        let of_it = durable(&[name, "--help"]).ok().out;
        assert!(of_it.contains("Example: durable"), "{name}: {of_it}");
    }
    durable(&[]).exits(2);
    durable(&["dance"]).exits(2);
    durable(&["runs", "--older", "soon"]).exits(2);
}

#[test]
fn shells_complete_it() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = durable(&["completions", shell]).ok().out;
        assert!(script.contains("resolve"), "{shell}");
    }
    durable(&["completions", "cmd.exe"]).exits(2);
}
