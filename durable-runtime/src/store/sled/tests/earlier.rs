//! Stores keep what they hold when the library goes on: what an earlier layout has written is read as it was meant.

use super::*;
use crate::store::{Addressee, Row, sled::group::Group};

/// Puts values into a store as they are, and opens it.
fn store_of(dir: &TempDir, values: Vec<(Vec<u8>, Vec<u8>)>) -> SledStore {
    let mut opened = open::open(&dir.0, &SledOptions::new(), plenty()).unwrap();
    let writer = &mut opened.writer;
    let mut group = Group::new(&writer.medium, writer.meta, &mut writer.claims, None);
    group.reserve_number();
    group.reserve_number();
    values.into_iter().for_each(|(key, value)| group.bring(key, value));
    let (batch, meta) = group.into_batch().unwrap().unwrap();
    writer.medium.apply(batch).unwrap();
    writer.meta = meta;
    // Nothing is to be removed: these numbers are of runs that are made by hand.
    let mut batch = sled::Batch::default();
    for number in [0, 1] {
        let key = keys::removal(number);
        let stored = writer.medium.stored(&key).unwrap().unwrap();
        writer.meta.digest = writer.meta.digest.wrapping_sub(keys::digest(&key, &stored));
        batch.remove(key);
    }
    writer.medium.apply(batch).unwrap();
    SledStore::start(&dir.0, opened).unwrap()
}

/// The version of a mailbox once stood in the run's state, and entries had no wait.
#[test]
fn a_version_beside_the_length_of_the_log_is_found() {
    let row = |id| Row { id, kind: 3, bytes: Bytes::from_static(b"row") };
    let mut values = Vec::new();
    let number = |number: u64| number.to_be_bytes();
    let state = |length: u64, rows: u64| [&[0; 4][..], &number(length), &number(rows)].concat();
    // A run with an entry, two rows and an aside; and a mailbox without a run.
    values.push((keys::Class::Live.key(&run()), [&number(0)[..], &[0; 4], &number(6), b"aside", b"head"].concat()));
    values.push((keys::record(0, Generation(0), Seq(0)), keys::encode_record(1, b"first")));
    values.push((keys::state(0), state(1, 2)));
    let early = RunId::new("early").unwrap();
    values.push((keys::Class::Unborn.key(&early), number(1).to_vec()));
    values.push((keys::state(1), state(0, 1)));
    for (run, place, id) in [(0, 0, 50), (0, 1, 40), (1, 0, 60)] {
        values.push((keys::row_id(run, id), number(place).to_vec()));
        values.push((keys::row(run, place), keys::encode_row(&row(id))));
    }
    let dir = TempDir::new();
    SledStore::open(&dir.0, SledOptions::new()).unwrap().close().unwrap();
    let path = dir.0.join("STORE");
    let text = fs::read_to_string(&path).unwrap();
    let (body, _) = text.split_once("checksum").unwrap();
    let body = body.replace("format 2", "format 1");
    fs::write(&path, format!("{body}checksum {:016x}\n", xxhash_rust::xxh3::xxh3_64(body.as_bytes()))).unwrap();
    let store = store_of(&dir, values);
    // What is written from now on is not for an earlier version.
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let record = |store: &SledStore, id: &RunId| store.run(id).unwrap().unwrap();
    let head = Head { generation: Generation(0), live: true, bytes: Bytes::from_static(b"head") };
    let (aside, wait) = (Some(Bytes::from_static(b"aside")), None);
    assert_eq!(record(&store, &run()), RunRecord { head, aside, wait, version: 2 });
    assert_eq!(store.runs(None, None, 9).unwrap(), [(run(), record(&store, &run()))]);
    assert_eq!(store.rows(&run(), 0, 9).unwrap(), [(1, row(50)), (2, row(40))]);
    assert_eq!(store.dump(&run()).unwrap().unwrap().record.version, 2);
    // It stays known while only the log grows, and goes on from there.
    let epoch = claim(&store);
    assert_eq!(now(&store, append(epoch, 1, 10)), Ok(Written::Done));
    assert_eq!(record(&store, &run()).version, 2);
    let put = |run: &RunId, id| Write::Put { run: run.clone(), row: row(id), to: Addressee::Anyone };
    assert_eq!(now(&store, put(&run(), 40)), Ok(Written::Exists));
    assert_eq!(now(&store, put(&run(), 30)), Ok(Written::Done));
    assert_eq!(now(&store, append(epoch, 2, 10)), Ok(Written::Done));
    assert_eq!(now(&store, create("early")), Ok(Written::Created));
    assert_eq!(now(&store, put(&early, 61)), Ok(Written::Done));
    store.close().unwrap();
    let store = SledStore::open(&dir.0, SledOptions::new()).unwrap();
    assert_eq!((record(&store, &run()).version, record(&store, &early).version), (3, 2));
    assert_eq!(store.rows(&run(), 2, 9).unwrap(), [(3, row(30))]);
    assert_eq!(store.rows(&early, 0, 9).unwrap(), [(1, row(60)), (2, row(61))]);
    assert_eq!(length(&store), 3);
}
