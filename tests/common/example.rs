//! Examples, started as a person starts them.

#![allow(dead_code, reason = "each test binary takes what it needs")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;

/// The directory of the built examples. `cargo test --test examples` alone builds none, so this does, into the same target
/// directory and profile as this test's own.
static EXAMPLES: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--offline", "--examples", "--target-dir"]);
    cargo.arg(profile.parent().unwrap());
    // What cargo told this test about its package would be news to build scripts, which then would all run again.
    let about_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    env::vars().filter(|(name, _)| about_us(name)).for_each(|(name, _)| {
        cargo.env_remove(name);
    });
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    profile.join("examples")
});

/// An example in a place of its own for temporary files.
pub(crate) struct Example {
    pub(crate) temp: TempDir,
    pub(crate) command: Command,
}

/// How an example ended.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Example {
    pub(crate) fn new(name: &str) -> Example {
        let temp = tempfile::tempdir().unwrap();
        let mut command = Command::new(EXAMPLES.join(name));
        command.env("TMPDIR", temp.path()).env("NO_COLOR", "").stdin(Stdio::null());
        command.env("DURABLE_COMMAND", env!("CARGO_BIN_EXE_durable"));
        for variable in ["DURABLE_LLM_URL", "DURABLE_LLM_MODEL", "DURABLE_LLM_KEY", "RUST_BACKTRACE"] {
            command.env_remove(variable);
        }
        Example { temp, command }
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Example {
        self.command.args(args);
        self
    }

    pub(crate) fn model_at(mut self, url: &str) -> Example {
        self.command.env("DURABLE_LLM_URL", url).env("DURABLE_LLM_MODEL", "judge-1").env("DURABLE_LLM_KEY", "s3cret");
        self
    }

    /// Runs it to its end, and looks at what it leaves behind.
    pub(crate) fn run(mut self) -> Run {
        let Output { status, stdout, stderr } = self.command.output().unwrap();
        let left: Vec<_> = fs::read_dir(self.temp.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "it leaves files: {left:?}");
        assert_eq!(processes_of(self.temp.path()), [""; 0], "it leaves processes");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    pub(crate) fn runs_well(self) -> String {
        let Run { code, out, err } = self.run();
        assert_eq!((code, &*err), (Some(0), ""), "{out}");
        assert!(!out.contains('\x1b'), "no colour where there is no terminal: {out:?}");
        out
    }

    #[track_caller]
    pub(crate) fn fails(self, why: &str) {
        let Run { code, out, err } = self.run();
        assert_eq!(code, Some(1), "{out}\n{err}");
        assert!(err.contains(why), "it should say {why:?}: {err}");
    }
}

/// The command lines of all processes that were given a path in that directory.
pub(crate) fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let lines = all.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(dir)).collect()
}

/// Whether the texts stand in `out` in this order.
#[track_caller]
pub(crate) fn says_in_order(out: &str, texts: &[&str]) {
    let mut rest = out;
    for text in texts {
        let Some(at) = rest.find(text) else { panic!("{text:?} is not where it should be in:\n{out}") };
        rest = &rest[at + text.len()..];
    }
}

/// Waits for a condition, with a deadline that only a fault meets.
pub(crate) async fn until(what: &str, is: impl Fn() -> bool) {
    let waits = AtomicUsize::new(0);
    while !is() {
        assert!(waits.fetch_add(1, Ordering::Relaxed) < 6_000, "waited for ever until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
