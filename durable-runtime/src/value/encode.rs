//! Rust values to MessagePack with field names.
//!
//! Scalars are written by rmp-serde. Arrays, maps and options are written here, because three things are ours:
//!
//! - `Some(x)` where `x` is recorded as nil would come back as `None`: refused.
//! - An entry with a nil value is an absent field in a struct (`None`), but data in a map, and in an enum's variant
//!   (`{"A": nil}`). The digest leaves out the former and must keep the latter, so a map whose nil entries are data has
//!   its length written one size wider than needed. Decoders do not mind.
//! - 128-bit integers that fit 64 bits are written as such, so that widening a field changes no record.

mod items;

use std::fmt;

use serde::{
    Serialize,
    ser::{self, Serializer},
};

use self::items::Items;
use super::{
    error::{ValueError, ValueErrorKind, join_path, path_text},
    wire::{MAX_DEPTH, Malformed, NIL},
};

/// Where the bytes go.
pub(super) type Sink = rmp_serde::Serializer<Vec<u8>>;

/// Writes `value` behind what is in the sink.
///
/// # Errors
///
/// [`ValueErrorKind::Encode`] with the path of the field. The sink then holds part of the value.
pub(super) fn encode<T: Serialize + ?Sized>(sink: &mut Sink, value: &T) -> Result<(), ValueError> {
    match value.serialize(Encoder::new(sink)) {
        Ok(()) => Ok(()),
        Err(refused) => Err(explain(value, refused)),
    }
}

/// Encodes once more, this time keeping track of the path: only a failure pays for it.
#[cold]
fn explain<T: Serialize + ?Sized>(value: &T, refused: Refused) -> ValueError {
    let mut sink = Sink::new(Vec::new());
    let encoder = Encoder { tracks: true, ..Encoder::new(&mut sink) };
    let (path, refused) = match encoder.tracked("", value) {
        Ok(()) => (String::new(), refused),
        Err(Refused::At(path, refused)) => (path, *refused),
        Err(refused) => (String::new(), refused),
    };
    ValueError::new(ValueErrorKind::Encode, std::any::type_name::<T>(), path, refused.to_string())
}

/// The head of an array or map.
pub(super) struct Head {
    bytes: [u8; 5],
    len: usize,
}

impl Head {
    /// For `len` items, in the smallest form, or in the next one if `wide`.
    pub(super) fn new(map: bool, len: usize, wide: bool) -> Result<Head, Refused> {
        let (fix, mid, long) = if map { (0x80, 0xde, 0xdf) } else { (0x90, 0xdc, 0xdd) };
        let len = u32::try_from(len).map_err(|_| Refused::Long)?;
        let [b0, b1, b2, b3] = len.to_be_bytes();
        Ok(match (len, wide) {
            (0..=15, false) => Head { bytes: [fix | b3, 0, 0, 0, 0], len: 1 },
            (0..=15, true) | (16..=0xffff, false) => Head { bytes: [mid, b2, b3, 0, 0], len: 3 },
            _ => Head { bytes: [long, b0, b1, b2, b3], len: 5 },
        })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Why a value is not written.
#[derive(Debug)]
pub(super) enum Refused {
    SomeNil,
    Deep,
    Long,
    /// What the type's own `Serialize` says.
    Other(String),
    /// One of these, at a path. Only while the path is tracked.
    At(String, Box<Refused>),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::SomeNil => f.write_str(
                "`Some` of a value that is recorded as nothing, such as `Some(None)`, `Some(())` or `Some(Value::Null)`, \
                 would come back as `None`; use an enum of its own",
            ),
            Refused::Deep => Malformed::Deep.fmt(f),
            Refused::Long => f.write_str("a string, array or map has more than 2^32-1 items"),
            Refused::Other(message) => f.write_str(message),
            Refused::At(_, refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Refused {
        Refused::Other(message.to_string())
    }
}

impl From<rmp_serde::encode::Error> for Refused {
    fn from(error: rmp_serde::encode::Error) -> Refused {
        Refused::Other(error.to_string())
    }
}

/// Writes one value.
struct Encoder<'a> {
    sink: &'a mut Sink,
    /// Arrays and maps around this value.
    depth: usize,
    /// Whether this is the inside of a `Some`.
    in_some: bool,
    /// Whether the path is tracked.
    tracks: bool,
}

impl<'a> Encoder<'a> {
    fn new(sink: &'a mut Sink) -> Encoder<'a> {
        Encoder { sink, depth: 0, in_some: false, tracks: false }
    }

    /// Writes what is inside a value, in `name` of it. `serde_path_to_error` loses the path inside of a `Some`, a newtype and a
    /// variant's data, and so of every effect that returns a `Result`: it begins anew there.
    fn tracked<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Result<(), Refused> {
        if !self.tracks {
            return value.serialize(self);
        }
        serde_path_to_error::serialize(value, self).map_err(|tracked| {
            let path = path_text(tracked.path());
            let (path, refused) = match tracked.into_inner() {
                Refused::At(inner, refused) => (join_path(&path, &inner), refused),
                refused => (path, Box::new(refused)),
            };
            Refused::At(join_path(name, &path), refused)
        })
    }

    fn items(self, map: bool, len: usize, nil_is_data: bool) -> Result<Items<'a>, Refused> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            return Err(Refused::Deep);
        }
        Items::new(self.sink, depth, map, len, nil_is_data, self.tracks)
    }

    /// A variant with data is a map of one entry; this writes all of it but the data.
    fn variant(self, name: &str) -> Result<Encoder<'a>, Refused> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            return Err(Refused::Deep);
        }
        self.sink.get_mut().push(0x81);
        self.sink.serialize_str(name)?;
        Ok(Encoder { sink: self.sink, depth, in_some: false, tracks: self.tracks })
    }

    fn nil(self) -> Result<(), Refused> {
        if self.in_some {
            return Err(Refused::SomeNil);
        }
        self.sink.get_mut().push(NIL);
        Ok(())
    }
}

impl<'a> Serializer for Encoder<'a> {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Items<'a>;
    type SerializeTuple = Items<'a>;
    type SerializeTupleStruct = Items<'a>;
    type SerializeTupleVariant = Items<'a>;
    type SerializeMap = Items<'a>;
    type SerializeStruct = Items<'a>;
    type SerializeStructVariant = Items<'a>;

    /// True, although the format is binary: serde decodes flattened, tagged and untagged parts as human-readable
    /// whatever the format says, so that in the compact form an `IpAddr` or a `Uuid` inside one would not come back.
    fn is_human_readable(&self) -> bool {
        true
    }

    fn serialize_bool(self, v: bool) -> Result<(), Refused> {
        Ok(self.sink.serialize_bool(v)?)
    }

    fn serialize_i8(self, v: i8) -> Result<(), Refused> {
        self.serialize_i64(v.into())
    }

    fn serialize_i16(self, v: i16) -> Result<(), Refused> {
        self.serialize_i64(v.into())
    }

    fn serialize_i32(self, v: i32) -> Result<(), Refused> {
        self.serialize_i64(v.into())
    }

    fn serialize_i64(self, v: i64) -> Result<(), Refused> {
        Ok(self.sink.serialize_i64(v)?)
    }

    fn serialize_i128(self, v: i128) -> Result<(), Refused> {
        match (i64::try_from(v), u64::try_from(v)) {
            (Ok(v), _) => self.serialize_i64(v),
            (_, Ok(v)) => self.serialize_u64(v),
            _ => Ok(self.sink.serialize_i128(v)?),
        }
    }

    fn serialize_u8(self, v: u8) -> Result<(), Refused> {
        self.serialize_u64(v.into())
    }

    fn serialize_u16(self, v: u16) -> Result<(), Refused> {
        self.serialize_u64(v.into())
    }

    fn serialize_u32(self, v: u32) -> Result<(), Refused> {
        self.serialize_u64(v.into())
    }

    fn serialize_u64(self, v: u64) -> Result<(), Refused> {
        Ok(self.sink.serialize_u64(v)?)
    }

    fn serialize_u128(self, v: u128) -> Result<(), Refused> {
        match u64::try_from(v) {
            Ok(v) => self.serialize_u64(v),
            Err(_) => Ok(self.sink.serialize_u128(v)?),
        }
    }

    fn serialize_f32(self, v: f32) -> Result<(), Refused> {
        Ok(self.sink.serialize_f32(v)?)
    }

    fn serialize_f64(self, v: f64) -> Result<(), Refused> {
        Ok(self.sink.serialize_f64(v)?)
    }

    fn serialize_char(self, v: char) -> Result<(), Refused> {
        Ok(self.sink.serialize_char(v)?)
    }

    fn serialize_str(self, v: &str) -> Result<(), Refused> {
        u32::try_from(v.len()).map_err(|_| Refused::Long)?;
        Ok(self.sink.serialize_str(v)?)
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), Refused> {
        u32::try_from(v.len()).map_err(|_| Refused::Long)?;
        Ok(self.sink.serialize_bytes(v)?)
    }

    fn serialize_none(self) -> Result<(), Refused> {
        self.nil()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        Encoder { in_some: true, ..self }.tracked("", value)
    }

    fn serialize_unit(self) -> Result<(), Refused> {
        self.nil()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<(), Refused> {
        Ok(self.sink.serialize_unit_struct(name)?)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Refused> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), Refused> {
        if name == rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            return Ok(self.sink.serialize_newtype_struct(name, value)?);
        }
        self.tracked("", value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        let start = self.sink.get_ref().len();
        let inside = self.variant(variant)?;
        let body = inside.sink.get_ref().len();
        Encoder { sink: &mut *inside.sink, ..inside }.tracked(variant, value)?;
        if inside.sink.get_ref()[body..] == [NIL] {
            inside.sink.get_mut().splice(start..=start, Head::new(true, 1, true)?.as_slice().iter().copied());
        }
        Ok(())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Items<'a>, Refused> {
        self.items(false, len.unwrap_or(0), false)
    }

    fn serialize_tuple(self, len: usize) -> Result<Items<'a>, Refused> {
        self.items(false, len, false)
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Items<'a>, Refused> {
        self.items(false, len, false)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Items<'a>, Refused> {
        self.variant(variant)?.items(false, len, false)
    }

    /// A map without a known length is a struct with `#[serde(flatten)]`: a nil in it is a `None` field. One that says
    /// its length is a map.
    fn serialize_map(self, len: Option<usize>) -> Result<Items<'a>, Refused> {
        self.items(true, len.unwrap_or(0), len.is_some())
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Items<'a>, Refused> {
        self.items(true, len, false)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Items<'a>, Refused> {
        self.variant(variant)?.items(true, len, false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
        let mut sink = Sink::new(Vec::new());
        encode(&mut sink, value).unwrap();
        sink.into_inner()
    }

    /// What rmp-serde itself writes for it.
    fn check<T: Serialize>(value: T) {
        let mut theirs = rmp_serde::Serializer::new(Vec::new()).with_struct_map().with_human_readable();
        value.serialize(&mut theirs).unwrap();
        assert_eq!(bytes(&value), theirs.into_inner());
    }

    #[derive(Serialize)]
    struct Struct<T> {
        first: T,
        second: Vec<T>,
    }

    #[derive(Serialize)]
    struct Flat {
        first: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }

    #[derive(Serialize)]
    enum Enum {
        Unit,
        Newtype(u8),
        Tuple(u8, u8),
        Struct { a: u8 },
    }

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Tuple(u8, u8);

    #[derive(Serialize)]
    #[serde(rename = "_ExtStruct")]
    struct Ext((i8, Bytes));

    struct Bytes;

    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&[1, 2, 3])
        }
    }

    #[test]
    fn all_but_nil_in_maps_is_written_as_rmp_serde_does() {
        check(Struct { first: Some(1), second: vec![None, Some(300)] });
        check((Enum::Unit, Enum::Newtype(1), Enum::Tuple(1, 2), Enum::Struct { a: 1 }, Unit, Tuple(1, 2)));
        check(Flat { first: 1, rest: BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 3)]) });
        check((
            u128::MAX,
            i128::MIN,
            1.5_f32,
            1.5_f64,
            'x',
            true,
            (),
            "127.0.0.1".parse::<std::net::IpAddr>().unwrap(),
        ));
        check((Bytes, Ext((7, Bytes))));
        for len in [0, 1, 15, 16, 17, 255, 256, 65_535, 65_536] {
            check(vec![0; len]);
            check((0..len).map(|n| (n, n)).collect::<BTreeMap<_, _>>());
            check("x".repeat(len));
        }
    }

    #[test]
    fn nil_that_is_data_makes_its_map_one_size_wider() {
        assert_eq!(bytes(&BTreeMap::from([(1, None::<u8>)])), [0xde, 0, 1, 1, NIL]);
        assert_eq!(bytes(&BTreeMap::from([(1, Some(2))])), [0x81, 1, 2]);
        assert_eq!(bytes(&Ok::<(), ()>(())), [0xde, 0, 1, 0xa2, b'O', b'k', NIL]);
        assert_eq!(bytes(&Struct { first: (), second: vec![] })[0], 0x82);
        for (len, head) in [(15, 0xde), (16, 0xdf), (65_535, 0xdf), (65_536, 0xdf)] {
            let map: BTreeMap<usize, _> = (0..len).map(|n| (n, ())).collect();
            assert_eq!(bytes(&map)[0], head, "{len}");
            assert_eq!(rmp_serde::from_slice::<BTreeMap<usize, ()>>(&bytes(&map)).unwrap(), map);
        }
    }
}
