//! Who may open a store, and how fast it opens again.

use std::{
    fs,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use durable_runtime::{
    Generation, Seq,
    store::{
        Durability, Store, StoreError, Written,
        sled::{Keep, SledOptions, SledStore},
    },
};

use crate::{
    child::{self, Talking},
    subject::*,
};

fn open(path: &Path) -> Result<SledStore, StoreError> {
    SledStore::open(path, SledOptions::new())
}

/// Tries to open a store that is held and checks that it does not wait for the holder, names its pid, and changes nothing.
fn check_in_use(path: &Path, pid: u32, attempt: impl Fn() -> (Duration, String)) {
    let changes_nothing = || {
        let before = contents(path);
        let (took, said) = attempt();
        // Less than a second, but on a machine that has no time for it.
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert!(said.starts_with(&format!("the store {} is in use by pid {pid}", path.display())), "{said}");
        contents(path) == before
    };
    // The holder's sled tidies up at times, in its first second above all.
    assert!((0..20).any(|_| changes_nothing()), "a refused opening changes no file");
}

/// Tries to open a store in this process.
fn refused(path: &Path) -> (Duration, String) {
    let (took, opened) = child::open(path);
    (took, opened.unwrap_err().to_string())
}

#[test]
fn a_store_is_closed_and_opened_again_a_hundred_times() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let mut last = None;
    for round in 0..100_u64 {
        let store = open(&path).unwrap();
        let run = run("r");
        let created = now(&store, creation(&run)).unwrap();
        assert_eq!(created == Written::Exists, round > 0);
        let epoch = claim(&store, &run);
        assert!(Some(epoch) > last);
        last = Some(epoch);
        assert_eq!(append(&store, batch(&run, epoch, 1 + round, 1, 100)), Ok(Written::Done));
        assert_eq!(log(&store, &run, 0).0, 2 + round);
        if round % 3 == 2 {
            // Without a word: dropping closes too.
            drop(store);
        } else {
            store.close().unwrap();
            // The closed one is still there when the next is opened.
            std::mem::forget(store);
        }
    }
}

#[test]
fn a_second_opening_in_the_same_process_is_refused() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let store = open(&path).unwrap();
    let pid = std::process::id();
    check_in_use(&path, pid, || refused(&path));
    assert_eq!(open(&path).unwrap_err(), StoreError::InUse { path: path.clone(), pid: Some(pid) });
    assert!(matches!(now(&store, creation(&run("r"))), Ok(Written::Made { .. })), "the holder is not disturbed");
}

#[test]
fn a_second_opening_in_another_process_is_refused() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let _store = open(&path).unwrap();
    check_in_use(&path, std::process::id(), || {
        let said = Talking::start("open", &path).line().unwrap();
        let (ms, said) = said.split_once(" ms: ").unwrap();
        (Duration::from_millis(ms.parse().unwrap()), said.to_owned())
    });
}

#[test]
fn a_holder_that_is_killed_leaves_no_lock() {
    let dir = TempDir::new();
    let path = dir.join("store");
    for round in 0..3 {
        let mut holder = Talking::start("hold", &path);
        assert_eq!(holder.line().as_deref(), Some("holding"));
        check_in_use(&path, holder.pid(), || refused(&path));
        holder.kill();
        let store = open(&path).unwrap();
        assert!(matches!(now(&store, creation(&run(&round.to_string()))), Ok(Written::Made { .. })));
        store.close().unwrap();
    }
}

#[test]
fn a_process_that_is_killed_while_it_makes_a_store_leaves_one_that_opens() {
    let dir = TempDir::new();
    for (round, part) in
        ["STORE.new", "STORE", "sled", "sled/conf", "sled/db", "high-water"].iter().cycle().take(30).enumerate()
    {
        let path = dir.join(round.to_string());
        let mut maker = Talking::start("hold", &path);
        let part = path.join(part);
        // Gone again by now, or come: either is a moment as good as another.
        while !part.exists() && !path.join("high-water").exists() {
            std::thread::yield_now();
        }
        maker.kill();
        let store = open(&path).unwrap_or_else(|e| panic!("killed when there was {}: {e}", part.display()));
        store.close().unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_kill() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let rounds = std::env::var("STORE_TEST_KILLS").map_or(15, |rounds| rounds.parse().unwrap());
    let mut lengths = [1_u64; 4];
    for round in 0..rounds {
        let mut writer = Talking::start("write", &path);
        let mut said = Vec::new();
        while said.len() < 5 + round * 7 % 60 {
            said.push(writer.line().expect("the writer goes on"));
        }
        said.extend(writer.kill());
        for line in said {
            if let ["acknowledged", run, length] = line.split(' ').collect::<Vec<_>>()[..] {
                lengths[run[1..].parse::<usize>().unwrap()] = length.parse().unwrap();
            }
        }
        let store = open(&path).unwrap();
        for (nth, acknowledged) in (0..).zip(&mut lengths) {
            let run = run(&format!("r{nth}"));
            let records = store.read(&run, Generation(0), Seq(0), usize::MAX).unwrap();
            let length = end(&records);
            assert!(length.0 >= *acknowledged, "{length} of {acknowledged} entries are there");
            for record in &records {
                if record.count == 1 && record.first.0 > 0 {
                    assert!(record.frames == frames(&run, record.first.0, record.frames.len()));
                }
            }
            *acknowledged = length.0;
        }
        store.close().unwrap();
    }
}

#[test]
fn what_is_no_store_is_left_alone() {
    let dir = TempDir::new();
    let not_a_store = |path: &Path| {
        let error = open(path).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
        error.to_string()
    };
    let file = dir.join("file");
    fs::write(&file, "text").unwrap();
    assert!(not_a_store(&file).ends_with("it is not a directory"));
    let home = dir.join("home");
    fs::create_dir_all(home.join("letters")).unwrap();
    let before = contents(&home);
    assert!(not_a_store(&home).ends_with("it has no STORE and is not empty: there is letters"));
    assert_eq!(contents(&home), before);
    // A later version's.
    let later = dir.join("later");
    open(&later).unwrap().close().unwrap();
    fs::write(later.join("STORE"), "durable store\nformat 2\nwhatever\n").unwrap();
    let before = contents(&later);
    assert!(not_a_store(&later).ends_with("STORE has format 2; this version knows up to 1"));
    assert!(contents(&later).iter().zip(&before).all(|(a, b)| a == b || a.0.ends_with("LOCK")));
    // An empty directory is as good as none, and so are several at once.
    fs::create_dir(dir.join("empty")).unwrap();
    open(&dir.join("empty")).unwrap().close().unwrap();
    open(&dir.join("a/b/c")).unwrap().close().unwrap();
}

/// A socket, as a control interface leaves one, can be neither read nor opened.
#[test]
fn what_others_put_beside_the_store_is_left_alone() {
    let dir = TempDir::new();
    let path = dir.join("store");
    fs::create_dir(&path).unwrap();
    // The path of a socket may have some hundred bytes; that of the directory has more in places.
    let directory = fs::File::open(&path).unwrap();
    let socket = format!("/proc/self/fd/{}/control.sock", directory.as_raw_fd());
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    fs::create_dir(path.join(".control-7")).unwrap();
    let is_there = || fs::symlink_metadata(path.join("control.sock")).unwrap().ino();
    let inode = is_there();
    for round in 0..3 {
        let store = open(&path).unwrap();
        assert!(matches!(now(&store, creation(&run(&round.to_string()))), Ok(Written::Made { .. })));
        assert!(matches!(open(&path), Err(StoreError::InUse { .. })));
        store.close().unwrap();
        assert_eq!(is_there(), inode);
        // Nor does something in the database's own directory stop it from being made synchronous again.
        if round == 1 {
            copy_dir(&path.join("sled"), &dir.join("copy")).unwrap();
            fs::remove_dir_all(path.join("sled")).unwrap();
            fs::rename(dir.join("copy"), path.join("sled")).unwrap();
            fs::hard_link(path.join("control.sock"), path.join("sled/stray.sock")).unwrap();
        }
    }
    SledStore::compact(&path, SledOptions::new(), Keep::All, |_, _| {}).unwrap();
    assert_eq!((is_there(), open(&path).unwrap().runs(None, None, 9).unwrap().len()), (inode, 3));
    drop(listener);
}

#[test]
fn a_store_that_was_never_ready_is_made_again() {
    let dir = TempDir::new();
    let path = dir.join("store");
    open(&path).unwrap().close().unwrap();
    let ready = fs::read_to_string(path.join("STORE")).unwrap();
    // As after a crash in the middle of the first opening: an identity that is not ready, and half a database.
    let segment_bytes = ready.lines().find_map(|line| line.strip_prefix("segment-bytes ")).unwrap();
    let body = format!("durable store\nformat 1\nid {:032x}\nsegment-bytes {segment_bytes}\nstate new\n", 5);
    let sum = xxhash_rust::xxh3::xxh3_64(body.as_bytes());
    fs::write(path.join("STORE"), format!("{body}checksum {sum:016x}\n")).unwrap();
    fs::write(path.join("sled/db"), b"half a database").unwrap();
    fs::remove_file(path.join("high-water")).unwrap();
    let store = open(&path).unwrap();
    assert_eq!(store.runs(None, None, 9), Ok(vec![]));
    assert!(matches!(now(&store, creation(&run("r"))), Ok(Written::Made { .. })));
}

#[test]
fn durability_is_what_was_asked_for_or_an_error() {
    let dir = TempDir::new();
    let best_effort = SledStore::open(dir.join("b"), SledOptions::new().best_effort(true)).unwrap();
    assert_eq!(best_effort.about().durability, Durability::BestEffort);
    best_effort.close().unwrap();
    let both = SledOptions::new().best_effort(true).require_full(true);
    for fresh in ["b", "c"] {
        let error = SledStore::open(dir.join(fresh), both.clone()).unwrap_err();
        assert!(matches!(error, StoreError::NotDurable { .. }), "{error:?}");
    }
    match SledStore::open(dir.join("d"), SledOptions::new().require_full(true)) {
        Ok(store) => assert_eq!(store.about().durability, Durability::Full),
        Err(StoreError::NotDurable { .. }) => {
            println!("this file system does not take the flag for synchronous writes")
        }
        Err(error) => panic!("{error}"),
    }
}

/// Copying loses the flags; opening the copy gives them back, to what is there too.
#[test]
fn a_copied_store_is_as_durable_as_before() {
    let dir = TempDir::new();
    let store = open(&dir.join("a")).unwrap();
    let before = store.about().durability;
    let (r, epoch) = born(&store, "r");
    assert_eq!(append(&store, batch(&r, epoch, 1, 1, 200_000)), Ok(Written::Done));
    store.close().unwrap();
    copy_dir(&dir.join("a"), &dir.join("b")).unwrap();
    let copy = open(&dir.join("b")).unwrap();
    assert_eq!(copy.about().durability, before);
    assert_eq!(copy.about().id, store.about().id);
    assert_eq!(log(&copy, &r, 0).0, 2);
    if before == Durability::Full {
        for (path, _) in contents(&dir.join("b/sled")) {
            assert!(crate::synced::is_synchronous(&path), "{}", path.display());
        }
    }
}

#[test]
fn the_last_handle_may_go_within_a_callback() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let store = Arc::new(open(&path).unwrap());
    let (go, wait) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let held = Arc::clone(&store);
    let done = move |result| {
        let _ = wait.recv();
        drop(held);
        tell.send(result).unwrap();
    };
    store.submit(put(&run("r"), row(1, "")), Box::new(done));
    drop(store);
    go.send(()).unwrap();
    assert_eq!(told.recv().unwrap(), Ok(Written::Done));
    let opened = (0..100).find_map(|_| open(&path).ok()).unwrap();
    assert_eq!(rows(&opened, &run("r")).len(), 1);
}

#[test]
fn closing_within_a_callback_is_an_error_and_no_deadlock() {
    let dir = TempDir::new();
    let store = Arc::new(open(&dir.join("store")).unwrap());
    let (tell, told) = mpsc::channel();
    let held = Arc::clone(&store);
    let done = move |_| tell.send(held.close()).unwrap();
    store.submit(put(&run("r"), row(1, "")), Box::new(done));
    assert!(matches!(told.recv().unwrap(), Err(StoreError::Io { .. })));
    store.close().unwrap();
}

#[test]
fn a_child_command_names_the_test_it_runs() {
    let dir = TempDir::new();
    let output = child::command("open", &dir.join("store"), &[]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).ends_with(" ms: opened\n"), "{output:?}");
}
