//! What comes back, and what is refused.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsString,
    fmt::Debug,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

/// What is to become of a value.
enum Comes {
    /// Equal.
    Back,
    /// Not at all: refused with an error of this kind at this path, whose reason holds this text.
    Refused(ValueErrorKind, &'static str, &'static str),
}
use Comes::*;

fn check<T: Recordable + PartialEq + Debug>(value: T, comes: Comes) {
    match (Value::encode_checked(&value), comes) {
        (Ok(recorded), Back) => {
            assert_eq!(recorded.decode::<T>().unwrap(), value);
            assert_eq!(Value::from_bytes(recorded.as_bytes().clone()), recorded);
            assert_eq!(Value::encode(&value).unwrap().digest(), recorded.digest());
            assert!(recorded.to_json().get("$undecodable").is_none(), "{recorded:?}");
            // The same inside something, and as an argument.
            let mut writer = ArgsWriter::new(2);
            writer.arg("other", &1).arg("value", &value);
            assert_eq!(writer.finish().unwrap().0.decode::<T>("value").unwrap(), value);
            let many = vec![(value, 1)];
            let recorded = Value::encode_checked(&many).unwrap();
            assert_eq!(recorded.decode::<Vec<(T, u8)>>().unwrap(), many);
        }
        (Err(error), Refused(kind, path, reason)) => {
            assert_eq!((error.kind(), error.path()), (kind, path), "{error}");
            assert!(error.reason().contains(reason), "{error}");
        }
        (Ok(recorded), Refused(..)) => panic!("{value:?} is taken as {recorded:?}"),
        (Err(error), Back) => panic!("{value:?} is refused: {error}"),
    }
}

/// Floats, by bits, whichever way they go.
fn check_bits(bits: u64) {
    let value = f64::from_bits(bits);
    let back = Value::encode_checked(&value).unwrap().decode::<f64>().unwrap();
    assert_eq!(back.to_bits(), bits, "{value}");
    let bits = (bits >> 32) as u32;
    let value = f32::from_bits(bits);
    let back = Value::encode_checked(&Some(value)).unwrap().decode::<Option<f32>>().unwrap();
    assert_eq!(back.map(f32::to_bits), Some(bits), "{value}");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    cents: u32,
    note: Option<String>,
}

fn order() -> Order {
    let line = |cents, note: Option<&str>| Line { cents, note: note.map(str::to_owned) };
    Order { id: "o-17".to_owned(), lines: vec![line(250, Some("blue")), line(0, None)] }
}

#[test]
fn floats_come_back_bit_for_bit() {
    let nan = f64::NAN.to_bits();
    for bits in [
        nan,
        nan | 0xdead_beef,
        nan | 1 << 63,
        // Signalling.
        0x7ff0_0000_0000_0001,
        0x7fa0_0001_0000_0000,
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        (-0.0_f64).to_bits(),
        0.1_f64.to_bits(),
        u64::from(0.1_f32.to_bits()) << 32,
        1,
        f64::MIN.to_bits(),
        f64::MAX.to_bits(),
    ] {
        check_bits(bits);
    }
    check(0.1_f32, Back);
    check(((1_u64 << 53) + 1) as f64, Back);
}

#[test]
fn integers_come_back_whatever_their_width() {
    check([u64::MAX, (1 << 53) + 1, 0], Back);
    check([i64::MIN, -1, i64::MAX, (1 << 53) + 1], Back);
    check([i128::MIN, i128::MAX, -1, 5, i64::MIN.into(), u64::MAX.into(), i128::from(u64::MAX) + 1], Back);
    check([u128::MAX, 0, u64::MAX.into(), u128::from(u64::MAX) + 1, 1 << 127], Back);
    for bits in 0..128 {
        check((1_u128 << bits, (1_u128 << bits) - 1, -1_i128 << bits), Back);
    }
    check((i8::MIN, u8::MAX, i16::MIN, u16::MAX, i32::MIN, u32::MAX), Back);
    check(std::num::NonZeroU8::MIN, Back);
}

#[test]
fn text_and_bytes_come_back() {
    check("\0".to_owned(), Back);
    check(String::new(), Back);
    let around_the_surrogates = ('\u{d7f0}'..='\u{e010}').collect::<String>();
    assert!(around_the_surrogates.contains('\u{d7ff}') && around_the_surrogates.contains('\u{e000}'));
    check(around_the_surrogates, Back);
    check(['\0', 'ß', '\u{d7ff}', '\u{e000}', char::MAX], Back);
    check("x".repeat(70_000), Back);
    check(vec![0xff_u8, 0xfe, 0, 0x80], Back);
    check((0..=255).collect::<Vec<u8>>(), Back);
    check(Blob(vec![0xff, 0]), Back);
    check(OsString::from("file"), Back);
    #[cfg(unix)]
    check(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(vec![b'f', 0xff, 0xfe]), Back);
    check(PathBuf::from("/tmp/a b"), Back);
    check::<Box<str>>("boxed".into(), Back);
    check::<Cow<'static, str>>(Cow::Borrowed("cow"), Back);
}

/// Bytes that are written as bytes.
#[derive(Debug, PartialEq)]
struct Blob(Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Blob;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[test]
fn types_of_std_come_back() {
    check((), Back);
    check(Duration::new(u64::MAX, 999_999_999), Back);
    check(SystemTime::UNIX_EPOCH + Duration::new(1_800_000_000, 1), Back);
    check("::1".parse::<IpAddr>().unwrap(), Back);
    check("[2001:db8::1]:443".parse::<SocketAddr>().unwrap(), Back);
    check(Some(Ipv6Addr::LOCALHOST), Back);
    check([[1, 2], [3, 4]], Back);
    check((1, "two".to_owned(), [3.0; 3], ()), Back);
    check(Vec::<Vec<u8>>::new(), Back);
    check(Box::new(vec![Box::new(1)]), Back);
    check(Ok::<Result<u8, String>, u8>(Err("inner".to_owned())), Back);
    check(Err::<Result<u8, String>, Option<u8>>(None), Back);
    check(Ok::<(), String>(()), Back);
    check(HashMap::from([((1_u8, 2_u8), "a".to_owned()), ((0, 0), String::new())]), Back);
    check((0..100).map(|n| (n.to_string(), n)).collect::<HashMap<String, i32>>(), Back);
    check(BTreeMap::from([("some", Some(1)), ("none", None)].map(|(key, value)| (key.to_owned(), value))), Back);
    check((0..40).map(|n| (n, (n % 2 == 0).then_some(n))).collect::<BTreeMap<u8, Option<u8>>>(), Back);
    check((0..70_000).map(|n| (n, (n % 3 == 0).then_some(n))).collect::<BTreeMap<u32, Option<u32>>>(), Back);
    check(BTreeSet::from(['x', 'y']), Back);
    check(vec![Some(1), None, Some(3)], Back);
    check(std::ops::Bound::Included(1), Back);
    check(1_u8..7, Back);
}

#[test]
fn json_comes_back() {
    let data = json!({
        "a": null, "A": [1, -1, 1.0, 0.1, u64::MAX, i64::MIN, 1e308], "a ": {"": {}}, "\u{0}": "\u{0}", "á": 1, "a\u{301}": 2,
    });
    check(data.clone(), Back);
    check(Some(data), Back);
    check(vec![serde_json::Value::Null], Back);
    check(Some(serde_json::Value::Null), Refused(ValueErrorKind::Encode, "", "would come back as `None`"));
    // JSON knows it as text only; as a value it does not even parse.
    assert!(serde_json::from_str::<serde_json::Value>("1e400").is_err());
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Unit;
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Empty {}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(Option<u8>);
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pair(u8, Option<Box<Pair>>);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum External {
    Unit,
    Newtype(Option<IpAddr>),
    Nothing(()),
    Tuple(u8, i128),
    Struct { a: Option<u8>, b: f32 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Internal {
    Unit,
    Newtype(Line),
    Struct { at: IpAddr, inner: External },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
enum Adjacent {
    Unit,
    Newtype(Option<u8>),
    Tuple(f64, IpAddr),
    Struct { a: Internal },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(i64),
    At(IpAddr),
    Text(String),
    Many(Vec<Untagged>),
    Struct { adjacent: Adjacent },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    id: u8,
    at: Option<u8>,
    #[serde(flatten)]
    line: Line,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[test]
fn types_of_users_come_back() {
    check(order(), Back);
    check((Unit, Empty {}, Newtype(None), Newtype(Some(0)), Pair(1, Some(Box::new(Pair(2, None))))), Back);
    check(Some(Unit), Back);
    check(External::Unit, Back);
    check(Some(External::Newtype(None)), Back);
    check(External::Newtype(Some(Ipv6Addr::LOCALHOST.into())), Back);
    check(External::Nothing(()), Back);
    check(External::Tuple(1, i128::MIN), Back);
    check(External::Struct { a: None, b: 0.1 }, Back);
    check(Internal::Unit, Back);
    check(Internal::Newtype(order().lines.remove(0)), Back);
    let inner = |inner| Internal::Struct { at: Ipv6Addr::UNSPECIFIED.into(), inner };
    check(inner(External::Newtype(None)), Back);
    // serde's own buffer knows no 128-bit numbers.
    let unsupported = Refused(ValueErrorKind::Changes, "", "i128 is not supported");
    check(inner(External::Tuple(1, 5)), unsupported);
    check(Adjacent::Unit, Back);
    check(Adjacent::Newtype(None), Back);
    check(Adjacent::Tuple(f64::INFINITY, Ipv6Addr::LOCALHOST.into()), Back);
    check(Adjacent::Struct { a: Internal::Unit }, Back);
    check(Untagged::Number(-5), Back);
    check(Untagged::At(Ipv6Addr::LOCALHOST.into()), Back);
    check(Untagged::Many(vec![Untagged::Text("a".to_owned()), Untagged::Number(1)]), Back);
    check(Untagged::Struct { adjacent: Adjacent::Newtype(Some(1)) }, Back);
    let rest = BTreeMap::from([("more".to_owned(), json!([1, null]))]);
    check(Flat { id: 1, at: None, line: Line { cents: 1, note: None }, rest: rest.clone() }, Back);
    check(Flat { id: 1, at: Some(1), line: Line { cents: 1, note: Some(String::new()) }, rest }, Back);
    check(crate::Failure::new("no").with_kind("kind").with_value(&[1]), Back);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Skips {
    name: String,
    #[serde(skip_serializing_if = "is_zero", default)]
    with_default: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    option: Option<u32>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SkipsWithoutDefault {
    #[serde(skip_serializing_if = "is_zero")]
    cents: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SkipsWithOtherDefault {
    #[serde(skip_serializing_if = "is_zero", default = "five")]
    cents: u32,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn five() -> u32 {
    5
}

#[test]
fn a_field_that_is_skipped_comes_back_or_is_named() {
    check(Skips { name: String::new(), with_default: 0, option: None }, Back);
    check(Skips { name: String::new(), with_default: 1, option: Some(0) }, Back);
    check(SkipsWithoutDefault { cents: 1 }, Back);
    let missing = Refused(ValueErrorKind::Changes, "cents", "missing field `cents`");
    check(SkipsWithoutDefault { cents: 0 }, missing);
    let missing = Refused(ValueErrorKind::Changes, "[1].cents", "missing field `cents`");
    check(vec![SkipsWithoutDefault { cents: 1 }, SkipsWithoutDefault { cents: 0 }], missing);
    let other = Refused(ValueErrorKind::Changes, "a.cents", "nothing comes back as 5");
    check(BTreeMap::from([("a".to_owned(), SkipsWithOtherDefault { cents: 0 })]), other);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nested {
    outer: Vec<Inner>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    maybe: Option<Option<u8>>,
    unit: Option<()>,
    newtype: Option<Newtype>,
}

#[test]
fn some_of_nothing_is_refused_by_the_field() {
    let nested = |maybe, unit, newtype| {
        let first = Inner { maybe: None, unit: None, newtype: None };
        Nested { outer: vec![first, Inner { maybe, unit, newtype }] }
    };
    let refused = |path| Refused(ValueErrorKind::Encode, path, "would come back as `None`");
    check(nested(None, None, None), Back);
    check(nested(Some(Some(1)), None, Some(Newtype(Some(1)))), Back);
    check(nested(Some(None), None, None), refused("outer[1].maybe"));
    check(nested(None, Some(()), None), refused("outer[1].unit"));
    check(nested(None, None, Some(Newtype(None))), refused("outer[1].newtype"));
    check(HashMap::from([("key".to_owned(), Some(None::<u8>))]), refused("key"));
    check(Some(None::<u8>), refused(""));
    // Inside a variant's data, a `Some` and a newtype as well: nearly every effect returns a `Result`.
    let lost = || nested(Some(None), None, None);
    check(Ok::<_, String>(lost()), refused("Ok.outer[1].maybe"));
    check(Err::<u8, _>(Some(vec![lost()])), refused("Err[0].outer[1].maybe"));
    check((1, Some(Some(Ok::<_, ()>([Some(lost())])))), refused("[1].Ok[0].outer[1].maybe"));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Width {
    Narrow(f32),
    Wide(f64),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Wide {
    Number(u128),
    Other(bool),
}

/// Encodes, but says another length than it writes.
struct Liar;

impl Serialize for Liar {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut seq = serializer.serialize_seq(Some(1_000))?;
        seq.serialize_element(&1)?;
        seq.serialize_element(&2)?;
        seq.end()
    }
}

/// A type that does not encode.
#[derive(Debug, PartialEq, Deserialize)]
struct Never;

impl Serialize for Never {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("lock is poisoned"))
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nest(Vec<Nest>);

#[test]
fn what_would_change_or_cannot_be_written_is_refused() {
    check(Width::Narrow(0.5), Back);
    check(Width::Wide(0.1), Refused(ValueErrorKind::Changes, "", "comes back as"));
    check(Wide::Number(5), Refused(ValueErrorKind::Changes, "", "did not match any variant"));
    check(Wide::Other(true), Back);
    check((1, [Never]), Refused(ValueErrorKind::Encode, "[1][0]", "lock is poisoned"));
    assert_eq!(Value::encode(&Liar).unwrap().decode::<Vec<u8>>().unwrap(), [1, 2]);
    let nest = |levels| (1..levels).fold(Nest(Vec::new()), |inner, _| Nest(vec![inner]));
    check(nest(126), Back);
    assert!(Value::encode_checked(&nest(128)).is_ok());
    assert_eq!(Value::encode(&nest(129)).unwrap_err().reason(), "arrays and maps are nested more than 128 deep");
    let mut writer = ArgsWriter::new(2);
    writer.arg("order", &[(1, Never)]).arg("other", &Never);
    assert_eq!(writer.finish().unwrap_err().path(), "order[0][1]");
}
