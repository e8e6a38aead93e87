//! The contract of [`Store`](durable_runtime::store::Store), sentence by sentence, as checks that any store must pass.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use bytes::Bytes;
use durable_runtime::{
    Epoch, Generation, RunId, Seq,
    store::{Act, Batch, Head, Row, StoreError, Write, Written},
};

use crate::subject::*;

type Check = fn(&mut Subject);

/// All checks, by what they say.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("a run is created once", created_once),
    ("a store keeps its id", keeps_its_id),
    ("what does not exist cannot be claimed, written to, or set aside", nothing_there),
    ("a later claim fences an earlier one, also across reopening", claims_ascend),
    ("a released run takes no batch", released),
    ("an ended run is given back", ended_is_given_back),
    ("a batch goes on where the log ends, or not at all", conflict),
    ("a next generation begins at 0 and leaves the old log readable", generations),
    ("a batch that fails changes nothing", all_or_nothing),
    ("a batch carries entries, acts and head together", batch_is_whole),
    ("malformed writes are rejected", malformed),
    ("rows stand in the order in which they were put, each once", rows_in_order),
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
    assert_eq!((first(), second()), (Ok(Written::Created), Ok(Written::Exists)));
    assert_eq!(now(&**subject.store(), create("third")), Ok(Written::Exists));
    subject.reopen();
    assert_eq!(now(&**subject.store(), create("fourth")), Ok(Written::Exists));
    assert_eq!(log(&**subject.store(), &run, 0), (2, b"first".to_vec()));
    assert_eq!(subject.store().run(&run).unwrap().unwrap().head, head(0, true, "first"));
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
        assert_eq!(now(store, Write::Claim { run: nobody.clone() }), Err(StoreError::NoSuchRun));
        assert_eq!(append(store, batch(&nobody, Epoch(1), 0, 1, 5)), Err(StoreError::NoSuchRun));
        assert_eq!(now(store, aside(Some(Bytes::from_static(b"x")))), Err(StoreError::NoSuchRun));
        assert_eq!(now(store, aside(None)), Err(StoreError::NoSuchRun));
        assert_eq!(now(store, Write::Release { run: nobody.clone(), epoch: Epoch(1) }), Ok(Written::Done));
        assert_eq!(store.run(&nobody), Ok(None));
        assert_eq!(store.read(&nobody, Generation(0), Seq(0), 100), Ok(vec![]));
        // A mailbox makes no run.
        assert_eq!(now(store, Write::Put { run: nobody.clone(), row: row(1, "early") }), Ok(Written::Done));
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
    assert_eq!(now(store, Write::Release { run: run.clone(), epoch: first }), Ok(Written::Done));
    assert_eq!(append(store, batch(&run, second, 1, 1, 9)), Ok(Written::Done));
    for _ in 0..2 {
        assert_eq!(now(store, Write::Release { run: run.clone(), epoch: second }), Ok(Written::Done));
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
    assert_eq!(now(store, Write::Release { run: run.clone(), epoch }), Ok(Written::Done));
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
    let first = log(store, &run, 0);
    for generation in 1..4 {
        // Two batches in one group, if the store has groups.
        let begin = Batch {
            generation: Generation(generation),
            head: Some(head(generation, true, "")),
            ..batch(&run, epoch, 0, 1, 5)
        };
        let go_on = Batch { generation: Generation(generation), ..batch(&run, epoch, 1, 2, 5) };
        let (begin, go_on) = (later(store, Write::Append(begin)), later(store, Write::Append(go_on)));
        assert_eq!((begin(), go_on()), (Ok(Written::Done), Ok(Written::Done)));
    }
    assert_eq!(append(store, batch(&run, epoch, 3, 1, 9)), Err(StoreError::Conflict), "the old log is closed");
    assert_eq!(store.run(&run).unwrap().unwrap().head.generation, Generation(3));
    subject.reopen();
    let store = &**subject.store();
    assert_eq!(log(store, &run, 0), first);
    for generation in 1..4 {
        assert_eq!(log(store, &run, generation).0, 3);
    }
    assert_eq!(log(store, &run, 4).0, 0);
}

fn all_or_nothing(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    let (other, _) = born(store, "other");
    assert_eq!(now(store, Write::Put { run: run.clone(), row: row(1, "stays") }), Ok(Written::Done));
    let before = (log(store, &run, 0), rows(store, &run), store.run(&run), store.runs(None, None, 99));
    let put = |to: &RunId| Act::Put { to: to.clone(), row: row(2, "must not be") };
    let full = |epoch, at| Batch {
        acts: vec![put(&other), Act::Take { row: 1 }, put(&run), put(&RunId::new("unborn").unwrap())],
        head: Some(head(0, false, "must not be")),
        ..batch(&run, epoch, at, 1, 9)
    };
    // With a good write on each side, in one group if the store has groups.
    let good = later(store, Write::Append(batch(&other, Epoch(0), 1, 1, 9)));
    let fenced = later(store, Write::Append(full(Epoch(epoch.0 - 1), 1)));
    let conflict = later(store, Write::Append(full(epoch, 7)));
    let late = later(store, Write::Put { run: other.clone(), row: row(3, "good") });
    assert_eq!(good(), Err(StoreError::Fenced));
    assert_eq!((fenced(), conflict()), (Err(StoreError::Fenced), Err(StoreError::Conflict)));
    assert_eq!(late(), Ok(Written::Done));
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!((log(store, &run, 0), rows(store, &run), store.run(&run), store.runs(None, None, 99)), before);
        assert_eq!(rows(store, &other), [(3, "good".into())]);
        assert_eq!(rows(store, &RunId::new("unborn").unwrap()), []);
        subject.reopen();
    }
}

fn batch_is_whole(subject: &mut Subject) {
    let store = &**subject.store();
    let (run, epoch) = born(store, "r");
    let parent = RunId::new("parent").unwrap();
    assert_eq!(now(store, Write::Put { run: run.clone(), row: row(1, "signal") }), Ok(Written::Done));
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
    let no_count = Batch { count: 0, ..batch(&there, epoch, 1, 1, 9) };
    let no_frames = Batch { frames: Bytes::new(), ..batch(&there, epoch, 1, 1, 9) };
    for bad in [no_count, no_frames] {
        assert!(matches!(append(store, bad), Err(StoreError::Rejected { .. })));
    }
    assert_eq!(log(store, &there, 0).0, 1);
}

fn rows_in_order(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let ids = [9, 3, u128::MAX, 0, 7, 1];
    for (nth, id) in ids.into_iter().enumerate() {
        if nth == 3 {
            subject.reopen();
        }
        for text in ["first", "second"] {
            let put = Write::Put { run: run.clone(), row: row(id, text) };
            assert_eq!(now(&**subject.store(), put), Ok(Written::Done));
        }
    }
    assert!(matches!(epoch, Epoch(1..)));
    let expected: Vec<_> = ids.iter().map(|id| (*id, String::from("first"))).collect();
    assert_eq!(rows(&**subject.store(), &run), expected);
    let kept = subject.store().rows(&run).unwrap();
    assert!(kept.iter().all(|row| row.kind == 7));
}

fn row_ids_stay(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let put = |id| Act::Put { to: run.clone(), row: row(id, "again") };
    let take = |id| Act::Take { row: id };
    let store = &**subject.store();
    // Put and taken in one batch, then put again in the same and in the next.
    assert_eq!(append(store, acts(&run, epoch, vec![put(1), put(2), take(1), put(1)])), Ok(Written::Done));
    assert_eq!(append(store, acts(&run, epoch, vec![put(1)])), Ok(Written::Done));
    assert_eq!(rows(store, &run), [(2, "again".into())]);
    assert_eq!(append(store, acts(&run, epoch, vec![take(2), take(2), take(3)])), Ok(Written::Done));
    subject.reopen();
    let store = &**subject.store();
    for id in [1, 2] {
        assert_eq!(now(store, Write::Put { run: run.clone(), row: row(id, "late repeat") }), Ok(Written::Done));
    }
    // What was taken before it was put is no row that was taken.
    assert_eq!(now(store, Write::Put { run: run.clone(), row: row(3, "new") }), Ok(Written::Done));
    assert_eq!(rows(store, &run), [(3, "new".into())]);
}

fn mailbox_before_run(subject: &mut Subject) {
    let early = run("early");
    for (id, text) in [(2, "b"), (1, "a")] {
        assert_eq!(now(&**subject.store(), Write::Put { run: early.clone(), row: row(id, text) }), Ok(Written::Done));
        subject.reopen();
    }
    assert_eq!(subject.store().run(&early), Ok(None));
    assert_eq!(subject.store().runs(None, None, 10), Ok(vec![]));
    let (_, epoch) = born(&**subject.store(), "early");
    let store = &**subject.store();
    assert_eq!(append(store, acts(&early, epoch, vec![Act::Take { row: 2 }])), Ok(Written::Done));
    assert_eq!(now(store, Write::Put { run: early.clone(), row: row(2, "again") }), Ok(Written::Done));
    assert_eq!(rows(store, &early), [(1, "a".into())]);
    assert_eq!(store.runs(None, None, 10).unwrap().len(), 1);
}

/// A log of records of 1 to 3 entries, written many at a time so that a store may merge them. Returns its length.
fn long_log(subject: &mut Subject, run: &RunId, epoch: Epoch) -> u64 {
    let store = &**subject.store();
    let mut at = 1;
    let mut waiting = Vec::new();
    for nth in 0..200_u32 {
        let count = 1 + nth % 3;
        waiting.push(later(store, Write::Append(batch(run, epoch, at, count, 40 * nth as usize))));
        at += u64::from(count);
    }
    for done in waiting {
        assert_eq!(done(), Ok(Written::Done));
    }
    at
}

fn read_from_anywhere(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    // Neighbours, whose records must not be taken for the run's.
    born(&**subject.store(), "q");
    born(&**subject.store(), "s");
    let length = long_log(subject, &run, epoch);
    subject.reopen();
    let store = &**subject.store();
    let all = store.read(&run, Generation(0), Seq(0), usize::MAX).unwrap();
    assert_eq!(end(&all), Seq(length));
    for from in 0..length {
        let records = store.read(&run, Generation(0), Seq(from), usize::MAX).unwrap();
        let (first, last) = (records.first().unwrap(), end(&records));
        assert!(
            first.first.0 <= from && from < first.first.0 + u64::from(first.count),
            "the first record holds {from}"
        );
        assert_eq!(last, Seq(length));
        assert!(all.ends_with(&records), "reading from {from} brings the same records");
    }
    for from in [length, length + 1, u64::MAX] {
        assert_eq!(store.read(&run, Generation(0), Seq(from), usize::MAX), Ok(vec![]));
    }
    assert_eq!(store.read(&run, Generation(1), Seq(0), usize::MAX), Ok(vec![]));
}

fn read_in_parts(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let length = long_log(subject, &run, epoch);
    let store = &**subject.store();
    let all = store.read(&run, Generation(0), Seq(0), usize::MAX).unwrap();
    for most in [0, 1, 1000, 50_000] {
        let (mut parts, mut next) = (Vec::new(), Seq(0));
        while next < Seq(length) {
            let part = store.read(&run, Generation(0), next, most).unwrap();
            let bytes: usize = part.iter().map(|record| record.frames.len()).sum();
            let all_but_last = bytes - part.last().unwrap().frames.len();
            assert!(part.len() == 1 || all_but_last < most, "{bytes} bytes where {most} were asked for");
            next = end(&part);
            parts.extend(part);
        }
        assert_eq!(parts, all);
    }
}

fn sizes(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let kib = 1024;
    let sizes =
        [1, kib, 32 * kib - 13, 32 * kib - 12, 32 * kib, 32 * kib + 1, 64 * kib, 100 * kib, 1024 * kib, 8192 * kib];
    for (at, bytes) in (1..).zip(sizes) {
        assert_eq!(append(&**subject.store(), batch(&run, epoch, at, 1, bytes)), Ok(Written::Done), "{bytes} bytes");
    }
    for _ in 0..2 {
        for (at, bytes) in (1..).zip(sizes) {
            let records = subject.store().read(&run, Generation(0), Seq(at), 0).unwrap();
            assert_eq!(records.len(), 1);
            assert!(records[0].frames == frames(&run, at, bytes), "{bytes} bytes come back");
        }
        subject.reopen();
    }
}

fn large_values(subject: &mut Subject) {
    let (there, mut epoch) = born(&**subject.store(), "r");
    let bytes = |of: u8, bytes: usize| Bytes::from(vec![of; bytes]);
    for (round, size) in (0_u128..).zip([100_000, 10, 70_000, 0, 40_000]) {
        let store = &**subject.store();
        let new = Head { generation: Generation(0), live: true, bytes: bytes(1, size) };
        let large = Row { id: round, kind: 1, bytes: bytes(3, size) };
        let mut change = acts(&there, epoch, vec![Act::Put { to: there.clone(), row: large.clone() }]);
        change.head = Some(new.clone());
        assert_eq!(append(store, change), Ok(Written::Done));
        let aside = Some(bytes(2, size / 2));
        assert_eq!(now(store, Write::Aside { run: there.clone(), value: aside.clone() }), Ok(Written::Done));
        subject.reopen();
        let store = &**subject.store();
        let record = store.run(&there).unwrap().unwrap();
        assert!(record.head == new && record.aside == aside, "round {round}");
        assert!(store.rows(&there) == Ok(vec![large]), "round {round}");
        epoch = claim(store, &there);
        assert_eq!(append(store, acts(&there, epoch, vec![Act::Take { row: round }])), Ok(Written::Done));
        assert_eq!(store.rows(&there), Ok(vec![]));
    }
}

fn listing(subject: &mut Subject) {
    let ids = ["a", "a\0", "aa", "b", "ba", "c/1", "c/10", "c/2", "é", "\u{10FFFF}"];
    for (nth, id) in ids.into_iter().enumerate().rev() {
        let (run, epoch) = born(&**subject.store(), id);
        if nth % 3 == 0 {
            let last = Batch { head: Some(head(0, false, "")), ..batch(&run, epoch, 1, 1, 9) };
            assert_eq!(append(&**subject.store(), last), Ok(Written::Done));
        }
    }
    assert_eq!(now(&**subject.store(), Write::Put { run: run("b0"), row: row(1, "") }), Ok(Written::Done));
    for _ in 0..2 {
        let store = &**subject.store();
        for class in [None, Some(true), Some(false)] {
            let expected: Vec<_> =
                (0..).zip(ids).filter(|(nth, _)| class.is_none_or(|live| live == (nth % 3 != 0))).collect();
            for most in [1, 2, 3, 99] {
                let (mut seen, mut after) = (Vec::new(), None);
                loop {
                    let page = store.runs(class, after.as_ref(), most).unwrap();
                    assert!(page.len() <= most);
                    assert!(page.iter().all(|(_, record)| class.is_none_or(|live| record.head.live == live)));
                    seen.extend(page.iter().map(|(id, _)| id.as_str().to_owned()));
                    match page.into_iter().last() {
                        Some((id, _)) => after = Some(id),
                        None => break,
                    }
                }
                let expected: Vec<_> = expected.iter().map(|(_, id)| (*id).to_owned()).collect();
                assert_eq!(seen, expected, "class {class:?}, pages of {most}");
            }
        }
        assert_eq!(store.runs(None, None, 0), Ok(vec![]));
        let page = store.runs(None, Some(&run("b\u{1}")), 2).unwrap();
        assert_eq!(page[0].0, run("ba"), "`after` need not exist");
        subject.reopen();
    }
}

fn odd_ids(subject: &mut Subject) {
    for refused in ["", &"x".repeat(513), &"x".repeat(64 * 1024)] {
        assert!(RunId::new(refused).is_err());
    }
    let long = "x".repeat(512);
    let longer_prefix = &long[..511];
    let ids = [
        " ",
        "a/b",
        "..",
        "\0",
        "\0\0",
        "a\0",
        "\n",
        "\u{1F600}",
        "\u{202E}",
        "\u{e9}",
        "e\u{301}",
        "%",
        "'",
        "a",
        "aa",
        "a\0\0\0\0",
        "a\0\0\0\u{1}",
        "d",
        "dl",
        "l",
        "u",
        "s\0\0\0\0\0\0\0\0",
        "E",
        "M",
        "X",
        "\u{7f}",
        "\u{10FFFF}",
        &long,
        longer_prefix,
    ];
    let mut runs: Vec<_> = ids.iter().map(|id| born(&**subject.store(), id)).collect();
    for reopened in [false, true] {
        let store = &**subject.store();
        for (nth, (run, epoch)) in (0_u128..).zip(&mut runs) {
            if reopened {
                *epoch = claim(store, run);
            }
            let at = if reopened { 2 } else { 1 };
            let put = Act::Put { to: run.clone(), row: Row { id: nth, kind: 0, bytes: frames(run, at, 50_000) } };
            let change = Batch { acts: vec![put], ..batch(run, *epoch, at, 1, 40_000) };
            assert_eq!(append(store, change), Ok(Written::Done), "{run:?}");
            let aside = Write::Aside { run: run.clone(), value: Some(frames(run, 0, 30)) };
            assert_eq!(now(store, aside), Ok(Written::Done));
        }
        subject.reopen();
    }
    let store = &**subject.store();
    for (nth, (run, _)) in (0_u128..).zip(&runs) {
        let expected = [frames(run, 0, 20), frames(run, 1, 40_000), frames(run, 2, 40_000)].concat();
        assert!(log(store, run, 0) == (3, expected), "the log of {run:?} is its own");
        assert!(store.rows(run) == Ok(vec![Row { id: nth, kind: 0, bytes: frames(run, 1, 50_000) }]), "{run:?}");
        assert_eq!(store.run(run).unwrap().unwrap().aside, Some(frames(run, 0, 30)), "{run:?}");
    }
    let listed: Vec<_> = store.runs(None, None, 999).unwrap().into_iter().map(|(id, _)| id).collect();
    let mut sorted: Vec<_> = runs.iter().map(|(run, _)| run.clone()).collect();
    sorted.sort();
    assert_eq!(listed, sorted);
}

fn asides(subject: &mut Subject) {
    let (run, mut epoch) = born(&**subject.store(), "r");
    let texts = [None, Some(""), Some("parked"), Some("died twice"), None];
    for (nth, text) in texts.into_iter().enumerate() {
        let text = text.map(|text| Bytes::from_static(text.as_bytes()));
        let store = &**subject.store();
        assert_eq!(now(store, Write::Aside { run: run.clone(), value: text.clone() }), Ok(Written::Done));
        // A new head keeps the aside, and an aside keeps the head.
        let live = nth % 2 == 0;
        let change = Batch { head: Some(head(0, live, "new")), ..acts(&run, epoch, vec![]) };
        assert_eq!(append(store, change), Ok(Written::Done));
        subject.reopen();
        let store = &**subject.store();
        let record = store.run(&run).unwrap().unwrap();
        assert_eq!((record.head, record.aside), (head(0, live, "new"), text.clone()));
        assert_eq!(now(store, Write::Aside { run: run.clone(), value: text.clone() }), Ok(Written::Done));
        assert_eq!(store.runs(Some(live), None, 9).unwrap()[0].1.aside, text);
        epoch = claim(store, &run);
    }
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
                    assert_eq!(store.rows(run).unwrap().len() % 2, 0);
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
        assert_eq!(now(store, Write::Claim { run: run.clone() }), Err(StoreError::Closed));
        assert_eq!(store.run(&run), Err(StoreError::Closed));
        assert_eq!(store.rows(&run), Err(StoreError::Closed));
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
