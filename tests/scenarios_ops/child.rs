//! The test binary run once more as a process of its own, to die.
//!
//! The child runs the test [`as_a_child`] alone, which looks into the environment for what to do.

use std::{
    env,
    io::{BufRead, BufReader, Write as _},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::{id_1, id_2, ob_1, ov_1, ri_1, rt_1, st_2, st_3, tm_1};

const TASK: &str = "SCENARIO_TASK";
const DIR: &str = "SCENARIO_DIR";
const WORD: &str = "SCENARIO_WORD";
/// `SIGABRT` on Linux.
const ABORTED: i32 = 6;

fn command(task: &str, dir: &Path, word: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child::as_a_child", "--nocapture", "--test-threads=1"]);
    command.env(TASK, task).env(DIR, dir).env(WORD, word).stdin(Stdio::null());
    command
}

/// Whether a child ended by itself, not by `abort`.
pub(crate) fn survives(task: &str, dir: &Path, word: &str) -> bool {
    let output = command(task, dir, word).output().unwrap();
    if output.status.success() {
        return true;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(ABORTED), "the child {task} {word} failed: {said}");
    false
}

/// Runs a child that must abort.
pub(crate) fn dies(task: &str, dir: &Path, word: &str) {
    assert!(!survives(task, dir, word), "the child {task} {word} was to abort");
}

/// A child that says what it does on standard output, a line each. It is killed when the test ends.
pub(crate) struct Talking {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Talking {
    pub(crate) fn start(task: &str, dir: &Path, word: &str) -> Talking {
        let mut child = command(task, dir, word).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Talking { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says; `None` when it has ended. What the test harness says is passed over.
    pub(crate) fn said(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            // A line that a kill cut off was not said.
            if self.lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return None;
            }
            if let Some(said) = line.trim_end().strip_prefix(MARK) {
                return Some(said.to_owned());
            }
        }
    }

    /// Kills it as `kill -9` does, and reads what it had said before.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.said()).collect()
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const MARK: &str = "scenario: ";

/// Says a line to the parent, in one write.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Does nothing but in a child.
#[test]
fn as_a_child() {
    let (Ok(task), Some(dir), Ok(word)) = (env::var(TASK), env::var_os(DIR), env::var(WORD)) else { return };
    let dir = Path::new(&dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match task.as_str() {
            "id_1" => id_1::child(dir, &word).await,
            "id_2" => id_2::child(dir).await,
            "ob_1" => ob_1::child(dir, &word).await,
            "ov_1" => ov_1::child(dir).await,
            "ri_1" => ri_1::child(dir, &word).await,
            "rt_1" => rt_1::child(dir, &word).await,
            "st_2" => st_2::child(dir).await,
            "st_3" => st_3::child(dir).await,
            "tm_1" => tm_1::child(dir, &word).await,
            _ => panic!("no such task: {task}"),
        }
    });
}
