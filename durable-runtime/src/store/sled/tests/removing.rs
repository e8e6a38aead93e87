//! A large run is removed in pieces, and nobody finds half of it.

use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::store::{Dump, Published, Record, RunRecord};

/// A run with about so many keys in each of the ranges that a run has.
pub(super) fn large(keys: u64) -> Dump {
    let bytes = |nth: u64| {
        Bytes::from(vec![u8::try_from(nth % 251).unwrap_or_default(); if nth % 64 == 5 { 40_000 } else { 40 }])
    };
    let records = |keys| (0..keys).map(|nth| Record { first: Seq(nth), count: 1, frames: bytes(nth) }).collect();
    let row = |nth: u64| (nth, Row { id: u128::from(nth), kind: 1, bytes: bytes(nth) });
    let name = |nth: u64| format!("{nth:06}").into();
    let published = |nth: u64| Published { generation: Generation(0), len: Seq(1), value: bytes(nth) };
    let head = Head { generation: Generation(1), live: false, bytes: Bytes::from(vec![9; 50_000]) };
    Dump {
        record: RunRecord { head, aside: Some(Bytes::from_static(b"aside")), wait: None, version: 2 * keys },
        owner: 8,
        logs: vec![(Generation(0), records(keys)), (Generation(1), records(1))],
        rows: (1..=keys).map(row).collect(),
        taken: (keys + 1..=2 * keys).map(u128::from).collect(),
        published: (0..keys).map(|nth| (name(nth), published(nth))).collect(),
    }
}

pub(super) fn restore(id: &str, dump: &Dump) -> Write {
    Write::Restore { run: RunId::new(id).unwrap(), dump: Box::new(dump.clone()) }
}

/// How many keys the store has, but for those about itself.
fn keys_of(medium: &Medium) -> usize {
    let mut keys = 0;
    let counted = medium.scan(Vec::new().., |key, _| {
        keys += usize::from(![keys::META, keys::UNDO].contains(&key));
        Ok(true)
    });
    counted.unwrap();
    keys
}

fn keys(store: &SledStore) -> usize {
    store.medium(|medium| Ok(keys_of(medium))).unwrap()
}

/// Waits until all is removed that is to be. Each write that the writer answers is followed by a piece.
fn until_removed(store: &SledStore, keys_left: usize) {
    for _ in 0..10_000 {
        if keys(store) == keys_left {
            return;
        }
        assert_eq!(now(store, Write::Barrier), Ok(Written::Done));
    }
    panic!("{} keys are there, {keys_left} should be left", keys(store));
}

#[test]
fn others_write_while_a_large_run_is_removed() {
    let dir = TempDir::new();
    let store = Arc::new(SledStore::open_with(dir.0.clone(), &SledOptions::new(), plenty()).unwrap());
    assert_eq!(now(&store, restore("r", &large(2000))), Ok(Written::Created));
    let before = keys(&store);
    assert!(before > 10_000, "{before}");
    let (tell, told) = mpsc::channel();
    let held = Arc::clone(&store);
    let remove = move |result| {
        assert_eq!(result, Ok(Written::Done));
        let counting = Arc::clone(&held);
        let created = move |result| tell.send((result, keys(&counting))).unwrap();
        held.submit(create("other"), Box::new(created));
    };
    store.submit(Write::Remove { run: run() }, Box::new(remove));
    let (created, left) = told.recv().unwrap();
    assert!(matches!(created, Ok(Written::Made { .. })));
    assert!(left > before - 1000, "one piece was between: {left} of {before} keys");
    assert_eq!((store.run(&run()), store.dump(&run())), (Ok(None), Ok(None)));
    // An entry, a state and a record.
    until_removed(&store, 3);
    assert_eq!(length_of(&store, "other"), 1);
}

fn length_of(store: &SledStore, id: &str) -> usize {
    store.read(&RunId::new(id).unwrap(), Generation(0), Seq(0), usize::MAX).unwrap().len()
}

#[test]
fn a_removal_that_was_cut_short_is_finished_after_the_next_opening() {
    for pieces in [0, 1, 4] {
        let dir = TempDir::new();
        let options = SledOptions::new();
        // After so many more pieces the disk is full, and removing stops.
        let allowed = Arc::new(AtomicI64::new(i64::MAX));
        let (stopped, stop) = mpsc::channel();
        let probe = Arc::clone(&allowed);
        let free_space = Box::new(move || {
            let left = probe.fetch_sub(1, Ordering::SeqCst);
            if left <= 0 {
                let _ = stopped.send(());
            }
            Some(if left > 0 { u64::MAX } else { 0 })
        });
        let store = SledStore::open_with(dir.0.clone(), &options, free_space).unwrap();
        assert!(matches!(now(&store, create("other")), Ok(Written::Made { .. })));
        assert_eq!(now(&store, restore("r", &large(1000))), Ok(Written::Created));
        let before = keys(&store);
        let allow = move |_| allowed.store(pieces, Ordering::SeqCst);
        store.submit(Write::Remove { run: run() }, Box::new(allow));
        stop.recv().unwrap();
        let left = keys(&store);
        store.close().unwrap();

        // The entry and its two chunks went at once, for the note that there is more.
        let whole = before - 3 + 1;
        let most = usize::try_from(512 * pieces).unwrap();
        assert!((whole - most..=whole).contains(&left), "{left} of {whole} keys after {pieces} pieces");
        assert_eq!(left == whole, pieces == 0);
        // Opening compares the index with its digest.
        let opened = open::open(&dir.0, &options, plenty()).unwrap();
        assert_eq!(keys_of(&opened.writer.medium), left);
        let store = SledStore::start(&dir.0, opened).unwrap();
        assert_eq!((store.run(&run()), store.runs(None, None, 9).unwrap().len()), (Ok(None), 1));
        assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. })));
        until_removed(&store, 6);
        assert_eq!((length_of(&store, "r"), length_of(&store, "other")), (1, 1));
        store.close().unwrap();
        SledStore::open(&dir.0, options).unwrap();
    }
}

#[test]
fn a_restoring_that_came_to_nothing_leaves_nothing() {
    let dir = TempDir::new();
    let store = SledStore::open_with(dir.0.clone(), &SledOptions::new(), plenty()).unwrap();
    assert!(matches!(now(&store, create("r")), Ok(Written::Made { .. })));
    assert_eq!(now(&store, restore("r", &large(1000))), Ok(Written::Exists));
    until_removed(&store, 3);
    let mut malformed = large(1000);
    malformed.rows.reverse();
    assert!(matches!(now(&store, restore("s", &malformed)), Err(StoreError::Rejected { .. })));
    until_removed(&store, 3);
    // A crash while the pieces are written: the note that they belong to nobody came with the first of them.
    let number = store.medium(read::meta).unwrap().unwrap().next_number;
    store.close().unwrap();
    let mut opened = open::open(&dir.0, &SledOptions::new(), plenty()).unwrap();
    assert_eq!(opened.writer.stage(&large(1000)).unwrap(), Some(number));
    let store = SledStore::start(&dir.0, opened).unwrap();
    assert_eq!(store.runs(None, None, 9).unwrap().len(), 1);
    until_removed(&store, 3);
}

#[test]
fn a_run_larger_than_any_write_is_restored_or_refused_for_now() {
    let dir = TempDir::new();
    let free = Arc::new(AtomicU64::new(0));
    let probe = Arc::clone(&free);
    let probe = Box::new(move || Some(probe.load(Ordering::Relaxed)));
    let store = SledStore::open_with(dir.0.clone(), &SledOptions::new(), probe).unwrap();
    let mut dump = large(3);
    let frames = Bytes::from(vec![7; WRITE_BYTES_MAX / 8]);
    dump.logs[1].1 = (0..9).map(|nth| Record { first: Seq(nth), count: 1, frames: frames.clone() }).collect();
    assert!(matches!(now(&store, restore("r", &dump)), Err(StoreError::Refused { .. })));
    free.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(now(&store, restore("r", &dump)), Ok(Written::Created));
    assert!(store.dump(&run()) == Ok(Some(dump)));
}
