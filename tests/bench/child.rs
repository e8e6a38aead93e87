//! The test binary run once more as a process of its own, to die.
//!
//! The child runs the test `as_a_child` of the binary alone, which looks into the environment for what to do, see [`work`].

use std::{
    env,
    io::{BufRead, BufReader, Write as _},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

const TASK: &str = "SCENARIO_TASK";
const DIR: &str = "SCENARIO_DIR";
const WORD: &str = "SCENARIO_WORD";
/// `SIGABRT` on Linux.
const ABORTED: i32 = 6;

fn command(task: &str, dir: &Path, word: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "as_a_child", "--nocapture", "--test-threads=1"]);
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
const THERE: &str = "there";

/// Says a line to the parent, in one write.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Says that the point is reached, and waits for the end: nobody who waits for this thread goes on.
pub(crate) fn stop() -> ! {
    say(THERE);
    loop {
        std::thread::park();
    }
}

/// Runs a child until it says that it is there, and kills it; what it had said before.
pub(crate) fn killed(task: &str, dir: &Path, word: &str) -> Vec<String> {
    let (mut child, mut said) = (Talking::start(task, dir, word), Vec::new());
    loop {
        match child.said() {
            Some(word) if word == THERE => break,
            Some(word) => said.push(word),
            None => panic!("the child {task} {word} ended before its point: {said:?}"),
        }
    }
    child.kill();
    said
}

/// Does nothing but in a child: what `work` does for a task, a directory and a word.
pub(crate) fn work(work: impl AsyncFnOnce(String, PathBuf, String)) {
    let (Ok(task), Some(dir), Ok(word)) = (env::var(TASK), env::var_os(DIR), env::var(WORD)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work(task, dir.into(), word));
}
