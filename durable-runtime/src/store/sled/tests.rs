//! What only the inside can bring about: a full disk, a failing one, a writer that panics.

use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
};

use bytes::Bytes;

use super::*;
use crate::{
    id::Epoch,
    store::{Batch, Head, Wait, Written},
};

mod compacting;
mod removing;
mod torn;

pub(super) struct TempDir(pub(super) PathBuf);

impl TempDir {
    pub(super) fn new() -> TempDir {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("durable-sled-{}-{nth}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn plenty() -> writer::FreeSpace {
    Box::new(|| Some(u64::MAX))
}

pub(super) fn now(store: &SledStore, write: Write) -> Result<Written, StoreError> {
    let (tell, told) = mpsc::channel();
    store.submit(write, Box::new(move |result| tell.send(result).unwrap()));
    told.recv().unwrap()
}

fn run() -> RunId {
    RunId::new("r").unwrap()
}

pub(super) fn create(id: &str) -> Write {
    let head = Head { generation: Generation(0), live: true, bytes: Bytes::new() };
    Write::Create { run: RunId::new(id).unwrap(), count: 1, frames: Bytes::from_static(b"first"), head }
}

fn claim(store: &SledStore) -> Epoch {
    match now(store, Write::Claim { run: run(), aside: None }) {
        Ok(Written::Claimed(epoch)) => epoch,
        other => panic!("a claim gave {other:?}"),
    }
}

fn append(epoch: Epoch, at: u64, bytes: usize) -> Write {
    let frames = Bytes::from(vec![7; bytes]);
    let (acts, generation) = (Vec::new(), Generation(0));
    Write::Append(Batch { run: run(), epoch, generation, at: Seq(at), count: 1, frames, acts, head: None })
}

fn length(store: &SledStore) -> u64 {
    let records = store.read(&run(), Generation(0), Seq(0), usize::MAX).unwrap();
    records.iter().map(|record| u64::from(record.count)).sum()
}

#[test]
fn a_full_disk_refuses_writes_and_harms_nothing() {
    let dir = TempDir::new();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let probe = Arc::clone(&free);
    let options = SledOptions::new();
    let probe = Box::new(move || Some(probe.load(Ordering::Relaxed)));
    let store = SledStore::open_with(dir.0.clone(), &options, probe).unwrap();
    assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. })));
    let epoch = claim(&store);
    // Just too little for the write: four times its size beyond the reserve.
    free.store(RESERVE_BYTES + 3999, Ordering::Relaxed);
    let before = fs::read(dir.0.join("high-water")).unwrap();
    for write in [append(epoch, 1, 1000), create(&"x".repeat(100))] {
        let small = matches!(write, Write::Create { .. });
        match now(&store, write) {
            Ok(Written::Made { .. }) if small => {}
            Err(StoreError::Refused { reason }) if !small => {
                assert_eq!(&*reason, "16781215 bytes are free on the disk, the write needs 16781216");
                assert_eq!(fs::read(dir.0.join("high-water")).unwrap(), before, "nothing was written");
            }
            other => panic!("a write on a full disk gave {other:?}"),
        }
    }
    free.store(0, Ordering::Relaxed);
    assert!(matches!(now(&store, create("y")), Err(StoreError::Refused { .. })));
    // What needs no room goes on.
    let epoch = claim(&store);
    assert_eq!(length(&store), 1);
    free.store(RESERVE_BYTES + 4000, Ordering::Relaxed);
    assert_eq!(now(&store, append(epoch, 1, 1000)), Ok(Written::Done));
    assert_eq!(length(&store), 2);
    store.close().unwrap();
    let store = SledStore::open_with(dir.0.clone(), &options, plenty()).unwrap();
    assert_eq!(length(&store), 2);
    assert_eq!(store.run(&RunId::new("y").unwrap()), Ok(None));
}

#[test]
fn on_a_full_disk_runs_are_claimed_and_released_if_nothing_is_to_be_written() {
    let dir = TempDir::new();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let probe = Arc::clone(&free);
    let probe = Box::new(move || Some(probe.load(Ordering::Relaxed)));
    let store = SledStore::open_with(dir.0.clone(), &SledOptions::new(), probe).unwrap();
    assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. })));
    let epoch = claim(&store);
    let wait = Some(Wait { due: None, seen: 0, code: 0 });
    let release = |epoch, wait| Write::Release { run: run(), epoch, wait };
    let claim_with_aside = || Write::Claim { run: run(), aside: Some(Bytes::from_static(b"aside")) };
    free.store(0, Ordering::Relaxed);
    assert!(matches!(now(&store, release(epoch, wait)), Err(StoreError::Refused { .. })));
    assert!(matches!(now(&store, claim_with_aside()), Err(StoreError::Refused { .. })));
    assert!(matches!(now(&store, Write::Remove { run: run() }), Err(StoreError::Refused { .. })));
    assert_eq!(now(&store, Write::Barrier), Ok(Written::Done));
    // What was refused has changed nothing: the claim still holds.
    free.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(now(&store, append(epoch, 1, 10)), Ok(Written::Done));
    free.store(0, Ordering::Relaxed);
    assert_eq!(now(&store, release(epoch, None)), Ok(Written::Done));
    let epoch = claim(&store);
    free.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(now(&store, release(epoch, wait)), Ok(Written::Done));
    // A claim has to remove the wait.
    free.store(0, Ordering::Relaxed);
    let claim = Write::Claim { run: run(), aside: None };
    assert!(matches!(now(&store, claim), Err(StoreError::Refused { .. })));
    assert_eq!(store.run(&run()).unwrap().unwrap().wait, wait);
}

/// Breaks the store by `break_it`, and checks that it is refused from then on and whole when it is opened again.
fn check_poisoning(break_it: impl FnOnce(&mut writer::Writer) -> Arc<AtomicBool>) {
    let dir = TempDir::new();
    let options = SledOptions::new();
    let mut opened = open::open(&dir.0, &options, plenty()).unwrap();
    let broken = break_it(&mut opened.writer);
    let store = SledStore::start(&dir.0, opened).unwrap();
    assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. })));
    let epoch = claim(&store);
    assert_eq!(now(&store, append(epoch, 1, 10)), Ok(Written::Done));
    broken.store(true, Ordering::Relaxed);
    for write in [append(epoch, 2, 10), append(epoch, 3, 10), Write::Claim { run: run(), aside: None }] {
        assert!(matches!(now(&store, write), Err(StoreError::Poisoned { .. })));
    }
    broken.store(false, Ordering::Relaxed);
    assert!(matches!(now(&store, append(epoch, 2, 10)), Err(StoreError::Poisoned { .. })), "it does not heal");
    assert!(length(&store) >= 2, "reading goes on");
    store.close().unwrap();
    let store = SledStore::open_with(dir.0.clone(), &options, plenty()).unwrap();
    // The write that failed may have been written.
    let length = length(&store);
    assert!((2..=3).contains(&length));
    let epoch = claim(&store);
    assert_eq!(now(&store, append(epoch, length, 10)), Ok(Written::Done));
}

#[test]
fn a_writer_that_panics_poisons_the_store() {
    check_poisoning(|writer| {
        let broken = Arc::new(AtomicBool::new(false));
        let probe = Arc::clone(&broken);
        writer.room.free_space = Box::new(move || {
            assert!(!probe.load(Ordering::Relaxed), "the writer panics, as the test wants");
            None
        });
        broken
    });
}

#[test]
fn a_failed_sync_poisons_the_store() {
    let dir = TempDir::new();
    let mut opened = open::open(&dir.0, &SledOptions::new(), plenty()).unwrap();
    // A pipe cannot be synced.
    let (end, _other) = std::io::pipe().unwrap();
    opened.writer.barrier = Some(File::from(OwnedFd::from(end)));
    let store = SledStore::start(&dir.0, opened).unwrap();
    for _ in 0..2 {
        assert!(matches!(now(&store, create("r")), Err(StoreError::Poisoned { .. })));
    }
    store.close().unwrap();
    let store = SledStore::open(&dir.0, SledOptions::new()).unwrap();
    assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. } | Written::Exists)));
}

#[test]
fn all_that_waits_for_a_poisoned_group_is_told() {
    let dir = TempDir::new();
    let mut opened = open::open(&dir.0, &SledOptions::new(), plenty()).unwrap();
    let (go, wait) = mpsc::channel::<()>();
    opened.writer.room.free_space = Box::new(move || {
        let _ = wait.recv();
        panic!("the writer panics, as the test wants");
    });
    let store = SledStore::start(&dir.0, opened).unwrap();
    let (tell, told) = mpsc::channel();
    for nth in 0..100 {
        let tell = tell.clone();
        store.submit(create(&nth.to_string()), Box::new(move |result| tell.send(result).unwrap()));
    }
    drop(tell);
    go.send(()).unwrap();
    assert_eq!(told.iter().filter(|result| matches!(result, Err(StoreError::Poisoned { .. }))).count(), 100);
}

#[test]
fn a_write_that_can_never_fit_is_rejected() {
    let dir = TempDir::new();
    let store = SledStore::open(&dir.0, SledOptions::new()).unwrap();
    assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. })));
    let epoch = claim(&store);
    match now(&store, append(epoch, 1, WRITE_BYTES_MAX + 1)) {
        Err(StoreError::Rejected { reason }) => {
            assert_eq!(&*reason, "the write has 67108865 bytes, the store takes 67108864");
        }
        other => panic!("too large a write gave {other:?}"),
    }
    assert_eq!(now(&store, append(epoch, 1, WRITE_BYTES_MAX)), Ok(Written::Done));
    assert_eq!(length(&store), 2);
}
