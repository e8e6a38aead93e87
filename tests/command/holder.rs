//! A process that holds a store and goes on with its runs: this test binary, run once more.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::Duration,
};

use durable::Runtime;

const DIR: &str = "COMMAND_HOLDER_DIR";
const CONTROL: &str = "COMMAND_HOLDER_CONTROL";
const UNTIL: &str = "COMMAND_HOLDER_UNTIL";
const HOLDING: &str = "holder: holding";

/// Killed when it is dropped.
pub(crate) struct Holder {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Holder {
    /// Holds the store `store` in a directory, and offers the socket.
    pub(crate) fn start(dir: &Path) -> Holder {
        Holder::start_with(dir, true)
    }

    pub(crate) fn start_with(dir: &Path, control: bool) -> Holder {
        Holder::spawn(dir, |command| command.env(CONTROL, control.to_string()))
    }

    /// Holds the store until a run has ended, and shuts down in that moment, as a program does whose `main` waits for its output.
    pub(crate) fn start_until(dir: &Path, run: &str) -> Holder {
        Holder::spawn(dir, |command| command.env(UNTIL, run))
    }

    fn spawn(dir: &Path, how: impl FnOnce(&mut Command) -> &mut Command) -> Holder {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "holder::as_a_holder", "--nocapture", "--test-threads=1"]).env(DIR, dir);
        let mut child = how(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let holding = lines.by_ref().any(|line| line.unwrap().ends_with(HOLDING));
        assert!(holding, "the holder ended: {:?}", child.wait());
        // The test harness has something to say at its end, and must find somebody who listens.
        thread::spawn(move || lines.count());
        Holder { child, stdin }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    /// Stops it as Ctrl-Z does, or lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([&format!("-{signal}"), &self.pid().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Has it shut down in order.
    pub(crate) fn shut_down(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this is such a process.
pub(crate) fn is_holder() -> bool {
    env::var_os(DIR).is_some()
}

/// Does nothing but in a process that is to hold a store.
#[test]
fn as_a_holder() {
    let Some(dir) = env::var_os(DIR) else {
        // So that a test can have this binary describe its workflows.
        if env::var_os("DURABLE_DESCRIBE").is_some() {
            drop(Runtime::builder());
        }
        return;
    };
    let control = env::var(CONTROL).is_ok_and(|control| control == "true") || env::var_os(UNTIL).is_some();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::builder().control(control).open(Path::new(&dir).join("store")).await.unwrap();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\n{HOLDING}\n").as_bytes()).unwrap();
        out.flush().unwrap();
        drop(out);
        match env::var(UNTIL) {
            Ok(run) => {
                // However it ends.
                let _ = runtime.run(&run).await.unwrap().returned_as::<serde_json::Value>().await;
            }
            Err(_) => {
                let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
                closed.await.unwrap().unwrap();
            }
        }
        runtime.shutdown(Duration::ZERO).await.unwrap();
    });
}
