//! Bytes that nobody wrote on purpose: no panic, no long allocation, no deep recursion, whatever they are.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

/// xorshift64*: the same numbers for the same seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// A type with about everything that a decoder can be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf,
    Not(Box<Tree>),
    Both(Box<Tree>, Box<Tree>),
    Many { trees: Vec<Tree>, named: HashMap<String, Tree>, note: Option<String> },
    Scalars(i8, u64, i128, f32, f64, char, (), bool),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Loose {
    Text(String),
    Bytes(Vec<u8>),
    Units(Vec<()>),
    Map(HashMap<u64, Box<Loose>>),
    Any(serde_json::Value),
}

/// Ways to read a record as a type; each input of the long test takes one.
const READERS: usize = 8;

/// Everything that takes bytes, with one record.
fn check(bytes: Vec<u8>) {
    (0..READERS).for_each(|reader| check_one(&bytes, reader));
}

fn check_one(bytes: &[u8], reader: usize) {
    let value = Value::from_bytes(Bytes::copy_from_slice(bytes));
    assert_eq!(value.digest(), value.digest());
    let json = value.to_json();
    let args = Args::from_value(value.clone());
    let error = match reader {
        // What decodes can be encoded, or is refused: JSON holds some things that a record may not.
        0 => value.decode::<Tree>().map(|tree| drop(Value::encode_checked(&tree))).err(),
        1 => value.decode::<Loose>().err(),
        2 => value.decode::<serde_json::Value>().err(),
        3 => value.decode::<HashMap<(u8, u8), Vec<Option<u128>>>>().err(),
        4 => value.decode::<crate::Failure>().err(),
        5 => args.decode::<Tree>("tree").err(),
        6 => args.decode::<Option<Loose>>("loose").err(),
        _ => {
            assert!(!json.to_string().is_empty());
            args.decode::<u8>("gone").err()
        }
    };
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
}

fn samples() -> Vec<Vec<u8>> {
    let leaf = || Box::new(Tree::Leaf);
    let scalars = Tree::Scalars(-1, u64::MAX, i128::MIN, 0.1, f64::NAN, 'ß', (), true);
    let named = HashMap::from([("a".to_owned(), scalars.clone()), ("".to_owned(), Tree::Not(leaf()))]);
    let trees = vec![Tree::Both(leaf(), Box::new(scalars)), Tree::Leaf];
    let many = Tree::Many { trees, named, note: Some("n".repeat(300)) };
    let deep = (0..100).fold(Tree::Leaf, |tree, _| Tree::Not(Box::new(tree)));
    let mut writer = ArgsWriter::new(2);
    writer.arg("tree", &many).arg("loose", &Loose::Map(HashMap::from([(1, Box::new(Loose::Bytes(vec![1, 200])))])));
    let args = writer.finish().unwrap().0;
    let values = [
        Value::encode(&many).unwrap(),
        Value::encode(&deep).unwrap(),
        args.value().clone(),
        Value::from_json(&args.to_json()),
        Value::from_json(&json!({ "tree": "Leaf", "loose": [1, null, 1e300, "\u{d7ff}"] })),
        Value::encode(&crate::Failure::new("no").with_value(&[1])).unwrap(),
        Value::encode(&vec![None, Some(1_u128 << 100)]).unwrap(),
    ];
    values.iter().map(|value| value.as_bytes().to_vec()).collect()
}

/// A head that promises much.
fn huge(random: &mut Random) -> Vec<u8> {
    let head = [0xc6, 0xc9, 0xdb, 0xdd, 0xdf, 0xdc, 0xde, 0xda, 0xc5][random.below(9)];
    let mut bytes = vec![head];
    bytes.extend((0..4).map(|_| if random.below(3) == 0 { random.next() as u8 } else { 0xff }));
    bytes
}

fn random_bytes(random: &mut Random, samples: &[Vec<u8>]) -> Vec<u8> {
    let kind = random.below(8);
    let mut bytes = samples[random.below(samples.len())].clone();
    match kind {
        // Noise, with a codec that is known more often than not.
        0 => bytes = (0..random.below(64)).map(|_| random.next() as u8).collect(),
        1 => {
            bytes = [1 + random.below(2) as u8]
                .into_iter()
                .chain((0..random.below(64)).map(|_| random.next() as u8))
                .collect()
        }
        // A record with some bytes changed, cut off, swapped for another's or with a head that promises much.
        2 | 3 => {
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
        }
        4 => bytes.truncate(random.below(bytes.len())),
        5 => {
            let at = random.below(bytes.len());
            bytes.splice(at..at + random.below(4).min(bytes.len() - at), huge(random));
        }
        6 => {
            let other = &samples[random.below(samples.len())];
            let from = random.below(other.len());
            let at = random.below(bytes.len());
            bytes.splice(at.., other[from..].iter().copied());
        }
        // Something repeated: deep nesting, or many items.
        _ => {
            let unit: Vec<u8> = match random.below(6) {
                0 => vec![0x91],
                1 => vec![0x81, 0xa3, b'N', b'o', b't'],
                2 => vec![0x82],
                3 => vec![0x81, 0xc0],
                4 => vec![b'['],
                _ => vec![random.next() as u8, random.next() as u8],
            };
            let at = random.below(bytes.len());
            bytes.splice(at..at, unit.repeat(1 + random.below(400)));
        }
    }
    bytes
}

#[test]
fn no_bytes_do_harm() {
    let samples = samples();
    samples.iter().cloned().for_each(check);
    let seed = 0x5eed_2024_0001;
    let mut random = Random(seed);
    for n in 0..200_000 {
        let bytes = random_bytes(&mut random, &samples);
        let outcome = std::panic::catch_unwind(|| check_one(&bytes, n % READERS));
        assert!(outcome.is_ok(), "seed {seed:#x}, input {n}: {bytes:02x?}");
    }
}

#[test]
fn neither_depth_nor_length_does_harm() {
    for unit in [
        &[0x91][..],
        &[0x81, 0xa3, b'N', b'o', b't'],
        &[0x81, 0xc0],
        &[0x81],
        &[0xdd, 0, 0, 0, 1],
        &[0xde, 0, 1, 0xa1, b'a'],
    ] {
        let mut bytes = vec![CODEC_MESSAGEPACK];
        bytes.extend(unit.repeat(1_000_000));
        bytes.push(0xc0);
        let value = Value::from_bytes(Bytes::from(bytes.clone()));
        assert_eq!(value.decode::<Tree>().unwrap_err().kind(), ValueErrorKind::Malformed);
        check(bytes);
    }
    check([&[CODEC_JSON][..], &b"[".repeat(1_000_000)].concat());
    check([&[CODEC_JSON][..], &b"{\"tree\":".repeat(1_000_000)].concat());
    // Just as deep as allowed, and as it would stand in an argument.
    for depth in [126, 127, 128, 129] {
        let bytes = [&[CODEC_MESSAGEPACK][..], &[0x91].repeat(depth), &[0xc0]].concat();
        let value = Value::from_bytes(Bytes::from(bytes));
        assert_eq!(value.decode::<serde_json::Value>().is_ok(), depth <= 128);
        assert_eq!(value.to_json().get("$undecodable").is_some(), depth > 128);
        assert_eq!(value.digest() == digest::of_unreadable(value.as_bytes()), depth > 128);
    }
}

#[test]
fn a_length_that_promises_much_allocates_nothing() {
    // 2^32 - 1 of everything, followed by nothing: would be gigabytes if it were believed.
    for head in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        let value = Value::from_bytes(Bytes::from(vec![CODEC_MESSAGEPACK, head, 0xff, 0xff, 0xff, 0xff, 0xc0]));
        let error = value.decode::<Vec<[u64; 32]>>().unwrap_err();
        assert_eq!(error.reason(), "the bytes end before the value does");
        assert_eq!(value.to_json(), json!({ "$undecodable": format!("01{head:02x}ffffffffc0") }));
    }
    let long = Value::from_bytes(Bytes::from(vec![7; 5_000]));
    assert_eq!(long.to_json().to_string().len(), "{\"$undecodable\":\"..\"}".len() + 2_048);
    assert!(long.decode::<u8>().unwrap_err().reason().contains("codec 7 is unknown"));
    let trailing = Value::from_bytes(Bytes::from(vec![CODEC_MESSAGEPACK, 1, 2]));
    assert_eq!(trailing.decode::<u8>().unwrap_err().reason(), "bytes are left after the value");
    let trailing = Value::from_bytes(Bytes::from(b"\x021 2".to_vec()));
    assert_eq!(trailing.decode::<u8>().unwrap_err().kind(), ValueErrorKind::Malformed);
}
