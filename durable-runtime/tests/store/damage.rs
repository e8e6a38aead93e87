//! Torn and damaged files: whatever happens to them, what was acknowledged reads back as it was, or an error says so.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Once, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use durable_runtime::{
    Generation, RunId, Seq,
    store::{
        Act, Batch, Dump, Published, Record, Row, RunRecord, Store, StoreError, Wait, Write, Written,
        sled::{SledOptions, SledStore},
    },
};

use crate::subject::*;

const RUNS: u64 = 50;

/// What a store held, and a copy of its directory.
struct Original {
    dir: TempDir,
    path: PathBuf,
    runs: Vec<Known>,
}

struct Known {
    id: RunId,
    record: RunRecord,
    log: Vec<Record>,
    rows: Vec<(u64, Row)>,
    published: Vec<(Arc<str>, Published)>,
    /// The rest, as far as it is not there above: the first log, the ids of taken rows.
    dump: Dump,
}

impl Original {
    /// A store of 50 runs, each with two logs, a mailbox, a published value and an aside, some waiting, some ended.
    /// `closed`: closed in order, not as a kill leaves it.
    fn new(closed: bool) -> Original {
        let dir = TempDir::new();
        let live = dir.join("live");
        let store = SledStore::open(&live, SledOptions::new()).unwrap();
        let runs: Vec<_> = (0..RUNS).map(|nth| born(&store, &format!("run-{nth}"))).collect();
        for round in 0..12_u64 {
            let waiting: Vec<_> = (0..)
                .zip(&runs)
                .map(|(nth, (run, epoch))| {
                    let bytes = if (nth + round) % 29 == 0 { 50_000 } else { 100 + 37 * usize::try_from(nth).unwrap() };
                    let row = Row { id: u128::from(round), kind: 1, bytes: frames(run, round, bytes / 3) };
                    let mut acts = vec![Act::Put { to: run.clone(), row }];
                    if round % 3 == 2 {
                        acts.push(Act::Take { row: u128::from(round - 1) });
                    }
                    let last = round == 11 && nth % 3 == 0;
                    let head = (last || round % 4 == 1).then(|| head(0, !last, "head"));
                    later(&store, Write::Append(Batch { acts, head, ..batch(run, *epoch, 1 + round, 1, bytes) }))
                })
                .collect();
            for done in waiting {
                assert_eq!(done(), Ok(Written::Done));
            }
        }
        for (nth, (run, epoch)) in runs.iter().enumerate() {
            if nth % 3 != 0 {
                let publish = Act::Publish { name: "progress".into(), value: frames(run, 0, 40 * nth) };
                let next = Act::Next { count: 1, frames: frames(run, 0, 60) };
                let head = Some(head(1, true, "next"));
                let restart = Batch { acts: vec![publish, next], head, ..batch(run, *epoch, 13, 1, 80) };
                assert_eq!(append(&store, restart), Ok(Written::Done));
                let wait = Some(Wait { due: Some(7), seen: 12, code: 3 });
                let release = Write::Release { run: run.clone(), epoch: *epoch, wait };
                assert_eq!(now(&store, release), Ok(Written::Done));
            }
            let aside = Write::Aside { run: run.clone(), value: Some(Bytes::from_static(b"aside")) };
            assert_eq!(now(&store, aside), Ok(Written::Done));
        }
        let known = |id: RunId| Known {
            record: record(&store, &id),
            log: store.read(&id, Generation(0), Seq(0), usize::MAX).unwrap(),
            rows: store.rows(&id, 0, usize::MAX).unwrap(),
            published: store.published(&id).unwrap(),
            dump: dump(&store, &id),
            id,
        };
        let known: Vec<_> = runs.into_iter().map(|(run, _)| known(run)).collect();
        assert!(known.iter().all(|known| end(&known.log) >= Seq(13) && known.rows.len() == 8));
        assert!(known.iter().all(|known| known.dump.logs.len() == 1 + known.published.len()));
        let path = dir.join("original");
        if closed {
            store.close().unwrap();
            // A second life, so that there is a snapshot as in a store that has been about for a while.
            SledStore::open(&live, SledOptions::new()).unwrap().close().unwrap();
        }
        // An open store is copied as the kernel has it, which is what a kill leaves; not while sled is tidying up.
        loop {
            let before = contents(&live);
            copy_dir(&live, &path).unwrap();
            if contents(&live) == before && contents(&path).len() == before.len() {
                break;
            }
            fs::remove_dir_all(&path).unwrap();
        }
        Original { dir, path, runs: known }
    }

    /// Damages a copy and checks what comes of it. Returns what the damaged store said, if it did not open.
    fn check(&self, name: &str, damage: impl FnOnce(&Path)) -> Option<StoreError> {
        let copy = self.dir.join("damaged");
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&self.path, &copy).unwrap();
        damage(&copy);
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    let first = self.check_opening(name, &copy, SledOptions::new());
                    first.as_ref()?;
                    // sled has been at the files by now. It may have cleaned up damage that mattered to nobody, but
                    // nothing may be missing the second time that was missed the first time.
                    self.check_opening(name, &copy, SledOptions::new());
                    // Whoever accepts the loss gets what is left, or an error.
                    match SledStore::open(&copy, SledOptions::new().accept_loss(true)) {
                        Ok(store) => read_all(&store),
                        Err(error) => assert!(is_typed(&error), "{name}: {error:?}"),
                    }
                    first
                }));
                let _ = ended.send(result);
            });
            match end.recv_timeout(Duration::from_secs(120)) {
                Ok(Ok(said)) => said,
                Ok(Err(_)) => panic!("{name}: a panic, or what was read is not what was written"),
                Err(_) => {
                    eprintln!("{name}: it hangs");
                    std::process::abort();
                }
            }
        })
    }

    fn check_opening(&self, name: &str, copy: &Path, options: SledOptions) -> Option<StoreError> {
        let store = match SledStore::open(copy, options) {
            Ok(store) => store,
            Err(error) => {
                assert!(is_typed(&error), "{name}: {error:?}");
                assert!(error.to_string().contains(&copy.display().to_string()), "{name}: {error} names the place");
                return Some(error);
            }
        };
        let mut lost = None;
        for known in &self.runs {
            let log = store.read(&known.id, Generation(0), Seq(0), usize::MAX);
            let rows = store.rows(&known.id, 0, usize::MAX);
            let published = store.published(&known.id);
            let (record, dump) = (store.run(&known.id), store.dump(&known.id));
            let errors = [log.as_ref().err(), rows.as_ref().err(), published.as_ref().err(), record.as_ref().err()];
            for error in errors.into_iter().chain([dump.as_ref().err()]).flatten() {
                let of_the_run = matches!(error, StoreError::Damaged { run: Some(run), .. } if *run == known.id);
                assert!(of_the_run, "{name}: {error:?} names the run {}", known.id);
                lost = Some(error.clone());
            }
            assert!(log.is_err() || log.as_ref() == Ok(&known.log), "{name}: the log of {} has changed", known.id);
            assert!(rows.is_err() || rows.as_ref() == Ok(&known.rows), "{name}: the rows of {} have changed", known.id);
            let same = published.is_err() || published.as_ref() == Ok(&known.published);
            assert!(same, "{name}: what {} published has changed", known.id);
            assert!(
                dump.is_err() || dump == Ok(Some(known.dump.clone())),
                "{name}: the rest of {} has changed",
                known.id
            );
            assert!(record.is_err() || record == Ok(Some(known.record.clone())), "{name}: {} has changed", known.id);
        }
        for live in [true, false] {
            match store.runs(Some(live), None, 99) {
                Ok(listed) => {
                    let mut expected: Vec<_> =
                        self.runs.iter().filter(|known| known.record.head.live == live).collect();
                    expected.sort_by(|a, b| a.id.cmp(&b.id));
                    let expected: Vec<_> =
                        expected.into_iter().map(|known| (known.id.clone(), known.record.clone())).collect();
                    assert_eq!(listed, expected, "{name}: the list has changed");
                }
                Err(error) => assert!(is_typed(&error), "{name}: {error:?}"),
            }
        }
        let _ = store.close();
        lost
    }
}

fn is_typed(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged { .. } | StoreError::Io { .. } | StoreError::NotAStore { .. })
}

/// Reads and writes all that can be, for the sake of the panics that must not come.
fn read_all(store: &SledStore) {
    let Ok(listed) = store.runs(None, None, 999) else { return };
    for (id, _) in listed {
        let _ = (store.read(&id, Generation(0), Seq(0), usize::MAX), store.rows(&id, 0, 99), store.run(&id));
        let _ = (store.published(&id), store.dump(&id));
        let _ = now(store, claiming(&id));
        let _ = now(store, put(&id, row(99, "after the loss")));
        let _ = now(store, Write::Remove { run: id });
    }
    let _ = store.close();
}

/// Keeps sled's panics, which the store catches, out of the test's output.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |location| location.file());
            if !file.contains("/sled-0.34.7/") && !file.contains("/rustc/") {
                hook(panic);
            }
        }));
    });
}

/// A pair of originals: closed in order, and killed.
fn originals() -> [(&'static str, Original); 2] {
    quiet();
    [("closed", Original::new(true)), ("killed", Original::new(false))]
}

/// Numbers that look random and are the same each time.
fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

fn db(store: &Path) -> PathBuf {
    store.join("sled/db")
}

#[test]
fn a_store_that_is_not_damaged_is_as_it_was() {
    for (kind, original) in originals() {
        assert_eq!(original.check(kind, |_| {}), None);
    }
}

/// The null control: a check that finds nothing in a store that holds something else would find nothing ever.
#[test]
fn the_check_notices_what_it_is_there_for() {
    type Change = fn(&mut Known);
    let changes: [(&str, Change); 9] = [
        ("a shorter log", |known| drop(known.log.pop())),
        ("another log", |known| known.log[5].frames = Bytes::from_static(b"other")),
        ("fewer rows", |known| drop(known.rows.pop())),
        ("another head", |known| known.record.head.live = !known.record.head.live),
        ("no aside", |known| known.record.aside = None),
        ("no wait", |known| known.record.wait = None),
        ("nothing published", |known| known.published.clear()),
        ("fewer rows taken", |known| known.dump.taken.truncate(1)),
        ("another owner", |known| known.dump.owner = 1),
    ];
    for (name, change) in changes {
        let mut original = Original::new(true);
        change(&mut original.runs[17]);
        assert!(catch_unwind(AssertUnwindSafe(|| original.check(name, |_| {}))).is_err(), "{name}");
    }
}

#[test]
fn a_shortened_database_never_opens_shorter() {
    for (kind, original) in originals() {
        let length = fs::metadata(db(&original.path)).unwrap().len();
        for cut in (512..=64 * 1024).step_by(512).chain([length / 2, length - 512, length]) {
            let said = original.check(&format!("{kind}, {cut} bytes cut off"), |store| {
                OpenOptions::new().write(true).open(db(store)).unwrap().set_len(length - cut).unwrap();
            });
            // What is cut off may be room that sled has not used yet.
            assert!(said.is_some() || cut <= 64 * 1024, "{kind}: {cut} bytes are missed");
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    for (kind, original) in originals() {
        let length = fs::metadata(db(&original.path)).unwrap().len();
        let mut number = numbers(20_261_129);
        let mut noticed = 0;
        for nth in 0..200 {
            // Half of them near the end, where the newest writes are.
            let at = if nth % 2 == 0 { number(length) } else { length - 1 - number(length.min(256 * 1024)) };
            let bit = number(8);
            let said = original.check(&format!("{kind}, bit {bit} of byte {at} flipped"), |store| {
                let file = OpenOptions::new().read(true).write(true).open(db(store)).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
            });
            noticed += usize::from(said.is_some());
        }
        println!("{kind}: {noticed} of 200 flips mattered");
        assert!(noticed > 0);
    }
}

#[test]
fn zeros_are_noticed_or_harmless() {
    for (kind, original) in originals() {
        let length = fs::metadata(db(&original.path)).unwrap().len();
        for bytes in [512, 4096, 16 * 1024, 64 * 1024, 300 * 1024, length] {
            let bytes = bytes.min(length);
            original.check(&format!("{kind}, {bytes} bytes zeroed"), |store| {
                let file = OpenOptions::new().write(true).open(db(store)).unwrap();
                file.write_all_at(&vec![0; usize::try_from(bytes).unwrap()], length - bytes).unwrap();
            });
            // As after a crash that has lengthened the file and not written it.
            let said = original.check(&format!("{kind}, {bytes} bytes of zeros added"), |store| {
                OpenOptions::new().write(true).open(db(store)).unwrap().set_len(length + bytes).unwrap();
            });
            assert_eq!(said, None, "{kind}: nothing is missing");
        }
    }
}

#[test]
fn a_missing_or_torn_file_is_noticed_or_harmless() {
    for (kind, original) in originals() {
        let mut files = Vec::new();
        for dir in ["", "sled", "sled/blobs"] {
            for entry in fs::read_dir(original.path.join(dir)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    files.push(Path::new(dir).join(entry.file_name()));
                }
            }
        }
        let blobs = files.iter().filter(|file| file.starts_with("sled/blobs")).count();
        assert!(blobs > 0, "some values are in files of their own");
        for file in &files {
            let name = file.display().to_string();
            let removed = original.check(&format!("{kind}, {name} removed"), |store| {
                fs::remove_file(store.join(file)).unwrap();
            });
            let emptied = original.check(&format!("{kind}, {name} emptied"), |store| {
                File::create(store.join(file)).unwrap();
            });
            let halved = original.check(&format!("{kind}, half of {name}"), |store| {
                let file = OpenOptions::new().write(true).open(store.join(file)).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            });
            if matches!(name.as_str(), "STORE" | "high-water" | "sled/db") {
                assert!(removed.is_some() && emptied.is_some(), "{kind}: {name} was there and is missed");
            }
            if matches!(name.as_str(), "STORE" | "sled/db") {
                assert!(halved.is_some(), "{kind}: half of {name} is not enough");
            }
            if name == "LOCK" {
                assert_eq!((removed, emptied, halved), (None, None, None));
            }
        }
        let all =
            original.check(&format!("{kind}, no database"), |store| fs::remove_dir_all(store.join("sled")).unwrap());
        assert!(matches!(all, Some(StoreError::Damaged { .. })), "{all:?}");
    }
}

/// spacejam/sled#1527: what a kill leaves while sled writes a snapshot stops sled from opening.
#[test]
fn a_half_written_snapshot_is_harmless() {
    for (kind, original) in originals() {
        for bytes in [0, 1, 100] {
            let said = original.check(&format!("{kind}, {bytes} bytes of a snapshot"), |store| {
                fs::write(store.join("sled/snap.00000000FFFFFFFF.generating"), vec![7; bytes]).unwrap();
            });
            assert_eq!(said, None);
        }
    }
}

#[test]
fn an_older_database_is_noticed() {
    quiet();
    let dir = TempDir::new();
    let path = dir.join("store");
    let store = SledStore::open(&path, SledOptions::new()).unwrap();
    let (run, epoch) = born(&store, "r");
    store.close().unwrap();
    copy_dir(&path.join("sled"), &dir.join("old")).unwrap();
    let store = SledStore::open(&path, SledOptions::new()).unwrap();
    assert!(claim(&store, &run) > epoch);
    store.close().unwrap();
    drop(store);
    fs::remove_dir_all(path.join("sled")).unwrap();
    copy_dir(&dir.join("old"), &path.join("sled")).unwrap();
    for _ in 0..2 {
        let error = SledStore::open(&path, SledOptions::new()).unwrap_err();
        let text = format!(
            "the store {} is damaged: its newest writes may be missing: it holds 2 groups of writes, 3 were acknowledged",
            path.display()
        );
        assert_eq!(error.to_string(), text);
    }
    let store = SledStore::open(&path, SledOptions::new().accept_loss(true)).unwrap();
    assert_eq!(log(&store, &run, 0).0, 1);
    store.close().unwrap();
    drop(store);
    SledStore::open(&path, SledOptions::new()).unwrap();
}
