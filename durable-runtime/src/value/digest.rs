//! Equality of recorded values in 128 bits.
//!
//! Every item of a value becomes a *frame*: a tag and 16 bytes that say what it is. A number stands for itself; text, bytes,
//! arrays and maps are hashed. So frames have one length, and what is beside what needs no separators.

use xxhash_rust::xxh3::{Xxh3, xxh3_128, xxh3_128_with_seed};

use super::wire::{MAX_DEPTH, Malformed, Reader, Token};

/// Bytes of a frame.
const FRAME: usize = 17;
/// Items of an array, entries of a map that need no allocation and no streaming.
const FEW: usize = 16;

/// Seeds, so that what is hashed without a tag before it cannot pass for something else.
mod seed {
    pub(super) const VALUE: u64 = b'V' as u64;
    pub(super) const UNREADABLE: u64 = b'X' as u64;
}

#[derive(Clone, Copy)]
struct Frame([u8; FRAME]);

impl Frame {
    fn new(tag: u8, content: u128) -> Frame {
        let mut bytes = [tag; FRAME];
        bytes[1..].copy_from_slice(&content.to_le_bytes());
        Frame(bytes)
    }

    const NIL: Frame = {
        let mut bytes = [0; FRAME];
        bytes[0] = b'n';
        Frame(bytes)
    };

    fn bool(value: bool) -> Frame {
        Frame::new(b'b', value.into())
    }

    fn int(value: i128) -> Frame {
        Frame::new(b'i', value as u128)
    }

    fn float(bits: u64) -> Frame {
        Frame::new(b'f', bits.into())
    }

    fn text(bytes: &[u8]) -> Frame {
        Frame::new(b's', xxh3_128(bytes))
    }

    /// The frame in 16 bytes, for maps, which must sort what they hold.
    fn short(self) -> u128 {
        xxh3_128(&self.0)
    }
}

/// The digest of a recorded MessagePack value: see [`super::Value::digest`].
pub(super) fn of_messagepack(bytes: &[u8]) -> Option<u128> {
    digest(bytes, Floats::ByValue).ok()
}

/// Says whether two records of one type hold the same value. Stricter than equality of digests in that an `f32` is not
/// the `f64` of the same value: an untagged enum may have a variant for each.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a == b || matches!((digest(a, Floats::ByWidth), digest(b, Floats::ByWidth)), (Ok(a), Ok(b)) if a == b)
}

/// The digest of a JSON value, equal to that of the same data in MessagePack.
pub(super) fn of_json(value: &serde_json::Value) -> Option<u128> {
    json_frame(value, 0).ok().map(root)
}

/// The digest of bytes that are no record.
#[cold]
pub(super) fn of_unreadable(bytes: &[u8]) -> u128 {
    xxh3_128_with_seed(bytes, seed::UNREADABLE)
}

fn digest(bytes: &[u8], floats: Floats) -> Result<u128, Malformed> {
    let mut walk = Walk { reader: Reader::new(bytes), floats };
    let token = walk.reader.token()?;
    let frame = walk.frame(token, 0)?;
    walk.reader.finish()?;
    Ok(root(frame))
}

fn root(frame: Frame) -> u128 {
    xxh3_128_with_seed(&frame.0, seed::VALUE)
}

#[derive(Clone, Copy, PartialEq)]
enum Floats {
    ByValue,
    ByWidth,
}

struct Walk<'a> {
    reader: Reader<'a>,
    floats: Floats,
}

impl<'a> Walk<'a> {
    /// The frame of the value that `token` begins. Recursion ends at [`MAX_DEPTH`].
    fn frame(&mut self, token: Token<'a>, depth: usize) -> Result<Frame, Malformed> {
        Ok(match token {
            Token::Nil => Frame::NIL,
            Token::Bool(value) => Frame::bool(value),
            Token::Int(value) => Frame::int(value),
            Token::F32(bits) if self.floats == Floats::ByWidth => Frame::new(b'g', bits.into()),
            Token::F32(bits) => Frame::float(widen(bits)),
            Token::F64(bits) => Frame::float(bits),
            Token::Str(bytes) => Frame::text(bytes),
            Token::Bin(bytes) => Frame::new(b'y', xxh3_128(bytes)),
            Token::Ext(tag, bytes) => Frame::new(b'e', xxh3_128_with_seed(bytes, tag as u64)),
            Token::Array(_) | Token::Map { .. } if depth >= MAX_DEPTH => return Err(Malformed::Deep),
            Token::Array(len) => self.array(len, depth + 1)?,
            Token::Map { len, wide } => self.map(len, wide, depth + 1)?,
        })
    }

    fn array(&mut self, len: u32, depth: usize) -> Result<Frame, Malformed> {
        let mut frames = Frames::new();
        for _ in 0..len {
            let token = self.reader.token()?;
            frames.push(self.frame(token, depth)?);
        }
        Ok(frames.finish())
    }

    fn map(&mut self, len: u32, nil_is_data: bool, depth: usize) -> Result<Frame, Malformed> {
        if len == 1 {
            // As below, without the room for many: most calls have one argument.
            let entry = self.entry(nil_is_data, depth)?;
            return Ok(Frame::new(b'm', entry.map_or_else(|| xxh3_128(&[]), |entry| xxh3_128(&entry))));
        }
        let mut entries = Entries::new();
        for _ in 0..len {
            if let Some(entry) = self.entry(nil_is_data, depth)? {
                entries.push(entry);
            }
        }
        Ok(entries.finish())
    }

    /// An entry of a map; `None` if its field counts as absent.
    fn entry(&mut self, nil_is_data: bool, depth: usize) -> Result<Option<Entry>, Malformed> {
        let token = self.reader.token()?;
        let key = self.frame(token, depth)?.short();
        let token = self.reader.token()?;
        if token == Token::Nil && !nil_is_data {
            return Ok(None);
        }
        Ok(Some(entry(key, self.frame(token, depth)?.short())))
    }
}

/// The bits of the `f64` of the same value. By hand where a conversion would make a signalling NaN a quiet one.
fn widen(bits: u32) -> u64 {
    let value = f32::from_bits(bits);
    if value.is_nan() {
        let sign = u64::from(bits >> 31) << 63;
        sign | (0x7ff << 52) | (u64::from(bits & 0x007f_ffff) << 29)
    } else {
        f64::from(value).to_bits()
    }
}

/// Null entries are left out: JSON does not tell a field that is `None` from data.
fn json_frame(value: &serde_json::Value, depth: usize) -> Result<Frame, Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed::Deep);
    }
    Ok(match value {
        serde_json::Value::Null => Frame::NIL,
        serde_json::Value::Bool(value) => Frame::bool(*value),
        serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(value), _, _) => Frame::int(value.into()),
            (_, Some(value), _) => Frame::int(value.into()),
            (_, _, Some(value)) => Frame::float(value.to_bits()),
            // Only if serde_json keeps numbers as text, and this one is too large for a float.
            _ => Frame::text(number.to_string().as_bytes()),
        },
        serde_json::Value::String(text) => Frame::text(text.as_bytes()),
        serde_json::Value::Array(items) => {
            let mut frames = Frames::new();
            for item in items {
                frames.push(json_frame(item, depth + 1)?);
            }
            frames.finish()
        }
        serde_json::Value::Object(fields) => {
            let mut entries = Entries::new();
            for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                entries.push(entry(Frame::text(key.as_bytes()).short(), json_frame(value, depth + 1)?.short()));
            }
            entries.finish()
        }
    })
}

/// Hashes the frames of an array; streams only if there are many.
struct Frames {
    few: [u8; FEW * FRAME],
    len: usize,
    many: Option<Xxh3>,
}

impl Frames {
    fn new() -> Frames {
        Frames { few: [0; FEW * FRAME], len: 0, many: None }
    }

    fn push(&mut self, frame: Frame) {
        if self.len + FRAME > self.few.len() {
            self.many.get_or_insert_with(Xxh3::new).update(&self.few[..self.len]);
            self.len = 0;
        }
        self.few[self.len..self.len + FRAME].copy_from_slice(&frame.0);
        self.len += FRAME;
    }

    fn finish(&mut self) -> Frame {
        let rest = &self.few[..self.len];
        Frame::new(
            b'a',
            match &mut self.many {
                None => xxh3_128(rest),
                Some(hash) => {
                    hash.update(rest);
                    hash.digest128()
                }
            },
        )
    }
}

/// Sorts the entries of a map by key, then hashes them. Where a record has a key twice, both entries count.
struct Entries {
    few: [Entry; FEW],
    len: usize,
    /// All entries, once there are too many.
    many: Vec<Entry>,
}

/// What stands for the key, then what stands for the value: sorted and hashed as bytes.
type Entry = [u8; 32];

fn entry(key: u128, value: u128) -> Entry {
    let mut entry = [0; 32];
    entry[..16].copy_from_slice(&key.to_le_bytes());
    entry[16..].copy_from_slice(&value.to_le_bytes());
    entry
}

impl Entries {
    fn new() -> Entries {
        Entries { few: [[0; 32]; FEW], len: 0, many: Vec::new() }
    }

    fn push(&mut self, entry: Entry) {
        if let Some(free) = self.few.get_mut(self.len) {
            *free = entry;
            self.len += 1;
        } else {
            if self.many.is_empty() {
                self.many.extend(self.few);
            }
            self.many.push(entry);
        }
    }

    fn finish(&mut self) -> Frame {
        let entries = if self.many.is_empty() { &mut self.few[..self.len] } else { &mut self.many[..] };
        entries.sort_unstable();
        Frame::new(b'm', xxh3_128(entries.as_flattened()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, HashMap};

    use serde::Serialize;
    use serde_json::json;

    use super::super::{ArgsWriter, Value};

    fn digest<T: Serialize>(value: T) -> u128 {
        Value::encode(&value).unwrap().digest()
    }

    /// Digests of one value are equal, those of different values differ.
    fn check(values: &[&[u128]]) {
        for (n, equal) in values.iter().enumerate() {
            assert!(equal.iter().all(|digest| *digest == equal[0]), "{n}: {equal:x?}");
        }
        let different: BTreeSet<_> = values.iter().map(|equal| equal[0]).collect();
        assert_eq!(different.len(), values.len(), "{values:x?}");
    }

    #[derive(Clone, Serialize)]
    struct One {
        a: Option<u8>,
    }

    #[derive(Clone, Serialize)]
    struct Two {
        b: Option<One>,
        a: Option<u64>,
    }

    #[derive(Serialize)]
    struct Flat {
        c: Option<u8>,
        #[serde(flatten)]
        one: One,
    }

    #[derive(Serialize)]
    enum Enum {
        A(Option<u8>),
        B(Option<u8>),
        Unit,
    }

    #[test]
    fn the_order_of_entries_does_not_matter() {
        // Few entries and many: sorted without and with an allocation.
        for len in [2, 15, 16, 17, 18, 100, 1_000] {
            let pairs = || (0..len).map(|n| (format!("key {n}"), n));
            let map: BTreeMap<_, _> = pairs().collect();
            let other = digest(pairs().skip(1).collect::<HashMap<_, _>>());
            let swapped =
                digest(pairs().map(|(key, n)| (key, if n < 2 { 1 - n } else { n })).collect::<HashMap<_, _>>());
            let hashed = || digest(pairs().collect::<HashMap<_, _>>());
            check(&[
                &[digest(&map), hashed(), hashed(), digest(json!(map)), Value::from_json(&json!(map)).digest()],
                &[other],
                &[swapped],
            ]);
        }
    }

    #[test]
    fn fields_that_are_none_are_left_out() {
        let one = One { a: Some(5) };
        check(&[
            &[digest(&one), digest(Two { b: None, a: Some(5) }), digest(Flat { c: None, one: one.clone() })],
            &[
                digest(One { a: None }),
                digest(Two { b: None, a: None }),
                digest(json!({})),
                digest(HashMap::<u8, u8>::new()),
            ],
            &[digest(Two { b: Some(One { a: None }), a: None })],
            &[digest([One { a: None }])],
            &[digest([None::<One>])],
            &[digest(None::<One>), digest(())],
        ]);
    }

    #[test]
    fn nil_that_is_data_counts() {
        let map = |key: &str| digest(BTreeMap::from([(key, None::<u8>)]));
        check(&[
            &[digest(Enum::A(None)), map("A")],
            &[digest(Enum::B(None)), map("B"), digest(json!({ "B": null }))],
            &[digest(Enum::Unit), digest("Unit")],
            &[map("a")],
            &[digest(Ok::<(), Option<u8>>(()))],
            &[digest(Err::<(), Option<u8>>(None))],
            // JSON itself does not tell, and there a field is the likelier.
            &[digest(json!({})), Value::from_json(&json!({ "B": null })).digest()],
        ]);
        let many = |none: i32| digest((0..100).map(|n| (n, (n != none).then_some(n))).collect::<HashMap<_, _>>());
        check(&[&[many(3), many(3)], &[many(4)]]);
        // The same records with heads of every width.
        let wide = |head: &[u8]| Value::from_bytes([&[1], head, &[0xa1, b'B', 0xc0]].concat().into()).digest();
        check(&[&[wide(&[0x81]), digest(json!({}))], &[wide(&[0xde, 0, 1]), wide(&[0xdf, 0, 0, 0, 1]), map("B")]]);
    }

    #[test]
    fn integers_are_equal_by_value_and_floats_by_bits() {
        let nan = f64::NAN.to_bits();
        let snan = |low: u32| digest(f32::from_bits(0x7f80_0000 | low));
        check(&[
            &[digest(5_u8), digest(5_u64), digest(5_i128), digest(5_u128), Value::from_json(&json!(5)).digest()],
            &[digest(-5_i8), digest(-5_i64), digest(-5_i128), Value::from_json(&json!(-5)).digest()],
            &[digest(u64::MAX), digest(u128::from(u64::MAX)), Value::from_json(&json!(u64::MAX)).digest()],
            &[digest(u128::MAX)],
            &[digest(i64::MIN)],
            &[digest(5_f64), digest(5_f32), Value::from_json(&json!(5.0)).digest()],
            &[digest(0_u8)],
            &[digest(0.0)],
            &[digest(-0.0)],
            &[digest(0.1_f32), digest(f64::from(0.1_f32))],
            &[digest(0.1_f64)],
            &[digest(f64::from_bits(nan))],
            &[digest(f64::from_bits(nan | 1))],
            &[snan(1)],
            &[snan(2)],
            &[snan(0), digest(f64::INFINITY)],
            &[digest(true)],
            &[digest(false)],
            &[digest("5")],
        ]);
    }

    #[test]
    fn nothing_runs_into_its_neighbour() {
        let text = |bytes: &[u8]| Value::from_bytes([&[1, 0xc4, bytes.len() as u8], bytes].concat().into()).digest();
        let long = "x".repeat(40);
        check(&[
            &[digest(["ab", "c"]), digest(("ab", "c"))],
            &[digest(["a", "bc"])],
            &[digest(["abc"])],
            &[digest(["abc", ""])],
            &[digest("abc")],
            &[digest([["ab", "c"]])],
            &[digest([vec!["ab"], vec!["c"]])],
            &[digest([vec!["ab", "c"], vec![]])],
            &[digest(BTreeMap::from([("ab", "c")]))],
            &[digest(BTreeMap::from([("a", "bc")]))],
            &[digest([BTreeMap::from([("a", 1), ("b", 2)])])],
            &[digest([BTreeMap::from([("a", 1)]), BTreeMap::from([("b", 2)])])],
            &[digest(BTreeMap::from([(1, "a")]))],
            &[digest(BTreeMap::from([("1", "a")]))],
            &[text(b"abc")],
            // A text in each form of its head.
            &[digest(&long), Value::from_bytes([&[1, 0xda, 0, 40], long.as_bytes()].concat().into()).digest()],
            &[digest('a'), digest("a")],
        ]);
        // Around the lengths where arrays begin to be streamed.
        let arrays: Vec<_> =
            (0..70).map(|len| [digest(vec![0; len]), Value::from_json(&json!(vec![0; len])).digest()]).collect();
        check(&arrays.iter().map(|equal| &equal[..]).collect::<Vec<_>>());
        // An order of items is data.
        check(&[&[digest((0..40).collect::<Vec<_>>())], &[digest((0..40).rev().collect::<Vec<_>>())]]);
    }

    #[test]
    fn many_different_values_have_different_digests() {
        let mut seen = BTreeSet::new();
        for n in 0..20_000_u32 {
            let text = n.to_string();
            let mut writer = ArgsWriter::new(2);
            writer.arg("order", &text).arg("cents", &n);
            for digest in
                [digest(n), digest(&text), digest([n]), digest([n, n]), digest((n, &text)), writer.finish().unwrap().1]
            {
                assert!(seen.insert(digest), "{n}");
            }
        }
    }

    #[test]
    fn a_digest_stays_what_it_was() {
        // Digests are stored: these must never change.
        let two = Two { b: Some(One { a: Some(1) }), a: None };
        let data = (
            two,
            (0..40).collect::<Vec<i64>>(),
            "text",
            [0.5, -0.0],
            (0..20).map(|n| (n, n)).collect::<BTreeMap<_, _>>(),
        );
        assert_eq!(digest(()), 0x37b1720fb4d59c75de508120399188db);
        assert_eq!(digest(data), 0x46d74b69f678cc9d30664219b3f97a78);
    }
}
