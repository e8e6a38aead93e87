//! The test binary run once more as a process of its own, to be killed, traced, or kept out.
//!
//! The child runs the test [`as_a_child`] alone, which looks into the environment for what to do.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use durable_runtime::{
    Seq,
    store::{
        Store, StoreError, Write, Written,
        sled::{Keep, SledOptions, SledStore},
    },
};

use crate::subject::{batch, claim, creation, frames, later, now, run};

const TASK: &str = "STORE_TEST_TASK";
const PLACE: &str = "STORE_TEST_PLACE";

/// The command that runs a task in a child, through the program `under` if one is given.
pub(crate) fn command(task: &str, store: &Path, under: &[OsString]) -> Command {
    let mut words: Vec<OsString> = under.to_vec();
    words.push(env::current_exe().unwrap().into());
    words.extend(["--exact", "child::as_a_child", "--nocapture", "--test-threads=1"].map(OsString::from));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(TASK, task).env(PLACE, store);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A child that says what it does on standard error, a line each. It is killed when the test ends.
pub(crate) struct Talking {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Talking {
    pub(crate) fn start(task: &str, store: &Path) -> Talking {
        let mut child = command(task, store, &[]).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Talking { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it says; `None` when it has ended.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        // A line that a kill cut off was not said.
        (self.lines.read_line(&mut line).unwrap() > 0 && line.ends_with('\n')).then(|| line.trim_end().to_owned())
    }

    /// Kills it as `kill -9` does, and reads what it had said before.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.line()).collect()
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does nothing but in a child.
#[test]
fn as_a_child() {
    let (Ok(task), Some(store)) = (env::var(TASK), env::var_os(PLACE)) else { return };
    let store = Path::new(&store);
    match task.as_str() {
        "hold" => hold(store),
        "open" => {
            let (took, opened) = open(store);
            say(&format!("{} ms: {}", took.as_millis(), opened.map_or_else(|e| e.to_string(), |_| "opened".into())));
        }
        "write" => write(store, SledOptions::new(), None),
        "write a little" => write(store, SledOptions::new(), Some(40)),
        "write a little, best effort" => write(store, SledOptions::new().best_effort(true), Some(40)),
        "write to sled as it comes" => write_to_sled(store),
        "remove" => remove(store),
        "compact" => compact(store),
        _ => panic!("no such task: {task}"),
    }
}

/// Says a line in one write, so that it is whole or not there, and one event in a trace.
fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Opens a store and says how long that took.
pub(crate) fn open(store: &Path) -> (Duration, Result<SledStore, StoreError>) {
    let begun = Instant::now();
    let opened = SledStore::open(store, SledOptions::new());
    (begun.elapsed(), opened)
}

/// Opens the store and keeps it.
fn hold(store: &Path) {
    let _store = SledStore::open(store, SledOptions::new()).unwrap();
    say("holding");
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Appends to four runs, a few batches at a time, and says `acknowledged RUN LENGTH` of each as it is acknowledged.
fn write(store: &Path, options: SledOptions, rounds: Option<u64>) {
    let store = SledStore::open(store, options).unwrap();
    let mut ends = [0; 4].map(|_| (run("unset"), durable_runtime::Epoch(0), Seq(0)));
    for (nth, end) in ends.iter_mut().enumerate() {
        let run = run(&format!("r{nth}"));
        assert!(matches!(now(&store, creation(&run)), Ok(Written::Made { .. } | Written::Exists)));
        let records = store.read(&run, durable_runtime::Generation(0), Seq(0), usize::MAX).unwrap();
        let epoch = claim(&store, &run);
        *end = (run, epoch, crate::subject::end(&records));
    }
    say("writing");
    for round in 0..rounds.unwrap_or(u64::MAX) {
        let waiting: Vec<_> = ends
            .iter_mut()
            .map(|(run, epoch, at)| {
                // Now and then one so large that it spills into a file of its own.
                let bytes = if round % 16 == 7 { 60_000 } else { 300 };
                let done = later(&store, Write::Append(batch(run, *epoch, at.0, 1, bytes)));
                *at = at.plus(1);
                (run.clone(), *at, done)
            })
            .collect();
        for (run, length, done) in waiting {
            assert_eq!(done(), Ok(Written::Done));
            say(&format!("acknowledged {} {length}", run.as_str()));
        }
    }
    store.close().unwrap();
}

/// Removes all runs, one after the other, and says `removed RUN` of each as it is acknowledged.
fn remove(store: &Path) {
    let store = SledStore::open(store, SledOptions::new()).unwrap();
    let runs = store.runs(None, None, usize::MAX).unwrap();
    say("removing");
    for (run, _) in runs {
        assert_eq!(now(&store, Write::Remove { run: run.clone() }), Ok(Written::Done));
        say(&format!("removed {}", run.as_str()));
    }
    // Until it is killed, what was removed goes on going.
    loop {
        assert_eq!(now(&store, Write::Barrier), Ok(Written::Done));
    }
}

/// Compacts the store and says how far it is.
fn compact(store: &Path) {
    let say_it = |done, of| say(&format!("{done} of {of}"));
    SledStore::compact(store, SledOptions::new(), Keep::All, say_it).unwrap();
    say("compacted");
}

/// What the store would be without its precautions: sled and its flush, nothing else.
fn write_to_sled(place: &Path) {
    let db = sled::Config::new().path(place.join("sled")).flush_every_ms(None).open().unwrap();
    say("writing");
    for length in 1..40_u64 {
        db.insert(length.to_be_bytes(), frames(&run("r0"), length - 1, 300).to_vec()).unwrap();
        db.flush().unwrap();
        say(&format!("acknowledged r0 {length}"));
    }
}
