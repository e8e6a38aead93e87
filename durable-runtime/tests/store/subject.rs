//! A store of any kind under test, and short words for what is done to it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

use bytes::Bytes;
use durable_runtime::{
    Epoch, Generation, RunId, Seq,
    store::{
        Act, Addressee, Batch, Dump, Head, Record, Row, RunRecord, Store, StoreError, Write, Written,
        memory::MemoryStore,
        sled::{SledOptions, SledStore},
    },
};

use crate::crash::CrashStore;

/// A directory of a test's own, removed with it.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stores-{}-{nth}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a directory and all in it.
pub(crate) fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}

/// All files below a directory and what is in them.
pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.push((path.clone(), None));
            found.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, Some(bytes)));
        }
    }
    found
}

/// The kinds of stores that the conformance suite runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    /// The simulated disk of the crash tests, syncing each write at once.
    Crash,
    /// As durable as the file system of the test allows.
    Sled,
    /// Without the synchronous directory.
    SledBestEffort,
}

/// One store under test.
pub(crate) struct Subject {
    kind: Kind,
    memory: Option<Arc<MemoryStore>>,
    crash: Option<Arc<CrashStore>>,
    store: Option<Arc<dyn Store>>,
    /// Last, for it goes after the store in it.
    dir: TempDir,
}

impl Subject {
    pub(crate) fn new(kind: Kind) -> Subject {
        let mut subject = Subject { kind, memory: None, crash: None, store: None, dir: TempDir::new() };
        subject.open();
        subject
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().unwrap()
    }

    /// Closes the store and opens it again, as the next process would.
    pub(crate) fn reopen(&mut self) {
        self.store().close().unwrap();
        self.open();
    }

    pub(crate) fn is_sled(&self) -> bool {
        matches!(self.kind, Kind::Sled | Kind::SledBestEffort)
    }

    fn open(&mut self) {
        let sled = |best_effort| {
            let options = SledOptions::new().best_effort(best_effort);
            Arc::new(SledStore::open(self.dir.join("store"), options).unwrap())
        };
        self.store = Some(match self.kind {
            Kind::Memory => {
                let store = Arc::new(self.memory.as_ref().map_or_else(MemoryStore::new, |store| store.reopened()));
                self.memory = Some(store.clone());
                store
            }
            Kind::Crash => {
                // Its way to be opened again is to crash; what it has synced is there.
                let store = Arc::new(self.crash.as_ref().map_or_else(CrashStore::new, |store| store.crash(0)));
                store.sync_after(1);
                self.crash = Some(store.clone());
                store
            }
            Kind::Sled => sled(false),
            Kind::SledBestEffort => sled(true),
        });
    }
}

pub(crate) fn run(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

pub(crate) fn head(generation: u32, live: bool, bytes: &'static str) -> Head {
    Head { generation: Generation(generation), live, bytes: Bytes::from_static(bytes.as_bytes()) }
}

pub(crate) fn row(id: u128, bytes: &'static str) -> Row {
    Row { id, kind: 7, bytes: Bytes::from_static(bytes.as_bytes()) }
}

/// Bytes that say where they belong, so that a mix-up shows.
pub(crate) fn frames(run: &RunId, at: u64, bytes: usize) -> Bytes {
    let mark = format!("[{}@{at}]", run.as_str());
    mark.bytes().cycle().take(bytes.max(1)).collect()
}

/// Submits a write and waits for its end.
pub(crate) fn now(store: &dyn Store, write: Write) -> Result<Written, StoreError> {
    later(store, write)()
}

/// Submits a write; the result waits for its end.
pub(crate) fn later(store: &dyn Store, write: Write) -> impl FnOnce() -> Result<Written, StoreError> + use<> {
    let (tell, told) = mpsc::channel();
    store.submit(write, Box::new(move |result| tell.send(result).unwrap()));
    move || {
        let result = told.recv_timeout(std::time::Duration::from_secs(60)).expect("`done` is called");
        assert_eq!(told.recv().ok(), None, "`done` is called once");
        result
    }
}

pub(crate) fn creation(run: &RunId) -> Write {
    Write::Create { run: run.clone(), count: 1, frames: frames(run, 0, 20), head: head(0, true, "") }
}

/// Puts a row, whatever the run is.
pub(crate) fn put(run: &RunId, row: Row) -> Write {
    Write::Put { run: run.clone(), row, to: Addressee::Anyone }
}

/// Claims without an aside.
pub(crate) fn claiming(run: &RunId) -> Write {
    Write::Claim { run: run.clone(), aside: None }
}

/// Releases without a wait.
pub(crate) fn releasing(run: &RunId, epoch: Epoch) -> Write {
    Write::Release { run: run.clone(), epoch, wait: None }
}

/// Makes a run with one entry and claims it.
pub(crate) fn born(store: &dyn Store, id: &str) -> (RunId, Epoch) {
    let run = run(id);
    assert!(matches!(now(store, creation(&run)), Ok(Written::Made { .. })));
    let epoch = claim(store, &run);
    (run, epoch)
}

pub(crate) fn claim(store: &dyn Store, run: &RunId) -> Epoch {
    match now(store, claiming(run)) {
        Ok(Written::Claimed(epoch)) => epoch,
        other => panic!("a claim gave {other:?}"),
    }
}

/// A batch of entries and nothing else.
pub(crate) fn batch(run: &RunId, epoch: Epoch, at: u64, count: u32, bytes: usize) -> Batch {
    let frames = if count == 0 { Bytes::new() } else { frames(run, at, bytes) };
    Batch { run: run.clone(), epoch, generation: Generation(0), at: Seq(at), count, frames, acts: vec![], head: None }
}

pub(crate) fn append(store: &dyn Store, batch: Batch) -> Result<Written, StoreError> {
    now(store, Write::Append(batch))
}

/// A batch without entries.
pub(crate) fn acts(run: &RunId, epoch: Epoch, acts: Vec<Act>) -> Batch {
    Batch { acts, ..batch(run, epoch, 0, 0, 0) }
}

/// A whole log: how many entries, and all frames.
pub(crate) fn log(store: &dyn Store, run: &RunId, generation: u32) -> (u64, Vec<u8>) {
    let records = store.read(run, Generation(generation), Seq(0), usize::MAX).unwrap();
    (end(&records).0, records.iter().flat_map(|record| record.frames.to_vec()).collect())
}

/// Where records end; they must follow each other.
pub(crate) fn end(records: &[Record]) -> Seq {
    let mut next = records.first().map_or(Seq(0), |record| record.first);
    for record in records {
        assert_eq!(record.first, next, "records follow each other");
        assert!(record.count > 0);
        next = next.plus(u64::from(record.count));
    }
    next
}

/// The ids and texts of a mailbox's rows.
pub(crate) fn rows(store: &dyn Store, run: &RunId) -> Vec<(u128, String)> {
    mailbox(store, run).into_iter().map(|row| (row.id, String::from_utf8(row.bytes.to_vec()).unwrap())).collect()
}

/// The rows of a mailbox, without their numbers.
pub(crate) fn mailbox(store: &dyn Store, run: &RunId) -> Vec<Row> {
    store.rows(run, 0, usize::MAX).unwrap().into_iter().map(|(_, row)| row).collect()
}

/// What is known of a run that is there.
pub(crate) fn record(store: &dyn Store, run: &RunId) -> RunRecord {
    store.run(run).unwrap().expect("the run is there")
}

/// All of a run that is there.
pub(crate) fn dump(store: &dyn Store, run: &RunId) -> Dump {
    store.dump(run).unwrap().expect("the run is there")
}
