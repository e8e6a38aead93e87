//! Acknowledged means on disk: the system calls of a writing child, as `strace` sees them.
//!
//! A kill cannot show a missing sync, because the kernel's cache survives it. So the child's calls are held against the
//! rule: the very bytes of an entry must have been written, and the write must have been made to last, before its
//! acknowledgement is said.

use std::{collections::HashMap, fs, fs::File, path::Path, process::Command};

use durable_runtime::store::{
    Durability, Store, Written,
    sled::{SledOptions, SledStore},
};
use rustix::fs::{IFlags, ioctl_getflags};

use crate::{
    child,
    subject::{TempDir, append, batch, born},
};

/// Whether a file or directory has the flag that makes writes to it synchronous.
pub(crate) fn is_synchronous(path: &Path) -> bool {
    let wanted = if path.is_dir() { IFlags::SYNC | IFlags::DIRSYNC } else { IFlags::SYNC };
    ioctl_getflags(File::open(path).unwrap()).is_ok_and(|flags| flags.contains(wanted))
}

/// A call that succeeded.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    /// As `strace` prints them, with the path of each descriptor.
    arguments: String,
    /// The lines of the trace on which it began and ended. Calls of several threads overlap.
    begun: usize,
    ended: usize,
}

impl Call {
    /// The path of the descriptor it was called with.
    fn path(&self) -> Option<&Path> {
        let (_, rest) = self.arguments.split_once('<')?;
        Some(Path::new(rest.split_once('>')?.0))
    }

    fn writes(&self) -> bool {
        matches!(self.name.as_str(), "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2")
    }

    fn syncs(&self) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync")
    }
}

/// Reads a trace of several threads.
fn parse(trace: &str) -> Vec<Call> {
    let mut open: HashMap<&str, (&str, &str, usize)> = HashMap::new();
    let mut calls = Vec::new();
    for (nth, line) in trace.lines().enumerate() {
        let Some((thread, event)) = line.trim_start().split_once(' ') else { continue };
        let event = event.trim_start();
        let (name, arguments, begun, rest) = if let Some(rest) = event.strip_prefix("<... ") {
            let Some((name, arguments, begun)) = open.remove(thread) else { continue };
            (name, arguments, begun, rest)
        } else {
            let Some((name, arguments)) = event.split_once('(') else { continue };
            if let Some(arguments) = arguments.strip_suffix(" <unfinished ...>") {
                open.insert(thread, (name, arguments, nth));
                continue;
            }
            (name, arguments, nth, arguments)
        };
        let result = rest.rsplit_once(" = ").map_or("", |(_, result)| result);
        if !result.is_empty() && !result.starts_with('-') && !result.starts_with('?') {
            calls.push(Call { name: name.to_owned(), arguments: arguments.to_owned(), begun, ended: nth });
        }
    }
    calls.sort_by_key(|call| call.ended);
    calls
}

/// How a write is made to last.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The directory was synchronous before anything was in it.
    Flags,
    /// `db` is synced after the write and before the acknowledgement.
    Barrier,
}

/// Holds the calls of a child against the rule. Returns how many acknowledgements there were, or what is wrong.
fn check(calls: &[Call], store: &Path, by: By) -> Result<usize, String> {
    let sled = store.join("sled");
    let db = sled.join("db");
    let inside = |call: &Call| call.path().is_some_and(|path| path.starts_with(&sled) && path != sled);

    if let By::Flags = by {
        let flagged = calls.iter().find(|call| {
            let flags = ["FS_SYNC_FL", "FS_DIRSYNC_FL"].iter().all(|flag| call.arguments.contains(flag));
            call.name == "ioctl" && call.arguments.contains("SETFLAGS") && flags && call.path() == Some(&sled)
        });
        let flagged = flagged.ok_or("the directory was never made synchronous")?.ended;
        let within = format!("\"{}/", sled.display());
        let early = calls.iter().find(|call| {
            let made = call.name == "openat" && call.arguments.contains("O_CREAT") && call.arguments.contains(&within);
            (made || call.writes() && inside(call)) && call.begun < flagged
        });
        if let Some(early) = early {
            return Err(format!("before the directory was synchronous: {}", shortened(early)));
        }
    }

    let mut acknowledgements = 0;
    for call in calls {
        let Some((_, said)) = call.arguments.split_once("\"acknowledged ") else { continue };
        let words = said.split_once("\\n").and_then(|(said, _)| said.split_once(' '));
        let (run, length) = words.ok_or("an acknowledgement without a length")?;
        let entry = length.parse::<u64>().map_err(|e| e.to_string())? - 1;
        let mark = format!("[{run}@{entry}]");
        let written = calls.iter().filter(|write| write.writes() && inside(write) && write.arguments.contains(&mark));
        let lasts = |write: &Call| match by {
            By::Flags => write.ended < call.begun,
            By::Barrier => {
                write.path() == Some(&db)
                    && calls.iter().any(|sync| {
                        sync.syncs() && sync.path() == Some(&db) && write.ended < sync.begun && sync.ended < call.begun
                    })
            }
        };
        if !written.clone().any(lasts) {
            let writes = written.count();
            return Err(format!("entry {mark} was acknowledged and is not on disk; it was written {writes} times"));
        }
        acknowledgements += 1;
        // Whatever the data are worth, their names must be there.
        if acknowledgements == 1 {
            let above = store.parent().ok_or("a store without a directory above")?;
            for path in [above, store, &sled, &sled.join("conf"), &sled.join("blobs"), &store.join("high-water")] {
                if !calls.iter().any(|sync| sync.syncs() && sync.path() == Some(path) && sync.ended < call.begun) {
                    return Err(format!("{} was not synced before the first acknowledgement", path.display()));
                }
            }
        }
    }
    Ok(acknowledgements)
}

fn shortened(call: &Call) -> String {
    format!("{}({:.120}", call.name, call.arguments)
}

/// Runs a task under `strace`. `None`: there is no `strace`.
fn traced(task: &str, dir: &TempDir) -> Option<Vec<Call>> {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: strace is not installed");
        return None;
    }
    let trace = dir.join("trace");
    // Whole strings, for the data of the writes are looked into; paths of descriptors; only calls that matter.
    let calls = "trace=openat,ioctl,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,rename,renameat,renameat2,\
                 unlink,unlinkat,rmdir";
    let under = ["strace", "-f", "-y", "-s", "4000000", "-e", "signal=none", "-e", calls, "-o"];
    let mut under: Vec<_> = under.map(Into::into).to_vec();
    under.push(trace.clone().into());
    let output = child::command(task, &dir.join("store"), &under).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = fs::read(trace).unwrap();
    Some(parse(&String::from_utf8_lossy(&trace)))
}

/// Whether the file system that the tests use lets a directory be synchronous.
fn full_is_to_be_had() -> bool {
    let dir = TempDir::new();
    let store = SledStore::open(dir.join("store"), SledOptions::new()).unwrap();
    store.about().durability == Durability::Full
}

#[test]
fn in_a_synchronous_directory_each_write_lasts_before_it_is_acknowledged() {
    let dir = TempDir::new();
    let Some(calls) = traced("write a little", &dir) else { return };
    let store = dir.join("store");
    if !full_is_to_be_had() {
        println!("this file system does not take the flag: checking the fallback instead");
        assert_eq!(check(&calls, &store, By::Barrier), Ok(160));
        return;
    }
    assert_eq!(check(&calls, &store, By::Flags), Ok(160));
    for path in ["sled", "sled/db", "sled/conf", "sled/blobs"] {
        assert!(is_synchronous(&store.join(path)), "{path}");
    }
    // Large values spill into files of their own, which have the flag too.
    let spilled: Vec<_> = fs::read_dir(store.join("sled/blobs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!spilled.is_empty() && spilled.iter().all(|path| is_synchronous(path)));
}

#[test]
fn elsewhere_each_group_is_synced_before_it_is_acknowledged() {
    let dir = TempDir::new();
    let Some(calls) = traced("write a little, best effort", &dir) else { return };
    let store = dir.join("store");
    assert_eq!(check(&calls, &store, By::Barrier), Ok(160));
    assert_eq!(check(&calls, &store, By::Flags), Err(String::from("the directory was never made synchronous")));
    // The null control: without its syncs the same trace must not pass, be it only without the last.
    let is_sync = |call: &Call| call.syncs() && call.path() == Some(&store.join("sled/db"));
    let unsynced: Vec<_> = calls.iter().filter(|call| !is_sync(call)).cloned().collect();
    assert!(check(&unsynced, &store, By::Barrier).is_err());
    let last = calls.iter().rposition(|call| call.arguments.contains("\"acknowledged ")).unwrap();
    let half: Vec<_> = (0..)
        .zip(&calls)
        .filter(|(nth, call)| *nth < last / 2 || !is_sync(call))
        .map(|(_, call)| call.clone())
        .collect();
    assert!(check(&half, &store, By::Barrier).is_err());
}

/// The null control: sled's own flush, which waits for no disk, must not pass as either.
#[test]
fn sled_as_it_comes_is_found_out() {
    let dir = TempDir::new();
    let Some(calls) = traced("write to sled as it comes", &dir) else { return };
    let store = dir.join("store");
    let by_flags = check(&calls, &store, By::Flags);
    assert_eq!(by_flags, Err(String::from("the directory was never made synchronous")));
    let by_barrier = check(&calls, &store, By::Barrier).unwrap_err();
    assert!(
        by_barrier.starts_with("entry [r0@0] was acknowledged and is not on disk; it was written "),
        "{by_barrier}"
    );
    assert!(!by_barrier.ends_with(" 0 times"), "the write was seen: {by_barrier}");
}

/// Holds the calls of a compaction against the rule: the copy is on disk before anything is renamed, each name is on disk
/// before the next step, and the old database goes last.
fn check_compaction(calls: &[Call], store: &Path) -> Result<(), String> {
    let [current, new, old] = ["sled", "sled.new", "sled.old"].map(|name| store.join(name));
    let renames = |from: &Path, to: &Path| {
        let names = format!("{:?}, {:?}", from.display().to_string(), to.display().to_string());
        let found = calls.iter().find(|call| call.name.starts_with("rename") && call.arguments.contains(&names));
        found.ok_or_else(|| format!("no rename({names})"))
    };
    let (away, into_place) = (renames(&current, &old)?, renames(&new, &current)?);
    let synced = |path: &Path, after: usize, before: usize| {
        let syncs =
            |call: &Call| call.syncs() && call.path() == Some(path) && after < call.begun && call.ended < before;
        match calls.iter().any(syncs) {
            true => Ok(()),
            false => Err(format!("{} was not synced in time", path.display())),
        }
    };
    let mut writes = 0;
    for write in calls.iter().filter(|call| call.writes() && call.ended < into_place.begun) {
        if let Some(path) = write.path().filter(|path| path.starts_with(&new)) {
            synced(path, write.ended, away.begun)?;
            writes += 1;
        }
    }
    if writes == 0 {
        return Err("nothing was written to the copy".into());
    }
    for directory in [&new, &new.join("blobs"), store] {
        synced(directory, 0, away.begun)?;
    }
    synced(store, away.ended, into_place.begun)?;
    let removes = |call: &&Call| call.name.starts_with("unlink") && call.arguments.contains("sled.old");
    let removed = calls.iter().find(removes).ok_or("the old database was not removed")?;
    synced(store, into_place.ended, removed.begun)
}

#[test]
fn a_compaction_has_each_step_on_disk_before_the_next() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let store = SledStore::open(&path, SledOptions::new()).unwrap();
    let (run, epoch) = born(&store, "r");
    for at in 1..20 {
        assert_eq!(append(&store, batch(&run, epoch, at, 1, 30_000)), Ok(Written::Done));
    }
    store.close().unwrap();
    let Some(calls) = traced("compact", &dir) else { return };
    assert_eq!(check_compaction(&calls, &path), Ok(()));
    // The null control: without the syncs of one place the same trace must not pass.
    for place in ["sled.new/db", "sled.new/blobs", "sled.new", ""] {
        let place = path.join(place);
        let place = place.components().collect::<std::path::PathBuf>();
        let without: Vec<_> =
            calls.iter().filter(|call| !(call.syncs() && call.path() == Some(&place))).cloned().collect();
        assert!(check_compaction(&without, &path).is_err(), "{}", place.display());
    }
}
