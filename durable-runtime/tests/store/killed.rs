//! A process that is killed while it removes runs, or while it compacts a store, leaves no half of anything.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use durable_runtime::{
    Generation, RunId, Seq,
    store::{
        Dump, Head, Record, Row, RunRecord, Store, Write, Written,
        sled::{SledOptions, SledStore},
    },
};

use crate::{child::Talking, subject::*};

type Runs = BTreeMap<RunId, Dump>;

/// Runs that have ended, each of some thousand keys.
fn ended_runs() -> Runs {
    let one = |nth: u64| {
        let run = run(&format!("run {nth}"));
        let bytes = |at: u64| frames(&run, at, if at % 100 == 7 { 40_000 } else { 60 });
        let entries = 250 * (1 + nth % 4);
        let record = |at| Record { first: Seq(at), count: 1, frames: bytes(at) };
        let row = |number: u64| (number, Row { id: u128::from(number), kind: 1, bytes: bytes(number) });
        let dump = Dump {
            record: RunRecord {
                head: Head { generation: Generation(0), live: false, bytes: Bytes::new() },
                aside: None,
                wait: None,
                version: 1000,
            },
            owner: 0,
            logs: vec![(Generation(0), (0..entries).map(record).collect())],
            rows: (1..=500).map(row).collect(),
            taken: (501..=1000).collect(),
            published: vec![],
        };
        (run, dump)
    };
    (0..8).map(one).collect()
}

/// Holds a store against what it may hold: each run is as it was or is gone, and those in `gone` are gone. Returns how
/// many are gone.
fn check(store: &dyn Store, runs: &Runs, gone: &BTreeSet<RunId>) -> Result<usize, String> {
    let listed: BTreeSet<_> = store.runs(None, None, usize::MAX).unwrap().into_iter().map(|(run, _)| run).collect();
    if let Some(stranger) = listed.iter().find(|run| !runs.contains_key(*run)) {
        return Err(format!("{stranger} was never there"));
    }
    for (run, whole) in runs {
        let found = store.dump(run).map_err(|e| e.to_string())?;
        let rest = store.rows(run, 0, 1).unwrap().len() + store.read(run, Generation(0), Seq(0), 1).unwrap().len();
        match found {
            None if rest > 0 || listed.contains(run) => return Err(format!("something of {run} is left")),
            None => {}
            Some(_) if gone.contains(run) => return Err(format!("{run} was removed and is there")),
            Some(found) if found != *whole || !listed.contains(run) => return Err(format!("{run} is not whole")),
            Some(_) => {}
        }
    }
    Ok(runs.len() - listed.len())
}

fn restore(store: &dyn Store, runs: &Runs) {
    for (run, dump) in runs {
        let restore = Write::Restore { run: run.clone(), dump: Box::new(dump.clone()) };
        assert!(matches!(now(store, restore), Ok(Written::Created | Written::Exists)));
    }
}

#[test]
fn a_run_is_whole_or_gone_after_a_kill_while_it_is_removed() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let runs = ended_runs();
    let mut seen = BTreeSet::new();
    for round in 0..8_u32 {
        let store = SledStore::open(&path, SledOptions::new()).unwrap();
        restore(&store, &runs);
        assert_eq!(check(&store, &runs, &BTreeSet::new()), Ok(0), "what was restored is whole");
        store.close().unwrap();
        let mut remover = Talking::start("remove", &path);
        let mut said: Vec<_> = (0..=round).map(|_| remover.line().expect("it goes on")).collect();
        // Nothing tells how far the pieces are; a few turns more or less are as good as any.
        (0..round * round * 3000).for_each(|_| std::hint::spin_loop());
        said.extend(remover.kill());
        let gone: BTreeSet<_> = said.iter().filter_map(|line| line.strip_prefix("removed ")).map(run).collect();
        // Opening checks that no part of the index is missing.
        let store = SledStore::open(&path, SledOptions::new()).unwrap();
        let count = check(&store, &runs, &gone).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        assert!(count >= gone.len());
        seen.insert(count);
        store.close().unwrap();
    }
    assert!(seen.len() > 2, "{seen:?}");
}

/// The null control: half a run must not pass.
#[test]
fn the_check_notices_half_a_run() {
    type Change = fn(&mut Dump);
    let changes: [(&str, Change); 3] = [
        ("fewer rows", |dump| dump.rows.truncate(9)),
        ("a shorter log", |dump| dump.logs[0].1.truncate(9)),
        ("fewer ids", |dump| dump.taken.truncate(9)),
    ];
    let runs = ended_runs();
    for (name, change) in changes {
        let mut half = runs.clone();
        half.values_mut().take(1).for_each(change);
        let store = durable_runtime::store::memory::MemoryStore::new();
        restore(&store, &half);
        assert!(check(&store, &runs, &BTreeSet::new()).is_err(), "{name}");
        assert_eq!(check(&store, &half, &BTreeSet::new()), Ok(0));
        assert!(check(&store, &half, &half.keys().cloned().collect()).is_err(), "it was said to be gone");
    }
}

#[test]
fn a_store_is_whole_after_a_kill_while_it_is_compacted() {
    let dir = TempDir::new();
    let path = dir.join("store");
    let runs = ended_runs();
    let store = SledStore::open(&path, SledOptions::new()).unwrap();
    restore(&store, &runs);
    store.close().unwrap();
    let mut leftovers = 0;
    for round in 0..14 {
        let mut compacter = Talking::start("compact", &path);
        for _ in 0..round {
            // The last rounds let it come to its end.
            compacter.line();
        }
        compacter.kill();
        leftovers += u32::from(path.join("sled.new").exists());
        let store = SledStore::open(&path, SledOptions::new()).unwrap();
        assert_eq!(check(&store, &runs, &BTreeSet::new()), Ok(0), "round {round}");
        assert!(!path.join("sled.new").exists() && !path.join("sled.old").exists());
        store.close().unwrap();
    }
    assert!(leftovers > 3, "{leftovers} kills in the middle");
}
