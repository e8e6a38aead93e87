//! The part of the conformance suite about what a store keeps: rows, records, lists, under whatever ids.

use bytes::Bytes;
use durable_runtime::{
    Epoch, Generation, RunId, Seq,
    store::{Act, Addressee, Batch, Head, Row, Store, StoreError, Write, Written},
};

use crate::subject::*;

pub(crate) fn rows_in_order(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let ids = [9, 3, u128::MAX, 0, 7, 1];
    for (nth, id) in ids.into_iter().enumerate() {
        if nth == 3 {
            subject.reopen();
        }
        for (text, put_as) in [("first", Written::Done), ("second", Written::Exists)] {
            assert_eq!(now(&**subject.store(), put(&run, row(id, text))), Ok(put_as));
        }
    }
    assert!(matches!(epoch, Epoch(1..)));
    let expected: Vec<_> = ids.iter().map(|id| (*id, String::from("first"))).collect();
    assert_eq!(rows(&**subject.store(), &run), expected);
    assert!(mailbox(&**subject.store(), &run).iter().all(|row| row.kind == 7));
}

pub(crate) fn rows_are_numbered(subject: &mut Subject) {
    let (run, mut epoch) = born(&**subject.store(), "r");
    let numbers = |store: &dyn Store, after, most| -> Vec<_> {
        store.rows(&run, after, most).unwrap().into_iter().map(|(number, row)| (number, row.id)).collect()
    };
    assert_eq!(record(&**subject.store(), &run).version, 0);
    for id in [50, 40, 30, 20, 10] {
        assert_eq!(now(&**subject.store(), put(&run, row(id, ""))), Ok(Written::Done));
    }
    for taken in [false, true] {
        let store = &**subject.store();
        let all: Vec<_> =
            [(1, 50), (2, 40), (3, 30), (4, 20), (5, 10)].into_iter().filter(|(n, _)| !taken || n % 2 == 1).collect();
        for after in 0..7 {
            for most in [0, 1, 2, 99] {
                let expected: Vec<_> = all.iter().filter(|(n, _)| *n > after).take(most).copied().collect();
                assert_eq!(numbers(store, after, most), expected, "{most} rows after {after}");
            }
        }
        assert_eq!(numbers(store, u64::MAX, 9), []);
        // What is taken leaves a gap.
        let take = [40, 20].map(|row| Act::Take { row }).to_vec();
        assert_eq!(append(store, acts(&run, epoch, take)), Ok(Written::Done));
        assert_eq!(record(store, &run).version, 5);
        subject.reopen();
        epoch = claim(&**subject.store(), &run);
    }
    // The number of the last row is not given again when that is gone, nor for a row that is put twice.
    let store = &**subject.store();
    let last = vec![Act::Take { row: 10 }];
    assert_eq!(append(store, acts(&run, epoch, last)), Ok(Written::Done));
    for id in [10, 50, 60] {
        now(store, put(&run, row(id, ""))).unwrap();
    }
    assert_eq!(numbers(store, 0, 9), [(1, 50), (3, 30), (6, 60)]);
    assert_eq!(record(store, &run).version, 6);
}

pub(crate) fn unfinished_only(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let only = |run: &RunId, id| Write::Put { run: run.clone(), row: row(id, ""), to: Addressee::Unfinished };
    let store = &**subject.store();
    let nobody = RunId::new("nobody").unwrap();
    assert_eq!(now(store, only(&nobody, 1)), Err(StoreError::NoSuchRun));
    assert_eq!(now(store, put(&nobody, row(1, "early"))), Ok(Written::Done));
    assert_eq!(now(store, only(&nobody, 1)), Ok(Written::Exists));
    assert_eq!(now(store, only(&nobody, 2)), Err(StoreError::NoSuchRun));
    assert_eq!(rows(store, &nobody).len(), 1);

    assert_eq!(now(store, only(&run, 1)), Ok(Written::Done));
    assert_eq!(now(store, only(&run, 1)), Ok(Written::Exists));
    let end = Batch { head: Some(head(0, false, "")), ..acts(&run, epoch, vec![Act::Take { row: 1 }]) };
    // With the end in one group, if the store has groups.
    let (end, late) = (later(store, Write::Append(end)), later(store, only(&run, 2)));
    assert_eq!((end(), late()), (Ok(Written::Done), Ok(Written::Ended)));
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!(now(store, only(&run, 1)), Ok(Written::Exists));
        assert_eq!(now(store, only(&run, 2)), Ok(Written::Ended));
        assert_eq!((rows(store, &run), record(store, &run).version), (vec![], 1));
        subject.reopen();
    }
    assert_eq!(now(&**subject.store(), put(&run, row(2, ""))), Ok(Written::Done), "anyone takes it");
}

pub(crate) fn row_ids_stay(subject: &mut Subject) {
    let (run, epoch) = born(&**subject.store(), "r");
    let put_again = |id| Act::Put { to: run.clone(), row: row(id, "again") };
    let take = |id| Act::Take { row: id };
    let store = &**subject.store();
    // Put and taken in one batch, then put again in the same and in the next.
    assert_eq!(
        append(store, acts(&run, epoch, vec![put_again(1), put_again(2), take(1), put_again(1)])),
        Ok(Written::Done)
    );
    assert_eq!(append(store, acts(&run, epoch, vec![put_again(1)])), Ok(Written::Done));
    assert_eq!(rows(store, &run), [(2, "again".into())]);
    assert_eq!(append(store, acts(&run, epoch, vec![take(2), take(2), take(3)])), Ok(Written::Done));
    subject.reopen();
    let store = &**subject.store();
    for id in [1, 2] {
        assert_eq!(now(store, put(&run, row(id, "late repeat"))), Ok(Written::Exists));
    }
    // What was taken before it was put is no row that was taken.
    assert_eq!(now(store, put(&run, row(3, "new"))), Ok(Written::Done));
    assert_eq!(rows(store, &run), [(3, "new".into())]);
}

pub(crate) fn mailbox_before_run(subject: &mut Subject) {
    let early = run("early");
    for (id, text) in [(2, "b"), (1, "a")] {
        assert_eq!(now(&**subject.store(), put(&early, row(id, text))), Ok(Written::Done));
        subject.reopen();
    }
    assert_eq!(subject.store().run(&early), Ok(None));
    assert_eq!(subject.store().runs(None, None, 10), Ok(vec![]));
    let (_, epoch) = born(&**subject.store(), "early");
    let store = &**subject.store();
    assert_eq!(append(store, acts(&early, epoch, vec![Act::Take { row: 2 }])), Ok(Written::Done));
    assert_eq!(now(store, put(&early, row(2, "again"))), Ok(Written::Exists));
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

pub(crate) fn read_from_anywhere(subject: &mut Subject) {
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

pub(crate) fn read_in_parts(subject: &mut Subject) {
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

pub(crate) fn sizes(subject: &mut Subject) {
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

pub(crate) fn large_values(subject: &mut Subject) {
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
        assert!(mailbox(store, &there) == [large], "round {round}");
        epoch = claim(store, &there);
        assert_eq!(append(store, acts(&there, epoch, vec![Act::Take { row: round }])), Ok(Written::Done));
        assert_eq!(mailbox(store, &there), []);
    }
}

pub(crate) fn listing(subject: &mut Subject) {
    let ids = ["a", "a\0", "aa", "b", "ba", "c/1", "c/10", "c/2", "é", "\u{10FFFF}"];
    for (nth, id) in ids.into_iter().enumerate().rev() {
        let (run, epoch) = born(&**subject.store(), id);
        if nth % 3 == 0 {
            let last = Batch { head: Some(head(0, false, "")), ..batch(&run, epoch, 1, 1, 9) };
            assert_eq!(append(&**subject.store(), last), Ok(Written::Done));
        }
    }
    assert_eq!(now(&**subject.store(), put(&run("b0"), row(1, ""))), Ok(Written::Done));
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

pub(crate) fn odd_ids(subject: &mut Subject) {
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
        assert!(mailbox(store, run) == [Row { id: nth, kind: 0, bytes: frames(run, 1, 50_000) }], "{run:?}");
        assert_eq!(store.run(run).unwrap().unwrap().aside, Some(frames(run, 0, 30)), "{run:?}");
    }
    let listed: Vec<_> = store.runs(None, None, 999).unwrap().into_iter().map(|(id, _)| id).collect();
    let mut sorted: Vec<_> = runs.iter().map(|(run, _)| run.clone()).collect();
    sorted.sort();
    assert_eq!(listed, sorted);
}

pub(crate) fn asides(subject: &mut Subject) {
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
