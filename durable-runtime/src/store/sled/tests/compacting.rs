//! A compaction leaves all that it should, wherever the process ends.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    removing::{large, restore},
    *,
};
use crate::store::{Act, Addressee, Dump, Published, Record, RunRecord};

const STORE: &str = "COMPACTING_STORE";
const STEP: &str = "COMPACTING_STEP";

fn id(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

/// A small run that has something of everything.
fn small(nth: u64) -> Dump {
    let text = |text: &str| Bytes::from(format!("{text} of {nth}"));
    let head = Head { generation: Generation(0), live: !nth.is_multiple_of(3), bytes: text("head") };
    let wait = (nth % 3 == 1).then_some(Wait { due: Some(nth), seen: 2, code: 7 });
    let published = Published { generation: Generation(0), len: Seq(2), value: text("published") };
    Dump {
        record: RunRecord { head, aside: nth.is_multiple_of(2).then(|| text("aside")), wait, version: 2 },
        owner: u128::from(nth % 2),
        logs: vec![(Generation(0), vec![Record { first: Seq(0), count: 2, frames: text("log") }])],
        rows: vec![(2, Row { id: 5, kind: 1, bytes: text("row") })],
        taken: vec![4],
        published: vec![("name".into(), published)],
    }
}

/// A store with runs that have ended and others, a large one among each, removed ones, and a mailbox without a run.
/// Returns what it holds.
fn make(store: &Path) -> Vec<(RunId, Dump)> {
    let opened = SledStore::open(store, SledOptions::new()).unwrap();
    let mut runs: Vec<_> = (0..40).map(|nth| (id(&format!("run {nth:02}")), small(nth))).collect();
    let ended = large(300);
    let mut live = ended.clone();
    live.record.head.live = true;
    runs.extend([(id("large, ended"), ended), (id("large, live"), live)]);
    for (run, dump) in &runs {
        assert_eq!(now(&opened, restore(run.as_str(), dump)), Ok(Written::Created));
    }
    for gone in ["run 00", "large, ended"] {
        assert_eq!(now(&opened, Write::Remove { run: id(gone) }), Ok(Written::Done));
    }
    assert_eq!(now(&opened, restore("large, ended", &runs[40].1)), Ok(Written::Created));
    let early = Row { id: 1, kind: 2, bytes: Bytes::from_static(b"early") };
    assert_eq!(now(&opened, Write::Put { run: id("early"), row: early, to: Addressee::Anyone }), Ok(Written::Done));
    opened.close().unwrap();
    runs.remove(0);
    runs.sort_by(|(a, _), (b, _)| a.cmp(b));
    runs
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// What a store holds; it must open and have no leftovers.
fn held(store: &Path) -> Vec<(RunId, Dump)> {
    let opened = SledStore::open(store, SledOptions::new()).unwrap();
    for left in ["sled.new", "sled.old"] {
        assert!(!store.join(left).exists(), "{left} is there");
    }
    let early = opened.rows(&id("early"), 0, 9).unwrap();
    assert_eq!(early.iter().map(|(number, row)| (*number, &*row.bytes)).collect::<Vec<_>>(), [(1, &b"early"[..])]);
    let runs = dumps(&opened);
    opened.close().unwrap();
    runs
}

pub(super) fn dumps(store: &SledStore) -> Vec<(RunId, Dump)> {
    let runs = store.runs(None, None, 999).unwrap().into_iter();
    runs.map(|(run, _)| (run.clone(), store.dump(&run).unwrap().unwrap())).collect()
}

fn unfinished(runs: &[(RunId, Dump)]) -> Vec<(RunId, Dump)> {
    runs.iter().filter(|(_, dump)| dump.record.head.live).cloned().collect()
}

fn compacted(store: &Path, keep: Keep) -> Compacted {
    SledStore::compact(store, SledOptions::new(), keep, |_, _| {}).unwrap()
}

#[test]
fn what_is_kept_is_the_same_and_takes_less_room() {
    let dir = TempDir::new();
    let runs = make(&dir.0);
    let other = dir.0.join("control.sock");
    fs::write(&other, "not the store's").unwrap();
    let store = SledStore::open(&dir.0, SledOptions::new()).unwrap();
    let store_id = store.about().id;
    let claim = Write::Claim { run: id("run 01"), aside: None };
    let Ok(Written::Claimed(before)) = now(&store, claim.clone()) else { panic!("a claim is answered with an epoch") };
    store.close().unwrap();

    let mut told = Vec::new();
    let all = SledStore::compact(&dir.0, SledOptions::new(), Keep::All, |done, of| told.push((done, of))).unwrap();
    let of = runs.len() as u64;
    assert_eq!((all.runs, told), (of, (0..=of).map(|done| (done, of)).collect()));
    assert!(all.bytes_after < all.bytes_before, "{all:?}");
    let mut runs = runs;
    let waiting = runs.iter_mut().find(|(run, _)| run.as_str() == "run 01").unwrap();
    waiting.1.record.wait = None;
    waiting.1.record.aside = None;
    assert_eq!(held(&dir.0), runs);

    let some = compacted(&dir.0, Keep::Unfinished);
    assert_eq!(some.runs, unfinished(&runs).len() as u64);
    assert!(some.bytes_after < all.bytes_after);
    assert_eq!(held(&dir.0), unfinished(&runs));
    assert_eq!(fs::read_to_string(&other).unwrap(), "not the store's");

    // It goes on as the same store.
    let store = SledStore::open(&dir.0, SledOptions::new()).unwrap();
    assert_eq!(store.about().id, store_id);
    let Ok(Written::Claimed(epoch)) = now(&store, claim) else { panic!("a claim is answered with an epoch") };
    assert!(epoch > before);
    let publish = Act::Publish { name: "new".into(), value: Bytes::new() };
    let (run, at, count, frames) = (id("run 01"), Seq(2), 1, Bytes::from_static(b"more"));
    let (generation, acts, head) = (Generation(0), vec![publish], None);
    let batch = Batch { run, epoch, generation, at, count, frames, acts, head };
    assert_eq!(now(&store, Write::Append(batch)), Ok(Written::Done));
    assert!(matches!(now(&store, create("run 00")), Ok(Written::Made { .. })));
    assert!(
        matches!(now(&store, create("run 03")), Ok(Written::Made { .. })),
        "a run that was not kept was never there"
    );
    store.close().unwrap();
    compacted(&dir.0, Keep::All);
    assert_eq!(held(&dir.0).len(), unfinished(&runs).len() + 2);
}

/// Runs a compaction that ends the process when it has come to a step, if there is one.
#[test]
fn as_a_child() {
    let (Some(store), Ok(step)) = (env::var_os(STORE), env::var(STEP)) else { return };
    let (store, mut left) = (Path::new(&store), step.parse::<u32>().unwrap());
    let between = &mut || match left {
        0 => std::process::abort(),
        _ => left -= 1,
    };
    let (options, keep, progress) = (&SledOptions::new(), Keep::Unfinished, &mut |_, _| {});
    compact::Compaction { store, options, keep, progress, between }.run(plenty()).unwrap();
}

/// Whether the compaction in a child came to its end rather than to the step.
fn ends_before(store: &Path, step: u32) -> bool {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "store::sled::tests::compacting::as_a_child", "--test-threads=1"]);
    child.env(STORE, store).env(STEP, step.to_string());
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    child.status().unwrap().success()
}

#[test]
fn wherever_the_process_ends_the_store_is_there() {
    let dir = TempDir::new();
    let original = dir.0.join("original");
    let all = make(&original);
    let kept = unfinished(&all);
    assert!(held(&original) == all && kept != all, "the check tells one from the other");
    let (mut before, mut after, mut leftovers) = (0, 0, std::collections::BTreeSet::new());
    for step in 0.. {
        let store = dir.0.join(step.to_string());
        copy(&original, &store);
        let ended = ends_before(&store, step);
        let left = [("sled", 1), ("sled.new", 2), ("sled.old", 4)];
        leftovers.insert(left.iter().map(|(name, bit)| if store.join(name).exists() { *bit } else { 0 }).sum::<u32>());
        let held_now = held(&store);
        match held_now == kept {
            true => after += 1,
            false if held_now == all => before += 1,
            false => panic!("ended at step {step}: it holds neither what it held nor what was to be kept"),
        }
        assert!(!ended || held_now == kept);
        // And it can be done again.
        compacted(&store, Keep::Unfinished);
        assert_eq!(held(&store), kept);
        fs::remove_dir_all(&store).unwrap();
        if ended {
            break;
        }
    }
    assert!(before > 5 && after > 2, "{before} times before, {after} times after");
    // Alone; with a copy; with the old one moved away; with the new one in its place.
    assert_eq!(leftovers.into_iter().collect::<Vec<_>>(), [1, 3, 5, 6]);
}

#[test]
fn a_missing_database_is_missed_whatever_a_compaction_left_beside_it() {
    let dir = TempDir::new();
    make(&dir.0);
    let sled = dir.0.join("sled");
    // Moved away, and no copy that could take the place: nothing may be put there.
    fs::rename(&sled, dir.0.join("sled.old")).unwrap();
    let error = SledStore::open(&dir.0, SledOptions::new()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(dir.0.join("sled.old/db").exists(), "what lies there may be all there is");
    fs::rename(dir.0.join("sled.old"), dir.0.join("sled.new")).unwrap();
    assert!(SledStore::open(&dir.0, SledOptions::new()).is_err());
    fs::rename(dir.0.join("sled.new"), &sled).unwrap();
    // Half removed, in the middle of the next opening's clearing.
    fs::create_dir(dir.0.join("sled.old")).unwrap();
    fs::write(dir.0.join("sled.old/db"), "half").unwrap();
    fs::create_dir(dir.0.join("sled.new")).unwrap();
    assert_eq!(held(&dir.0).len(), 41);
}

#[test]
fn a_compaction_without_room_leaves_all_as_it_was() {
    let dir = TempDir::new();
    let runs = make(&dir.0);
    let mut asked = 0;
    let free_space: writer::FreeSpace = Box::new(|| Some(RESERVE_BYTES));
    let (store, options, keep) = (&*dir.0, &SledOptions::new(), Keep::All);
    let progress: &mut dyn FnMut(u64, u64) = &mut |_, _| asked += 1;
    let refused = compact::Compaction { store, options, keep, progress, between: &mut || {} }.run(free_space);
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    assert!(!dir.0.join("sled.new").exists() && asked > 0);
    assert_eq!(held(&dir.0), runs);
}

#[test]
fn what_is_open_or_no_store_is_not_compacted() {
    let dir = TempDir::new();
    let options = SledOptions::new;
    let compact = |path: &Path| SledStore::compact(path, options(), Keep::All, |_, _| {});
    for nowhere in [dir.0.clone(), dir.0.join("a/b")] {
        assert!(matches!(compact(&nowhere), Err(StoreError::NotAStore { .. })));
        assert!(!nowhere.exists(), "and none is made");
    }
    let store = SledStore::open(&dir.0, options()).unwrap();
    assert!(matches!(compact(&dir.0), Err(StoreError::InUse { .. })));
    store.close().unwrap();
    assert_eq!(compact(&dir.0).unwrap().runs, 0);
}

#[test]
fn a_store_gets_the_id_that_it_is_given_and_keeps_it() {
    let dir = TempDir::new();
    let given = |id| SledOptions::new().id(StoreId(id));
    SledStore::open(&dir.0, given(5)).unwrap().close().unwrap();
    for options in [SledOptions::new(), given(5)] {
        let store = SledStore::open(&dir.0, options).unwrap();
        assert_eq!(store.about().id, StoreId(5));
        store.close().unwrap();
    }
    let error = SledStore::open(&dir.0, given(6)).unwrap_err();
    let (other, own) = (StoreId(6), StoreId(5));
    assert_eq!(error.to_string(), format!("{} is no store: it is the store {own}, not {other}", dir.0.display()));
}
