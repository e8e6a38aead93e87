//! The part of the conformance suite about claims, waits, and the acts of a batch.

use std::sync::Arc;

use bytes::Bytes;
use durable_runtime::{
    Generation, RunId, Seq,
    store::{Act, Batch, Published, RunRecord, Store, Wait, Write, Written},
};

use crate::subject::*;

pub(crate) fn waits(subject: &mut Subject) {
    let (run, mut epoch) = born(&**subject.store(), "r");
    let plain = record(&**subject.store(), &run);
    assert_eq!((plain.wait, plain.is_waiting()), (None, false));
    let waits = [
        Wait { due: None, seen: 0, code: 0 },
        Wait { due: Some(0), seen: 1, code: u64::MAX },
        Wait { due: Some(u64::MAX), seen: u64::MAX, code: 5 },
    ];
    for wait in waits {
        let release = |epoch| Write::Release { run: run.clone(), epoch, wait: Some(wait) };
        let store = &**subject.store();
        let stale = epoch;
        epoch = claim(store, &run);
        assert_eq!(now(store, release(stale)), Ok(Written::Done));
        assert_eq!(record(store, &run).wait, None, "it was somebody else's to release");
        assert_eq!(append(store, acts(&run, epoch, vec![])), Ok(Written::Done));

        assert_eq!(now(store, release(epoch)), Ok(Written::Done));
        for _ in 0..2 {
            let store = &**subject.store();
            assert_eq!(record(store, &run).wait, Some(wait));
            assert_eq!(store.runs(Some(true), None, 9).unwrap()[0].1.wait, Some(wait));
            // Neither an aside nor a row removes it, nor whoever has nothing to release any more.
            let aside = Write::Aside { run: run.clone(), value: Some(Bytes::from_static(b"x")) };
            assert_eq!(now(store, aside), Ok(Written::Done));
            now(store, put(&run, row(u128::from(wait.seen), ""))).unwrap();
            assert_eq!(now(store, releasing(&run, epoch)), Ok(Written::Done));
            subject.reopen();
        }
        let store = &**subject.store();
        let RunRecord { version, .. } = record(store, &run);
        assert_eq!(record(store, &run).is_waiting(), wait.seen >= version);
        epoch = claim(store, &run);
        assert_eq!(record(store, &run).wait, None);
        subject.reopen();
        assert_eq!(record(&**subject.store(), &run).wait, None, "a dead process's claim leaves no wait");
    }
}

pub(crate) fn claims_with_aside(subject: &mut Subject) {
    let (run, _) = born(&**subject.store(), "r");
    for aside in [Some("replaying"), Some(""), None, Some("again"), None] {
        let aside = aside.map(|aside| Bytes::from_static(aside.as_bytes()));
        let store = &**subject.store();
        let claim = Write::Claim { run: run.clone(), aside: aside.clone() };
        let Ok(Written::Claimed(epoch)) = now(store, claim) else { panic!("it is there to be claimed") };
        assert_eq!(append(store, batch(&run, epoch, log(store, &run, 0).0, 1, 9)), Ok(Written::Done));
        assert_eq!(record(store, &run).aside, aside);
        subject.reopen();
        assert_eq!(record(&**subject.store(), &run).aside, aside);
    }
}

/// Makes a run with a log of one record, two entries.
pub(crate) fn making(run: &str, text: &'static str, owner: u128) -> Act {
    let taken = row(1000 + owner, "taken");
    let frames = Bytes::from_static(text.as_bytes());
    Act::Create { run: RunId::new(run).unwrap(), count: 2, frames, head: head(0, true, text), owner, taken }
}

pub(crate) fn makes_runs(subject: &mut Subject) {
    let store = &**subject.store();
    let (parent, epoch) = born(store, "parent");
    let (rival, rival_epoch) = born(store, "rival");
    born(store, "old");
    assert_eq!(now(store, put(&run("child"), row(3, "early"))), Ok(Written::Done));

    let spawn = Batch { acts: vec![making("child", "first", 7)], ..batch(&parent, epoch, 1, 1, 9) };
    // All in one group, if the store has groups.
    let spawn = later(store, Write::Append(spawn));
    let again = later(store, Write::Append(acts(&parent, epoch, vec![making("child", "second", 7)])));
    let both = vec![making("child", "third", 8), making("old", "third", 8)];
    let taken = later(store, Write::Append(acts(&rival, rival_epoch, both)));
    assert_eq!((spawn(), again(), taken()), (Ok(Written::Done), Ok(Written::Done), Ok(Written::Done)));
    let late =
        Write::Create { run: run("child"), count: 1, frames: Bytes::from_static(b"late"), head: head(0, true, "") };
    assert_eq!(now(store, late), Ok(Written::Exists));
    for _ in 0..2 {
        let store = &**subject.store();
        let child = run("child");
        assert_eq!(log(store, &child, 0), (2, b"first".to_vec()));
        assert_eq!(record(store, &child).head, head(0, true, "first"));
        assert_eq!(rows(store, &child), [(3, "early".into())], "what was there before the run stays");
        assert_eq!(rows(store, &parent), [], "its own child is no other's");
        assert_eq!(rows(store, &rival), [(1008, "taken".into())], "and it is said once");
        assert_eq!((dump(store, &child).owner, dump(store, &parent).owner), (7, 0));
        assert_eq!(log(store, &parent, 0).0, 2);
        subject.reopen();
        // The taken row was taken; the same fact does not come again.
        let (store, rival) = (&**subject.store(), run("rival"));
        let epoch = claim(store, &rival);
        let repeat = vec![Act::Take { row: 1008 }, making("child", "fourth", 8)];
        assert_eq!(append(store, acts(&rival, epoch, repeat)), Ok(Written::Done));
        assert_eq!(rows(store, &rival), []);
        assert_eq!(now(store, put(&rival, row(1008, "taken"))), Ok(Written::Exists));
        let epoch = claim(store, &child);
        let put = Act::Put { to: rival.clone(), row: row(1008, "") };
        assert_eq!(append(store, acts(&child, epoch, vec![put])), Ok(Written::Done), "a child is a run like others");
        if rows(store, &run("old")).is_empty() {
            break;
        }
    }
    // A batch that fails makes nothing.
    let store = &**subject.store();
    let epoch = claim(store, &parent);
    let conflict = Batch { acts: vec![making("never", "x", 7)], ..batch(&parent, epoch, 9, 1, 9) };
    assert!(append(store, conflict).is_err());
    assert_eq!((store.run(&run("never")), store.dump(&run("never"))), (Ok(None), Ok(None)));
}

pub(crate) fn publishes(subject: &mut Subject) {
    let (run, mut epoch) = born(&**subject.store(), "r");
    born(&**subject.store(), "q");
    let publish = |name: &str, value: Bytes| Act::Publish { name: name.into(), value };
    let large = Bytes::from(vec![7; 100_000]);
    let names = ["progress", "", "a\0", "a", "\u{10FFFF}", &"x".repeat(3000)];
    assert_eq!(subject.store().published(&run), Ok(vec![]));
    // Without entries, with entries, in a later log.
    let mut expected: Vec<(Arc<str>, Published)> = Vec::new();
    for (round, value) in (0..).zip([Bytes::new(), large, Bytes::from_static(b"last")]) {
        let store = &**subject.store();
        let mut acts: Vec<_> = names[round..].iter().map(|name| publish(name, value.clone())).collect();
        let (generation, len, write) = match round {
            0 => (0, 1, Batch { acts, ..crate::subject::acts(&run, epoch, vec![]) }),
            1 => (0, 3, Batch { acts, ..batch(&run, epoch, 1, 2, 9) }),
            _ => {
                acts.insert(0, publish("before", value.clone()));
                acts.insert(1, Act::Next { count: 1, frames: frames(&run, 0, 9) });
                (1, 1, Batch { acts, head: Some(head(1, true, "")), ..batch(&run, epoch, 3, 1, 9) })
            }
        };
        assert_eq!(append(store, write), Ok(Written::Done));
        expected.retain(|(name, _)| !names[round..].contains(&&**name));
        let published =
            |generation, len| Published { generation: Generation(generation), len: Seq(len), value: value.clone() };
        expected.extend(names[round..].iter().map(|name| ((*name).into(), published(generation, len))));
        if round == 2 {
            expected.push(("before".into(), published(0, 4)));
        }
        expected.sort_by(|(a, _), (b, _)| a.cmp(b));
        for _ in 0..2 {
            assert!(subject.store().published(&run) == Ok(expected.clone()), "round {round}");
            subject.reopen();
        }
        epoch = claim(&**subject.store(), &run);
    }
    assert_eq!(subject.store().published(&crate::subject::run("q")), Ok(vec![]));
}

pub(crate) fn acts_in_order(subject: &mut Subject) {
    let store = &**subject.store();
    let (there, epoch) = born(store, "r");
    let put_to = |to: &str, id| Act::Put { to: run(to), row: row(id, "") };
    let publish = |text: &'static str| Act::Publish { name: "n".into(), value: Bytes::from_static(text.as_bytes()) };
    let all = vec![
        Act::Take { row: 1 },
        put_to("r", 1),
        put_to("new", 2),
        making("new", "new", 4),
        making("new", "other", 5),
        put_to("new", 3),
        put_to("r", 2),
        Act::Take { row: 1 },
        publish("first"),
        publish("second"),
    ];
    assert_eq!(append(store, Batch { acts: all, ..batch(&there, epoch, 1, 1, 9) }), Ok(Written::Done));
    for _ in 0..2 {
        let store = &**subject.store();
        assert_eq!(rows(store, &there), [(1005, "taken".into()), (2, String::new())]);
        assert_eq!(rows(store, &run("new")), [(2, String::new()), (3, String::new())]);
        assert_eq!(log(store, &run("new"), 0).1, b"new");
        let published = store.published(&there).unwrap();
        assert_eq!((published.len(), &*published[0].1.value, published[0].1.len), (1, &b"second"[..], Seq(2)));
        subject.reopen();
    }
}
