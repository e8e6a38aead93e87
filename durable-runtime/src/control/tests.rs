//! A run that is right, and every way in which it can be wrong.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{
    check::{Sort, examine},
    export::{self, ExportError, Reader},
};
use crate::{
    entry::{Call, End, Entry, Kind, Outcome, Parent, Path, RecordedContract, RunStarted},
    head::{HeadInfo, HowEnded, Started},
    id::{Attempt, Generation, RunId, Seq, StepNo, StoreId},
    mailbox::{Mail, Message},
    store::{Dump, Published, Record, RunRecord, Wait},
};

fn frames(kinds: impl IntoIterator<Item = Kind<'static>>) -> (u32, Bytes) {
    let (mut count, mut frames) = (0, BytesMut::new());
    for kind in kinds {
        Entry { at: 7, kind }.write(&mut frames).unwrap();
        count += 1;
    }
    (count, frames.freeze())
}

const SEED: u128 = 3;

fn started() -> Kind<'static> {
    Kind::RunStarted(RunStarted {
        workflow: "w".into(),
        module: "m".into(),
        explicit_name: false,
        args: b"\x00\x90"[..].into(),
        digest: 1,
        build: "0".into(),
        seed: SEED,
        born: 5,
        parent: Some(parent()),
        undos: Vec::new(),
    })
}

fn parent() -> Parent<'static> {
    Parent { run: "parent".into(), generation: Generation(0), step: StepNo(2), seed: 4 }
}

fn called() -> Kind<'static> {
    Kind::EffectCalled(Call {
        path: Path { scope: "".into(), name: "pay".into(), n: 0 },
        effect: None,
        contract: RecordedContract::AtMostOnce,
        args: b"\x00\x90"[..].into(),
        digest: 1,
        key: None,
        site: 0,
    })
}

fn result() -> Kind<'static> {
    let outcome = Outcome::Ok(b"\x00\xc0"[..].into());
    Kind::EffectResult { step: StepNo(0), attempt: Attempt(1), outcome, unsure: false }
}

fn restarted() -> End<'static> {
    let (workflow, module, args) = ("w".into(), "m".into(), b"\x00\x90"[..].into());
    End::Restarted { workflow, module, explicit_name: false, args, digest: 1 }
}

fn records(parts: Vec<Vec<Kind<'static>>>) -> Vec<Record> {
    let mut next = Seq(0);
    let mut records = Vec::new();
    for part in parts {
        let (count, frames) = frames(part);
        records.push(Record { first: next, count, frames });
        next = next.plus(count.into());
    }
    records
}

/// Two logs; the second one ended, a message unread.
fn whole() -> Dump {
    let completed = Kind::RunEnded(End::Completed { value: b"\x00\xc0"[..].into() });
    let logs = vec![
        (Generation(0), records(vec![vec![started()], vec![called(), result()], vec![Kind::RunEnded(restarted())]])),
        (Generation(1), records(vec![vec![started(), called()], vec![result(), completed]])),
    ];
    let known = Started { workflow: "w".into(), module: "m".into(), at: 5, parent: Some("parent".into()) };
    let head = HeadInfo::new(&known, Some((7, HowEnded::Completed))).head(Generation(1));
    let mail = Mail { id: 9, name: "steer".into(), value: Bytes::from_static(b"\x00\x01"), sent_at: 6 };
    let published = Published { generation: Generation(1), len: Seq(4), value: Bytes::from_static(b"\x00\x02") };
    Dump {
        record: RunRecord { head, aside: None, wait: None, version: 3 },
        owner: parent().id(),
        logs,
        rows: vec![(3, Message::Signal(mail).row())],
        taken: vec![1, 2],
        published: vec![(Arc::from("progress"), published)],
    }
}

#[test]
fn a_run_that_is_right_has_no_problem() {
    assert_eq!(examine(&whole()), []);
    // One that goes on, and waits.
    let mut waiting = whole();
    waiting.logs[1].1.pop();
    let known = Started { workflow: "w".into(), module: "m".into(), at: 5, parent: Some("parent".into()) };
    waiting.record.head = HeadInfo::new(&known, None).head(Generation(1));
    waiting.record.wait = Some(Wait { due: Some(8), seen: 3, code: 4 });
    waiting.published.clear();
    assert_eq!(examine(&waiting), []);
}

/// What is found once something was changed: the first word, and a part of the text.
#[track_caller]
fn check(change: impl FnOnce(&mut Dump), sort: Sort, part: &str) {
    let mut dump = whole();
    change(&mut dump);
    let problems = examine(&dump);
    let found = problems.iter().any(|problem| problem.sort == sort && problem.what.contains(part));
    assert!(found, "{sort:?}, {part:?} is not in {problems:?}");
}

fn cut(record: &mut Record, by: usize) {
    record.frames = record.frames.slice(..record.frames.len() - by);
}

#[test]
fn each_damage_is_found() {
    check(|dump| cut(&mut dump.logs[0].1[1], 1), Sort::Damaged, "cut off");
    let flip = |dump: &mut Dump| {
        let record = &mut dump.logs[1].1[1];
        let mut bytes = record.frames.to_vec();
        bytes[20] ^= 4;
        record.frames = bytes.into();
    };
    check(flip, Sort::Damaged, "checksum");
    check(|dump| drop(dump.logs[0].1.remove(1)), Sort::Damaged, "seq 1 is missing");
    check(|dump| dump.logs[0].1[1].count = 1, Sort::Damaged, "holds 2 entries, not 1");
    check(|dump| drop(dump.logs.remove(0)), Sort::Damaged, "log 0 is missing");
    check(|dump| dump.logs.clear(), Sort::Damaged, "no log");
    check(|dump| dump.logs[1].1.clear(), Sort::Damaged, "empty");
    let later = |dump: &mut Dump| {
        let record = &mut dump.logs[0].1[0];
        let mut bytes = record.frames.to_vec();
        bytes[12] = 77;
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[12..]).to_le_bytes();
        bytes[4..12].copy_from_slice(&sum);
        record.frames = bytes.into();
    };
    check(later, Sort::Later, "version 77");
}

#[test]
fn each_history_that_no_run_has_is_found() {
    check(|dump| dump.logs[1].1 = records(vec![vec![started(), result()]]), Sort::Illegal, "cannot stand here");
    check(|dump| dump.logs[1].1 = records(vec![vec![called()]]), Sort::Illegal, "run.started");
    check(|dump| drop(dump.logs[0].1.pop()), Sort::Illegal, "does not end with run.restarted");
}

#[test]
fn each_index_that_says_something_else_is_found() {
    check(|dump| dump.record.head.live = true, Sort::Index, "lists the run as going on");
    check(|dump| dump.record.head.generation = Generation(0), Sort::Index, "names log 0 as the newest");
    check(|dump| dump.record.head.bytes = Bytes::from_static(b"\xc1"), Sort::Index, "does not decode");
    let other = |dump: &mut Dump| {
        let known = Started { workflow: "x".into(), module: "m".into(), at: 5, parent: Some("parent".into()) };
        dump.record.head = HeadInfo::new(&known, Some((7, HowEnded::Completed))).head(Generation(1));
    };
    check(other, Sort::Index, "something else");
    check(|dump| dump.owner = 1, Sort::Index, "child of another run");
    check(|dump| dump.record.wait = Some(Wait { due: None, seen: 3, code: 4 }), Sort::Index, "waiting for something");
    check(|dump| dump.published[0].1.len = Seq(5), Sort::Index, "stands in no entry");
    check(|dump| drop(dump.logs.pop()), Sort::Index, "the next one is missing");
}

#[test]
fn each_contradiction_of_a_mailbox_is_found() {
    check(|dump| dump.record.version = 2, Sort::Mailbox, "2 rows were ever put");
    check(|dump| dump.rows.push(dump.rows[0].clone()), Sort::Mailbox, "stands after row 3");
    check(|dump| dump.rows[0].1.kind = 250, Sort::Mailbox, "none that this version knows");
    check(|dump| dump.taken.push(9), Sort::Mailbox, "was taken, and is there");
}

fn exported(dump: &Dump) -> Vec<String> {
    let mut lines = Vec::new();
    let run = RunId::new("odd \u{202E}\n id").unwrap();
    export::write(&run, StoreId(0xAB), dump, None, &mut |line| lines.push(line)).unwrap();
    lines
}

fn read(lines: &[String]) -> Result<Dump, ExportError> {
    let mut reader = Reader::new();
    lines.iter().try_for_each(|line| reader.take(line))?;
    reader.finish().map(|exported| {
        assert_eq!((exported.run.as_str(), exported.store), ("odd \u{202E}\n id", StoreId(0xAB)));
        exported.dump
    })
}

#[test]
fn an_export_reads_back_equal() {
    let mut dump = whole();
    assert_eq!(read(&exported(&dump)).as_ref(), Ok(&dump));
    dump.taken = (0..2_500).collect();
    dump.record.aside = Some(Bytes::from_static(b"aside"));
    dump.record.wait = Some(Wait { due: None, seen: u64::MAX, code: u64::MAX });
    dump.rows.clear();
    dump.published.clear();
    let lines = exported(&dump);
    assert_eq!(read(&lines).as_ref(), Ok(&dump));
    assert!(lines.iter().all(|line| !line.contains('\n')));
}

#[test]
fn every_line_of_an_export_counts() {
    let lines = exported(&whole());
    for n in 0..lines.len() {
        let mut fewer = lines.clone();
        fewer.remove(n);
        assert!(read(&fewer).is_err(), "without line {n}");
        let mut twice = lines.clone();
        twice.insert(n, lines[n].clone());
        assert!(read(&twice).is_err(), "line {n} twice");
        if n + 1 < lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(n, n + 1);
            assert!(read(&swapped).is_err(), "line {n} after the next");
        }
        // Some byte of each line, wherever it is.
        for at in (0..lines[n].len()).step_by(7) {
            let mut bytes = lines[n].clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let Ok(line) = String::from_utf8(bytes) else { continue };
            if line == lines[n] {
                continue;
            }
            let mut changed = lines.clone();
            changed[n] = line;
            assert!(read(&changed).is_err(), "line {n}, byte {at}");
        }
    }
    assert_eq!(read(&[]), Err(ExportError::NoExport("it is empty".into())));
}

#[test]
fn an_export_that_announces_much_costs_little() {
    // A hostile first line must not make the reader reserve what it says.
    let line = exported(&whole())[0].replace("[[1,2,1],[2,2]]", "[[4294967295,4294967295]]");
    assert!(line.contains("4294967295"));
    let mut reader = Reader::new();
    reader.take(&line).unwrap();
    assert_eq!(reader.finish().unwrap_err(), ExportError::CutOff);
}
