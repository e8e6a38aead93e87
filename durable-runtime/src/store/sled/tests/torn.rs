//! A group of which the disk has a part only, cut at every place.

use std::{os::unix::fs::FileExt, path::Path};

use super::{
    compacting::{copy, dumps},
    *,
};
use crate::store::{Act, Addressee, Dump};

/// In how many places a group is cut.
const CUTS: usize = 64;

fn row(id: u128, bytes: usize) -> Row {
    Row { id, kind: 1, bytes: Bytes::from(vec![6; bytes]) }
}

/// A write that changes, makes and removes what stands under keys of every kind, and makes so many runs.
fn everything(epoch: Epoch, children: u32) -> Write {
    let other = |name: &str| RunId::new(name).unwrap();
    let head = |text: &'static str| Head { generation: Generation(0), live: true, bytes: Bytes::from(text) };
    let child = |nth: u32| Act::Create {
        run: other(&nth.to_string()),
        count: 1,
        frames: Bytes::from_static(b"born"),
        head: head("child"),
        owner: 5,
        taken: row(u128::from(nth) + 9, 4),
    };
    let published = |name: &str| Act::Publish { name: name.into(), value: Bytes::from_static(b"new") };
    Write::Append(Batch {
        run: run(),
        epoch,
        generation: Generation(0),
        at: Seq(2),
        count: 2,
        frames: Bytes::from_static(b"two more"),
        acts: [
            Act::Take { row: 1 },
            Act::Put { to: other("neighbour"), row: row(3, 50) },
            published("old"),
            published("other"),
        ]
        .into_iter()
        .chain((0..children).map(child))
        .collect(),
        head: Some(Head { live: false, ..head("ended") }),
    })
}

/// What a store holds, which must open.
fn held(store: &Path) -> Vec<(RunId, Dump)> {
    let opened = SledStore::open(store, SledOptions::new()).unwrap();
    let held = dumps(&opened);
    opened.close().unwrap();
    held
}

/// Whether sled itself, asked without rolling back, has a part of the group only.
fn is_torn(store: &Path) -> bool {
    let sled = store.join("sled");
    let medium = Medium::open(store, &sled, 512 * 1024, 1024 * 1024).unwrap();
    let meta = read::meta(&medium).unwrap().unwrap();
    let torn = read::digest(&medium).unwrap() != meta.digest;
    medium.close(&sled).unwrap();
    torn
}

/// Makes such a write, cuts what it brought to the disk in many places, and sees to it that each image opens with all of
/// it or nothing. `row_bytes`: of a row that it removes. Returns how often sled alone had a part.
fn cut_everywhere(row_bytes: usize, children: u32) -> usize {
    let dir = TempDir::new();
    let [live, before, after, image] = ["live", "before", "after", "image"].map(|name| dir.0.join(name));
    let store = SledStore::open(&live, SledOptions::new()).unwrap();
    for id in ["r", "neighbour"] {
        assert!(matches!(now(&store, create(id)), Ok(Written::Made { .. })));
    }
    let epoch = claim(&store);
    assert_eq!(
        now(&store, Write::Put { run: run(), row: row(1, row_bytes), to: Addressee::Anyone }),
        Ok(Written::Done)
    );
    let mut old = append(epoch, 1, 30);
    if let Write::Append(batch) = &mut old {
        batch.acts.push(Act::Publish { name: "old".into(), value: Bytes::from_static(b"old") });
    }
    assert_eq!(now(&store, old), Ok(Written::Done));
    copy(&live, &before);
    assert_eq!(now(&store, everything(epoch, children)), Ok(Written::Done));
    copy(&live, &after);
    store.close().unwrap();

    let db = |store: &Path| store.join("sled").join("db");
    let mut base = fs::read(db(&before)).unwrap();
    let whole = fs::read(db(&after)).unwrap();
    base.resize(whole.len(), 0);
    let differs: Vec<_> = (0..whole.len()).filter(|at| base[*at] != whole[*at]).collect();
    let (first, end) = (differs[0], differs[differs.len() - 1] + 1);
    let [mut torn, mut seen] = [0; 2];
    let [without, with] = {
        let [a, b] = [&before, &after].map(|dir| dir.with_extension("opened"));
        copy(&before, &a);
        copy(&after, &b);
        [held(&a), held(&b)]
    };
    assert_ne!(without, with);
    for cut in 0..=CUTS {
        let written = (end - first) * cut / CUTS;
        let bytes = &whole[first..first + written];
        copy(&before, &image);
        let file = fs::OpenOptions::new().write(true).open(db(&image)).unwrap();
        file.write_all_at(bytes, first as u64).unwrap();
        drop(file);
        // sled mends its files when it opens them, so it is asked about a copy.
        let asked = image.with_extension("asked");
        copy(&image, &asked);
        torn += usize::from(is_torn(&asked));
        let found = held(&image);
        let is_whole = found == with;
        assert!(is_whole || found == without, "{written} bytes of {}: a part of the group is there", end - first);
        assert!(is_whole || seen == 0, "{written} bytes: the group was whole before");
        seen += usize::from(is_whole);
        for gone in [asked, image.clone()] {
            fs::remove_dir_all(gone).unwrap();
        }
    }
    assert!((1..CUTS).contains(&seen), "{seen} images had the group");
    torn
}

#[test]
fn a_group_that_was_cut_short_is_taken_back() {
    assert!(cut_everywhere(60, 1) > 10, "what is taken back must be there first");
}

#[test]
fn a_group_that_replaces_large_values_is_not_cut() {
    assert_eq!(cut_everywhere(40_000, 1), 0, "it is one of sled's batches");
}

#[test]
fn a_group_that_makes_hundreds_of_runs_is_not_cut() {
    assert_eq!(cut_everywhere(60, 350), 0, "what it changes is short, and much");
}
