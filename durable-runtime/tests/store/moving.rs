//! The part of the conformance suite about runs that leave a store and come to another.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    vec,
};

use bytes::Bytes;
use durable_runtime::{
    Generation, RunId, Seq,
    store::{Act, Batch, Dump, Record, Row, Store, StoreError, Wait, Write, Written, memory::MemoryStore},
};

use crate::subject::*;

/// Makes a run that has something of everything: two logs, rows, taken rows, an aside, a wait, an owner.
pub(crate) fn full_run(store: &dyn Store, id: &str) -> RunId {
    let (parent, epoch) = born(store, &format!("parent of {id}"));
    let run = run(id);
    let make = Act::Create {
        run: run.clone(),
        count: 1,
        frames: frames(&run, 0, 20),
        head: head(0, true, "first"),
        owner: 77,
        taken: row(9, ""),
    };
    assert_eq!(append(store, acts(&parent, epoch, vec![make])), Ok(Written::Done));
    let epoch = claim(store, &run);
    for at in 1..6_u64 {
        let size = if at == 3 { 70_000 } else { 50 };
        let row = Row { id: u128::from(7 * at % 5), kind: 3, bytes: frames(&run, at, size) };
        let publish = Act::Publish { name: format!("name {}", at % 2).into(), value: frames(&run, at, size) };
        let acts = vec![Act::Put { to: run.clone(), row }, publish];
        assert_eq!(append(store, Batch { acts, ..batch(&run, epoch, at, 1, size) }), Ok(Written::Done));
    }
    let next = Act::Next { count: 2, frames: frames(&run, 0, 9) };
    let restart = Batch {
        acts: vec![Act::Take { row: 4 }, next, Act::Take { row: 2 }],
        head: Some(head(1, true, "second")),
        ..batch(&run, epoch, 6, 1, 9)
    };
    assert_eq!(append(store, restart), Ok(Written::Done));
    assert_eq!(append(store, Batch { generation: Generation(1), ..batch(&run, epoch, 2, 3, 9) }), Ok(Written::Done));
    let wait = Some(Wait { due: Some(99), seen: 4, code: 5 });
    assert_eq!(now(store, Write::Release { run: run.clone(), epoch, wait }), Ok(Written::Done));
    let aside = Write::Aside { run: run.clone(), value: Some(frames(&run, 0, 40)) };
    assert_eq!(now(store, aside), Ok(Written::Done));
    run
}

/// Ends a run as it is.
fn end_of(store: &dyn Store, run: &RunId) {
    let generation = record(store, run).head.generation;
    let epoch = claim(store, run);
    let end = Batch { head: Some(head(generation.0, false, "ended")), ..acts(run, epoch, vec![]) };
    assert_eq!(append(store, end), Ok(Written::Done));
}

pub(crate) fn removes(subject: &mut Subject) {
    let remove = |run: &RunId| Write::Remove { run: run.clone() };
    let run = full_run(&**subject.store(), "r");
    let neighbour = full_run(&**subject.store(), "s");
    let beside = dump(&**subject.store(), &neighbour);
    let nobody = RunId::new("nobody").unwrap();
    let store = &**subject.store();
    assert_eq!(now(store, remove(&nobody)), Ok(Written::Done));
    assert_eq!(now(store, put(&nobody, row(1, "early"))), Ok(Written::Done));
    assert_eq!(now(store, remove(&nobody)), Ok(Written::Done));
    assert_eq!(rows(store, &nobody).len(), 1, "what waits for a run that does not exist yet goes on waiting");

    let before = dump(store, &run);
    assert_eq!(now(store, remove(&run)), Ok(Written::Unfinished));
    assert_eq!(dump(store, &run), before);
    end_of(store, &run);
    let stale = claim(store, &run);
    // With writes before and after it in one group, if the store has groups.
    let late = later(store, put(&run, row(50, "late")));
    let gone = later(store, remove(&run));
    let twice = later(store, remove(&run));
    let fenced = later(store, Write::Append(acts(&run, stale, vec![])));
    assert_eq!((late(), gone(), twice()), (Ok(Written::Done), Ok(Written::Done), Ok(Written::Done)));
    assert_eq!(fenced(), Err(StoreError::NoSuchRun), "a claim ends with its run");
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!((store.run(&run), store.dump(&run)), (Ok(None), Ok(None)));
        assert_eq!((store.rows(&run, 0, 9), store.published(&run)), (Ok(vec![]), Ok(vec![])));
        assert_eq!([0, 1].map(|generation| log(store, &run, generation).0), [0, 0]);
        assert!(store.runs(None, None, 99).unwrap().iter().all(|(id, _)| *id != run));
        assert_eq!(dump(store, &neighbour), beside, "nothing of another run is gone");
        subject.reopen();
    }
    // Nothing of the old run is left for the next of its name, in the same group or later.
    for together in [true, false] {
        let store = &**subject.store();
        if together {
            let waiting = [remove(&run), creation(&run), put(&run, row(2, "new"))].map(|write| later(store, write));
            let results = waiting.map(|done| done().unwrap());
            assert!(matches!(results[..], [Written::Done, Written::Made { version: 0, .. }, Written::Done]));
        } else {
            end_of(store, &run);
            assert_eq!(now(store, remove(&run)), Ok(Written::Done));
            subject.reopen();
            assert!(matches!(now(&**subject.store(), creation(&run)), Ok(Written::Made { .. })));
            assert_eq!(now(&**subject.store(), put(&run, row(2, "new"))), Ok(Written::Done));
        }
        subject.reopen();
        let expected = Dump {
            record: durable_runtime::store::RunRecord { head: head(0, true, ""), aside: None, wait: None, version: 1 },
            owner: 0,
            logs: vec![(Generation(0), vec![Record { first: Seq(0), count: 1, frames: frames(&run, 0, 20) }])],
            rows: vec![(1, row(2, "new"))],
            taken: vec![],
            published: vec![],
        };
        assert_eq!(dump(&**subject.store(), &run), expected);
    }
}

pub(crate) fn restores(subject: &mut Subject) {
    let source = MemoryStore::new();
    let full = full_run(&source, "full");
    let (ended, _) = born(&source, "ended");
    end_of(&source, &ended);
    let (plain, _) = born(&source, "plain");
    let mut large = dump(&source, &full);
    // Larger than any batch should be, in records of all sizes.
    let mut first = 0;
    large.logs[1].1.clear();
    for nth in 0..300_u64 {
        let (count, bytes) = (1 + u32::try_from(nth % 7).unwrap(), usize::try_from(nth * 97 % 40_000).unwrap());
        large.logs[1].1.push(Record { first: Seq(first), count, frames: frames(&full, first, bytes) });
        first += u64::from(count);
    }
    large.taken.extend(1_000..3_000);
    large.record.version += 2_000;
    let large_run = run("large");
    let all = [
        (full.clone(), dump(&source, &full)),
        (ended.clone(), dump(&source, &ended)),
        (plain.clone(), dump(&source, &plain)),
        (large_run.clone(), large),
    ];
    let restore = |run: &RunId, dump: &Dump| Write::Restore { run: run.clone(), dump: Box::new(dump.clone()) };
    for (run, dump) in &all {
        assert_eq!(now(&**subject.store(), restore(run, dump)), Ok(Written::Created));
        assert_eq!(now(&**subject.store(), restore(run, &all[0].1)), Ok(Written::Exists));
        assert_eq!(now(&**subject.store(), restore(run, &all[3].1)), Ok(Written::Exists));
    }
    for round in 0..3 {
        let store = &**subject.store();
        for (run, expected) in &all {
            assert!(dump(store, run) == *expected, "{run} in round {round}");
            assert_eq!(store.run(run), Ok(Some(expected.record.clone())));
        }
        assert_eq!(store.runs(None, None, 9).unwrap().len(), 4);
        // And back again.
        let third = MemoryStore::new();
        for (run, expected) in &all {
            assert_eq!(now(&third, restore(run, &dump(store, run))), Ok(Written::Created));
            assert!(dump(&third, run) == *expected);
        }
        subject.reopen();
    }
    // It goes on where it was.
    let store = &**subject.store();
    let epoch = claim(store, &large_run);
    let at = Batch { generation: Generation(1), ..batch(&large_run, epoch, first, 1, 9) };
    assert_eq!(append(store, at), Ok(Written::Done));
    assert_eq!(now(store, put(&large_run, row(2_000, ""))), Ok(Written::Exists));
    let version = all[3].1.record.version;
    assert_eq!(now(store, put(&large_run, row(5_000, ""))), Ok(Written::Done));
    assert_eq!(store.rows(&large_run, version, 9).unwrap(), [(version + 1, row(5_000, ""))]);
    // What was restored can be removed and restored again.
    assert_eq!(now(store, Write::Remove { run: ended.clone() }), Ok(Written::Done));
    assert_eq!(now(store, restore(&ended, &all[1].1)), Ok(Written::Created));
    assert_eq!(dump(store, &ended), all[1].1);
}

pub(crate) fn restores_over_a_mailbox(subject: &mut Subject) {
    let source = MemoryStore::new();
    let full = full_run(&source, "full");
    let expected = dump(&source, &full);
    let known = expected.rows[0].1.id;
    let taken = expected.taken[0];
    let store = &**subject.store();
    assert_eq!(now(store, put(&full, row(100, "early"))), Ok(Written::Done));
    assert_eq!(now(store, put(&full, row(known, "known"))), Ok(Written::Done));
    // In one group with the rest, if the store has groups.
    let waiting = [
        put(&full, row(taken, "was taken")),
        put(&full, row(101, "early too")),
        Write::Restore { run: full.clone(), dump: Box::new(expected.clone()) },
        put(&full, row(102, "late")),
    ]
    .map(|write| later(store, write));
    waiting.into_iter().for_each(|done| assert!(done().is_ok()));
    for _ in 0..2 {
        let mut expected = expected.clone();
        for (id, text) in [(100, "early"), (101, "early too"), (102, "late")] {
            expected.record.version += 1;
            expected.rows.push((expected.record.version, row(id, text)));
        }
        assert_eq!(dump(&**subject.store(), &full), expected);
        assert_eq!(subject.store().runs(None, None, 9).unwrap().len(), 1);
        subject.reopen();
    }
}

pub(crate) fn malformed_dumps(subject: &mut Subject) {
    type Change = fn(&mut Dump);
    let changes: [(&str, Change); 14] = [
        ("no logs", |dump| dump.logs.clear()),
        ("an empty log", |dump| dump.logs[0].1.clear()),
        ("logs in another order", |dump| dump.logs.reverse()),
        ("a log twice", |dump| dump.logs[1].0 = dump.logs[0].0),
        ("an entry is missing", |dump| drop(dump.logs[0].1.remove(1))),
        ("the first entry is missing", |dump| drop(dump.logs[1].1.remove(0))),
        ("a record of nothing", |dump| dump.logs[0].1[0].count = 0),
        ("a record without bytes", |dump| dump.logs[0].1[0].frames = Bytes::new()),
        ("a row with number 0", |dump| dump.rows[0].0 = 0),
        ("a row after the last", |dump| dump.record.version = 1),
        ("rows in another order", |dump| dump.rows.reverse()),
        ("a row twice", |dump| dump.rows[1].1.id = dump.rows[0].1.id),
        ("a row both there and taken", |dump| dump.taken.push(dump.rows[0].1.id)),
        ("names in another order", |dump| dump.published.reverse()),
    ];
    let source = MemoryStore::new();
    let full = full_run(&source, "full");
    for (name, change) in changes {
        let mut dump = dump(&source, &full);
        change(&mut dump);
        let restore = Write::Restore { run: full.clone(), dump: Box::new(dump) };
        assert!(matches!(now(&**subject.store(), restore), Err(StoreError::Rejected { .. })), "{name}");
        assert_eq!(subject.store().run(&full), Ok(None), "{name}");
    }
}

pub(crate) fn barriers(subject: &mut Subject) {
    let store = subject.store();
    assert_eq!(now(&**store, Write::Barrier), Ok(Written::Done));
    let (run, epoch) = born(&**store, "r");
    let done = Arc::new(AtomicU32::new(0));
    for at in 1..100 {
        let count = Arc::clone(&done);
        let counted = move |result: Result<Written, StoreError>| {
            assert_eq!(result, Ok(Written::Done));
            count.fetch_add(1, Ordering::SeqCst);
        };
        store.submit(Write::Append(batch(&run, epoch, at, 1, 30)), Box::new(counted));
    }
    assert_eq!(now(&**store, Write::Barrier), Ok(Written::Done));
    assert_eq!(done.load(Ordering::SeqCst), 99);
    let before = dump(&**store, &run);
    assert_eq!(now(&**store, Write::Barrier), Ok(Written::Done));
    assert_eq!(dump(&**store, &run), before);
    store.close().unwrap();
    assert_eq!(now(&**store, Write::Barrier), Err(StoreError::Closed));
    subject.reopen();
}
