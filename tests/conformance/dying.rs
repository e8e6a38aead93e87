//! The test binary run once more as a process of its own, to be killed in the middle of a body.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use durable::Runtime;
use serde::{Deserialize, Serialize};

use crate::{
    GROUPS,
    common::ledger::{FileLedger, Line, World},
    play::{clock, ledger_path, open_store},
};

const TASK: &str = "CONFORMANCE_TASK";
const MARK: &str = "in the body";
/// A child that lives longer ends itself, so that none outlives its parent for long.
const LIFE_MAX: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
struct Task {
    row: String,
    place: std::path::PathBuf,
    run: String,
    path: String,
    attempt: u32,
}

/// Killed when the test is done with it, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has a child begin the row's run in the store at `place`, and kills it once that body has written its line.
pub(crate) fn killed_in_body(row: &str, place: &Path, run: &str, path: &str, attempt: u32) {
    let task = Task { row: row.into(), place: place.into(), run: run.into(), path: path.into(), attempt };
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "dying::as_a_child", "--nocapture", "--test-threads=1"]);
    command.env(TASK, serde_json::to_string(&task).unwrap()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let mut said = String::new();
    let lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        if line == MARK {
            return;
        }
        said.push_str(&line);
    }
    panic!("the child of {run} ended before its body: {said}");
}

/// Does nothing but in a child.
#[test]
fn as_a_child() {
    let Ok(task) = env::var(TASK) else { return };
    let task: Task = serde_json::from_str(&task).unwrap();
    thread::spawn(|| {
        thread::sleep(LIFE_MAX);
        std::process::exit(3);
    });
    let row = GROUPS.iter().flat_map(|(.., rows)| rows()).find(|row| row.id == task.row).unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(async {
        let ledger = FileLedger::open(&ledger_path(&task.place));
        let (path, attempt) = (task.path, task.attempt);
        let world = World::slow(ledger, Duration::ZERO, move |line: &Line| {
            if line.path == path && line.attempt == attempt {
                std::io::stderr().write_all(format!("{MARK}\n").as_bytes()).unwrap();
                // The parent kills it here.
                loop {
                    thread::park();
                }
            }
        });
        let builder = (row.build)(Runtime::builder().resource(world).clock(clock()));
        let runtime = builder.open_store(open_store(&task.place)).await.unwrap();
        (row.start.unwrap())(runtime.clone(), task.run).await.unwrap();
        std::future::pending::<()>().await;
    });
}
