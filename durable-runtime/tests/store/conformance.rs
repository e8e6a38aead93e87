//! The contract of [`Store`](durable_runtime::store::Store), sentence by sentence, as checks that any store must pass.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use bytes::Bytes;
use durable_runtime::{
    Epoch, Generation, RunId, Seq,
    store::{Act, Batch, Store, StoreError, Write, Written},
};

use crate::{acting::*, keeping::*, moving::*, subject::*};

type Check = fn(&mut Subject);

/// All checks, by what they say.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("a run is created once", created_once),
    ("whoever makes a run has it", made_is_claimed),
    ("a store keeps its id", keeps_its_id),
    ("what does not exist cannot be claimed, written to, or set aside", nothing_there),
    ("a later claim fences an earlier one, also across reopening", claims_ascend),
    ("a released run takes no batch", released),
    ("an ended run is given back", ended_is_given_back),
    ("a batch goes on where the log ends, or not at all", conflict),
    ("a next log begins with the batch that closes the one before, which stays readable", generations),
    ("a batch that fails changes nothing", all_or_nothing),
    ("a batch carries entries, acts and head together", batch_is_whole),
    ("malformed writes are rejected", malformed),
    ("rows stand in the order in which they were put, each once", rows_in_order),
    ("rows have numbers, ascending, and none comes again", rows_are_numbered),
    ("a row for a run that has not ended is for no other", unfinished_only),
    ("the id of a row taken stays known", row_ids_stay),
    ("a mailbox may be there before its run", mailbox_before_run),
    ("a read begins with the record that holds the place", read_from_anywhere),
    ("a read brings about as much as it was asked for", read_in_parts),
    ("records of any size come back", sizes),
    ("rows, heads and asides of any size come and go", large_values),
    ("runs are listed in the order of their ids, by class, in pages", listing),
    ("odd ids are ids like others", odd_ids),
    ("an aside is set, replaced and removed, and no head touches it", asides),
    ("writes are applied in the order in which they were submitted", in_order),
    ("a callback that panics harms nobody", panicking_callback),
    ("a reader never sees half a batch", no_half_batches),
    ("a closed store has done all that it took, and does no more", closing),
    ("all is there after reopening", reopening),
    ("a wait stands from its release to the next claim", waits),
    ("a claim leaves an aside with it", claims_with_aside),
    ("a batch makes other runs, once, and says to whom an id was taken", makes_runs),
    ("a run publishes the last value of each name, and where it was", publishes),
    ("acts come one after the other", acts_in_order),
    ("an ended run is removed with all that it had, and its id is free", removes),
    ("what a store holds of a run goes to another store and is the same there", restores),
    ("what was put for a run before it was restored is kept", restores_over_a_mailbox),
    ("a dump that contradicts itself is rejected", malformed_dumps),
    ("a barrier is passed by nothing", barriers),
];

fn created_once(subject: &mut Subject) {
    let run = run("once");
    let create = |text: &'static str| Write::Create {
        run: run.clone(),
        count: 2,
        frames: Bytes::from_static(text.as_bytes()),
        head: head(0, true, text),
    };
    assert_eq!(subject.store().run(&run), Ok(None));
    // Both in one group, if the store has groups.
    let first = later(&**subject.store(), create("first"));
    let second = later(&**subject.store(), create("second"));
    assert!(matches!(first(), Ok(Written::Made { version: 0, .. })));
    assert_eq!(second(), Ok(Written::Exists));
    assert_eq!(now(&**subject.store(), create("third")), Ok(Written::Exists));
    subject.reopen();
    assert_eq!(now(&**subject.store(), create("fourth")), Ok(Written::Exists));
    assert_eq!(log(&**subject.store(), &run, 0), (2, b"first".to_vec()));
    assert_eq!(subject.store().run(&run).unwrap().unwrap().head, head(0, true, "first"));
}

fn made_is_claimed(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, other) = (run("made"), run("made before"));
    for row in [row(1, "early"), row(2, "too")] {
        assert_eq!(now(store, put(&run, row)), Ok(Written::Done));
    }
    let before = born(store, other.as_str()).1;
    let Ok(Written::Made { epoch, version: 2 }) = now(store, creation(&run)) else { panic!("it was not made") };
    assert!(epoch > before);
    assert_eq!(append(store, batch(&run, epoch, 1, 1, 9)), Ok(Written::Done));
    // Who finds it made has nothing, and takes nothing.
    assert_eq!(now(store, creation(&run)), Ok(Written::Exists));
    assert_eq!(append(store, batch(&run, epoch, 2, 1, 9)), Ok(Written::Done));
    let later = claim(store, &run);
    assert!(later > epoch);
    assert_eq!(append(store, batch(&run, epoch, 3, 1, 9)), Err(StoreError::Fenced));
    assert_eq!(append(store, batch(&run, later, 3, 1, 9)), Ok(Written::Done));
}

fn keeps_its_id(subject: &mut Subject) {
    let id = subject.store().about().id;
    subject.reopen();
    assert_eq!(subject.store().about().id, id);
}

fn nothing_there(subject: &mut Subject) {
    let store = &**subject.store();
    let nobody = run("nobody");
    let aside = |value| Write::Aside { run: nobody.clone(), value };
    for _ in 0..2 {
        assert_eq!(now(store, claiming(&nobody)), Err(StoreError::NoSuchRun));
        assert_eq!(append(store, batch(&nobody, Epoch(1), 0, 1, 5)), Err(StoreError::NoSuchRun));
        assert_eq!(now(store, aside(Some(Bytes::from_static(b"x")))), Err(StoreError::NoSuchRun));
        assert_eq!(now(store, aside(None)), Err(StoreError::NoSuchRun));
        assert_eq!(now(store, releasing(&nobody, Epoch(1))), Ok(Written::Done));
        assert_eq!(store.run(&nobody), Ok(None));
        assert_eq!(store.read(&nobody, Generation(0), Seq(0), 100), Ok(vec![]));
        assert_eq!((store.published(&nobody), store.dump(&nobody)), (Ok(vec![]), Ok(None)));
        // A mailbox makes no run.
        now(store, put(&nobody, row(1, "early"))).unwrap();
    }
    assert_eq!(rows(store, &run("not even a mailbox")), []);
}

fn claims_ascend(subject: &mut Subject) {
    let (run, mut last) = born(&**subject.store(), "r");
    let (_, other) = born(&**subject.store(), "other");
    assert!(other > last);
    for round in 0..6 {
        if round % 2 == 1 {
            subject.reopen();
            assert_eq!(
                append(&**subject.store(), batch(&run, last, 1 + round, 1, 9)),
                Err(StoreError::Fenced),
                "{round}"
            );
        }
        let epoch = claim(&**subject.store(), &run);
        assert!(epoch > last, "{epoch} > {last}");
        assert_eq!(append(&**subject.store(), batch(&run, last, 1 + round, 1, 9)), Err(StoreError::Fenced));
        assert_eq!(append(&**subject.store(), acts(&run, last, vec![])), Err(StoreError::Fenced));
        assert_eq!(append(&**subject.store(), batch(&run, epoch, 1 + round, 1, 9)), Ok(Written::Done));
        last = epoch;
    }
    assert_eq!(log(&**subject.store(), &run, 0).0, 7);
}

fn released(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, first) = born(store, "r");
    let second = claim(store, &run);
    // Giving back what somebody else has by now does not take it from them.
    assert_eq!(now(store, releasing(&run, first)), Ok(Written::Done));
    assert_eq!(append(store, batch(&run, second, 1, 1, 9)), Ok(Written::Done));
    for _ in 0..2 {
        assert_eq!(now(store, releasing(&run, second)), Ok(Written::Done));
        assert_eq!(append(store, batch(&run, second, 2, 1, 9)), Err(StoreError::Fenced));
    }
    let third = claim(store, &run);
    assert!(third > second);
    assert_eq!(append(store, batch(&run, third, 2, 1, 9)), Ok(Written::Done));
}

fn ended_is_given_back(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    let last = Batch { head: Some(head(0, false, "end")), ..batch(&run, epoch, 1, 1, 9) };
    assert_eq!(append(store, last), Ok(Written::Done));
    assert_eq!(append(store, acts(&run, epoch, vec![])), Err(StoreError::Fenced));
    assert_eq!(now(store, releasing(&run, epoch)), Ok(Written::Done));
    // It can be claimed again: a mailbox outlives the log's end.
    let again = claim(store, &run);
    assert_eq!(append(store, acts(&run, again, vec![Act::Take { row: 1 }])), Ok(Written::Done));
}

fn conflict(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let store = &**subject.store();
    let wrong = |at: u64, generation: u32| Batch { generation: Generation(generation), ..batch(&run, epoch, at, 1, 9) };
    for (at, generation) in [(0, 0), (2, 0), (u64::MAX, 0), (1, 1), (1, 2), (0, 2), (0, u32::MAX)] {
        assert_eq!(append(store, wrong(at, generation)), Err(StoreError::Conflict), "at {at} of {generation}");
    }
    // Without entries the place does not matter.
    let placeless = Batch { generation: Generation(9), at: Seq(99), ..acts(&run, epoch, vec![]) };
    assert_eq!(append(store, placeless), Ok(Written::Done));
    // The same batch twice is a conflict, not two entries; reading back tells the first from another's.
    assert_eq!(append(store, batch(&run, epoch, 1, 3, 9)), Ok(Written::Done));
    assert_eq!(append(store, batch(&run, epoch, 1, 3, 9)), Err(StoreError::Conflict));
    assert_eq!(log(store, &run, 0).0, 4);
}

fn generations(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let store = &**subject.store();
    assert_eq!(append(store, batch(&run, epoch, 1, 2, 9)), Ok(Written::Done));
    let mut first = log(store, &run, 0).1;
    first.extend(frames(&run, 3, 9));
    for generation in 0..3 {
        let next = Generation(generation + 1);
        let begin = Act::Next { count: 1, frames: frames(&run, 0, 5) };
        let restart = Batch {
            generation: Generation(generation),
            acts: vec![begin],
            head: Some(head(next.0, true, "")),
            ..batch(&run, epoch, 3, 1, 9)
        };
        // Two batches in one group, if the store has groups.
        let go_on = Batch { generation: next, ..batch(&run, epoch, 1, 2, 5) };
        let (begin, go_on) = (later(store, Write::Append(restart)), later(store, Write::Append(go_on)));
        assert_eq!((begin(), go_on()), (Ok(Written::Done), Ok(Written::Done)), "the claim stays");
    }
    let begin_at_0 = Batch { generation: Generation(4), ..batch(&run, epoch, 0, 1, 9) };
    for wrong in [batch(&run, epoch, 4, 1, 9), batch(&run, epoch, 3, 1, 9), begin_at_0] {
        assert_eq!(append(store, wrong), Err(StoreError::Conflict), "only the newest log goes on");
    }
    assert_eq!(record(store, &run).head.generation, Generation(3));
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!(log(store, &run, 0), (4, first.clone()));
        assert_eq!([1, 2, 3, 4].map(|generation| log(store, &run, generation).0), [4, 4, 3, 0]);
        subject.reopen();
    }
    // Also without entries, but then too the batch must know where the log ends.
    let store = &**subject.store();
    let epoch = claim(store, &run);
    let begin = Act::Next { count: 2, frames: frames(&run, 0, 5) };
    let bare = Batch { generation: Generation(3), head: Some(head(4, true, "")), ..acts(&run, epoch, vec![begin]) };
    assert_eq!(append(store, bare.clone()), Err(StoreError::Conflict));
    assert_eq!(append(store, Batch { at: Seq(3), ..bare }), Ok(Written::Done));
    assert_eq!([3, 4].map(|generation| log(store, &run, generation).0), [3, 2]);
}

fn all_or_nothing(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    let (other, _) = born(store, "other");
    assert_eq!(now(store, put(&run, row(1, "stays"))), Ok(Written::Done));
    let listed = |store: &dyn Store| -> Vec<_> {
        store.runs(None, None, 99).unwrap().into_iter().map(|(id, record)| (id, record.head)).collect()
    };
    let before = (dump(store, &run), listed(store));
    let put_to = |to: &RunId| Act::Put { to: to.clone(), row: row(2, "must not be") };
    let full = |epoch, at| Batch {
        acts: vec![
            put_to(&other),
            Act::Take { row: 1 },
            put_to(&run),
            put_to(&RunId::new("unborn").unwrap()),
            making("child", "must not be", 6),
            making("other", "must not be", 6),
            Act::Publish { name: "name".into(), value: Bytes::new() },
            Act::Next { count: 1, frames: frames(&run, 0, 9) },
        ],
        head: Some(head(1, false, "must not be")),
        ..batch(&run, epoch, at, 1, 9)
    };
    // With a good write on each side, in one group if the store has groups.
    let good = later(store, Write::Append(batch(&other, Epoch(0), 1, 1, 9)));
    let fenced = later(store, Write::Append(full(Epoch(epoch.0 - 1), 1)));
    let conflict = later(store, Write::Append(full(epoch, 7)));
    let late = later(store, put(&other, row(3, "good")));
    assert_eq!(good(), Err(StoreError::Fenced));
    assert_eq!((fenced(), conflict()), (Err(StoreError::Fenced), Err(StoreError::Conflict)));
    assert_eq!(late(), Ok(Written::Done));
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!((dump(store, &run), listed(store)), before);
        assert_eq!(rows(store, &other), [(3, "good".into())]);
        assert_eq!(rows(store, &RunId::new("unborn").unwrap()), []);
        subject.reopen();
    }
}

fn batch_is_whole(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    let parent = RunId::new("parent").unwrap();
    assert_eq!(now(store, put(&run, row(1, "signal"))), Ok(Written::Done));
    let mut whole = Batch { head: Some(head(0, false, "ended")), ..batch(&run, epoch, 1, 2, 9) };
    whole.acts =
        vec![Act::Take { row: 1 }, Act::Put { to: parent.clone(), row: row(5, "child ended") }, Act::Take { row: 77 }];
    assert_eq!(append(store, whole), Ok(Written::Done));
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!(log(store, &run, 0).0, 3);
        assert_eq!(rows(store, &run), []);
        assert_eq!(rows(store, &parent), [(5, "child ended".into())]);
        assert_eq!(store.run(&run).unwrap().unwrap().head, head(0, false, "ended"));
        subject.reopen();
    }
}

fn malformed(subject: &mut Subject) {
    let store = &**subject.store();
    let (there, epoch) = born(store, "r");
    let empty = Write::Create { run: run("x"), count: 0, frames: Bytes::new(), head: head(0, true, "") };
    assert!(matches!(now(store, empty), Err(StoreError::Rejected { .. })));
    let whole = batch(&there, epoch, 1, 1, 9);
    let with = |acts: &[Act], generation| Batch {
        acts: acts.to_vec(),
        head: Some(head(generation, true, "")),
        ..whole.clone()
    };
    let create = |count, text: &'static str| Act::Create {
        run: run("x"),
        count,
        frames: Bytes::from_static(text.as_bytes()),
        head: head(0, true, ""),
        owner: 5,
        taken: row(1, ""),
    };
    let next = |count, text: &'static str| Act::Next { count, frames: Bytes::from_static(text.as_bytes()) };
    let good = create(1, "x");
    for bad in [
        Batch { count: 0, ..whole.clone() },
        Batch { frames: Bytes::new(), ..whole.clone() },
        with(&[good.clone(), create(0, "")], 0),
        with(&[good.clone(), create(1, "")], 0),
        with(&[good.clone(), next(0, "")], 1),
        with(&[good.clone(), next(1, "")], 1),
        // The head is that of the log that is closed, or of none; a log begins twice.
        with(&[good.clone(), next(1, "x")], 0),
        Batch { head: None, ..with(&[good.clone(), next(1, "x")], 1) },
        with(&[good, next(1, "x"), next(1, "x")], 1),
    ] {
        assert!(matches!(append(store, bad), Err(StoreError::Rejected { .. })));
    }
    assert_eq!((log(store, &there, 0).0, record(store, &there).head), (1, head(0, true, "")));
    assert_eq!((store.run(&run("x")), rows(store, &there)), (Ok(None), vec![]));
}

fn in_order(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    let order = Arc::new(Mutex::new(Vec::new()));
    let (tell, told) = mpsc::channel();
    for at in 1..500_u64 {
        let (order, tell) = (Arc::clone(&order), tell.clone());
        let done = move |result: Result<Written, StoreError>| {
            order.lock().unwrap().push(at);
            tell.send(result).unwrap();
        };
        store.submit(Write::Append(batch(&run, epoch, at, 1, 30)), Box::new(done));
    }
    drop(tell);
    assert!(told.iter().all(|result| result == Ok(Written::Done)));
    assert_eq!(*order.lock().unwrap(), (1..500).collect::<Vec<_>>());
    assert_eq!(log(store, &run, 0).0, 500);
}

fn panicking_callback(subject: &mut Subject) {
    if !subject.is_sled() {
        // Those call it on the submitter's own thread, whose panic it then is.
        return;
    }
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    store.submit(
        Write::Append(batch(&run, epoch, 1, 1, 9)),
        Box::new(|_| panic!("a callback panics, as the test wants")),
    );
    assert_eq!(append(store, batch(&run, epoch, 2, 1, 9)), Ok(Written::Done));
    assert_eq!(log(store, &run, 0).0, 3);
}

fn no_half_batches(subject: &mut Subject) {
    let store = subject.store();
    let runs: Vec<_> = (0..10).map(|nth| born(&**store, &format!("r{nth}")).0).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !over.load(Ordering::Relaxed) || reads == 0 {
                // A run that changes class stands in one of them at each instant.
                let listed = store.runs(None, None, 99).unwrap();
                assert_eq!(listed.len(), 10);
                for run in &runs {
                    // Rows 2n and 2n + 1 come in one batch and go in one batch.
                    assert_eq!(mailbox(&**store, run).len() % 2, 0);
                }
                reads += 1;
            }
        });
        for round in 0..30_u128 {
            for run in &runs {
                let epoch = claim(&**store, run);
                let put = |id| Act::Put { to: run.clone(), row: row(id, "") };
                let mut two = vec![put(2 * round), put(2 * round + 1)];
                if round > 0 {
                    two.extend([Act::Take { row: 2 * round - 2 }, Act::Take { row: 2 * round - 1 }]);
                }
                let change = Batch { head: Some(head(0, round % 2 == 1, "")), ..acts(run, epoch, two) };
                assert_eq!(append(&**store, change), Ok(Written::Done));
            }
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

fn closing(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let store = &**subject.store();
    let waiting: Vec<_> = (1..200).map(|at| later(store, Write::Append(batch(&run, epoch, at, 1, 9)))).collect();
    store.close().unwrap();
    for done in waiting {
        assert_eq!(done(), Ok(Written::Done));
    }
    for _ in 0..2 {
        assert_eq!(append(store, batch(&run, epoch, 200, 1, 9)), Err(StoreError::Closed));
        assert_eq!(now(store, claiming(&run)), Err(StoreError::Closed));
        assert_eq!(store.run(&run), Err(StoreError::Closed));
        assert_eq!(store.rows(&run, 0, 9), Err(StoreError::Closed));
        assert_eq!((store.published(&run), store.dump(&run)), (Err(StoreError::Closed), Err(StoreError::Closed)));
        assert_eq!(store.runs(None, None, 9), Err(StoreError::Closed));
        assert_eq!(store.read(&run, Generation(0), Seq(0), 9), Err(StoreError::Closed));
        store.close().unwrap();
    }
    subject.reopen();
    assert_eq!(log(&**subject.store(), &run, 0).0, 200);
}

fn reopening(subject: &mut Subject) {
    let mut lengths = vec![1_u64; 5];
    for id in 0..5 {
        born(&**subject.store(), &format!("r{id}"));
    }
    for round in 0..10 {
        for (id, length) in (0..).zip(&mut lengths) {
            let run = run(&format!("r{id}"));
            let epoch = claim(&**subject.store(), &run);
            let count = 1 + (round + id) % 4;
            assert_eq!(append(&**subject.store(), batch(&run, epoch, *length, count, 500)), Ok(Written::Done));
            *length += u64::from(count);
        }
        subject.reopen();
        for (id, length) in (0..).zip(&lengths) {
            assert_eq!(log(&**subject.store(), &run(&format!("r{id}")), 0).0, *length);
        }
    }
}
