//! Arguments of a call: a map from parameter name to value.

use std::{cell::Cell, fmt, marker::PhantomData};

use bytes::Bytes;
use serde::{
    Deserialize, Serialize,
    de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{
    CODEC_MESSAGEPACK, Codec, Recordable, Value, ValueError, ValueErrorKind, decode_messagepack, digest,
    encode::{Head, Sink, encode},
    undecoded,
    wire::{Malformed, Reader, Token},
};

/// The head of an empty map.
const FEW: u8 = 0x80;

/// The recorded arguments of a call, by parameter name. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Args(Value);

impl Args {
    /// Takes a recorded value for arguments. What is no map of names answers every [`Args::decode`] with an error.
    pub fn from_value(value: Value) -> Args {
        Args(value)
    }

    /// The recorded value.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The arguments as JSON, for people; see [`Value::to_json`].
    pub fn to_json(&self) -> serde_json::Value {
        self.0.to_json()
    }

    /// Decodes the argument `name`; the others are passed over. If the record has none, an `Option` is `None`, so that a
    /// parameter may be added to a function whose calls are recorded; no other type has a default.
    ///
    /// # Errors
    ///
    /// If there is no such argument, or it does not decode as `T`; the path begins with `name`.
    pub fn decode<T: Recordable>(&self, name: &'static str) -> Result<T, ValueError> {
        let found = match self.0.codec() {
            Some(Codec::MessagePack) => match find(self.0.body(), name) {
                Ok(Some(value)) => Some(decode_messagepack(value).map_err(|error| error.inside(name))?),
                Ok(None) => None,
                Err(malformed) => return Err(unreadable::<T>(name, malformed.to_string())),
            },
            Some(Codec::Json) => find_json(self.0.body(), name)?,
            None => return Err(unreadable::<T>(name, self.0.unknown_codec())),
        };
        match found {
            Some(value) => Ok(value),
            None => T::deserialize(Absent).map_err(|Missing(reason)| {
                ValueError::new(ValueErrorKind::Decode, std::any::type_name::<T>(), name.to_owned(), reason)
            }),
        }
    }
}

impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Args({:?})", self.0)
    }
}

/// The bytes of an argument. A linear scan; reads nothing behind it.
fn find<'a>(bytes: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, Malformed> {
    let mut reader = Reader::new(bytes);
    // What is no map has no arguments, like the empty one.
    let Token::Map { len, .. } = reader.token()? else { return Ok(None) };
    for _ in 0..len {
        let key = Reader::new(reader.skip()?).token()?;
        let value = reader.skip()?;
        if key == Token::Str(name.as_bytes()) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn find_json<T: Recordable>(bytes: &[u8], name: &'static str) -> Result<Option<T>, ValueError> {
    let seed = || Named { name, value: PhantomData::<T> };
    seed().deserialize(&mut serde_json::Deserializer::from_slice(bytes)).or_else(|_| {
        // Once more, keeping track of the path: only a failure pays for it.
        let mut track = serde_path_to_error::Track::new();
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let tracked = seed().deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
        tracked.map_err(|error| {
            let error = undecoded::<T>(&track.path(), error.to_string());
            // A damaged record has no path.
            if error.path().is_empty() { error.inside(name) } else { error }
        })
    })
}

fn unreadable<T>(name: &str, reason: String) -> ValueError {
    ValueError::new(ValueErrorKind::Malformed, std::any::type_name::<T>(), name.to_owned(), reason)
}

/// Decodes one entry of a map and passes over the others.
struct Named<T> {
    name: &'static str,
    value: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Named<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Named<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.name {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Decodes an argument that is not there, as serde's derive decodes a field that is not there: an `Option` is `None`,
/// and nothing else is made up.
struct Absent;

#[derive(Debug)]
struct Missing(String);

impl<'de> Deserializer<'de> for Absent {
    type Error = Missing;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Missing> {
        Err(Missing("the recorded call has no such argument".to_owned()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Missing> {
        visitor.visit_none()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

impl de::Error for Missing {
    fn custom<T: fmt::Display>(message: T) -> Missing {
        Missing(message.to_string())
    }
}

thread_local! {
    /// The memory of arguments that were written to be compared with a record, and nothing else.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Longer ones are not kept for the next call.
const SPARE_BYTES: usize = 1024;

/// The arguments of a call as they were written: they may be nothing but compared with a record.
#[derive(Clone)]
pub(crate) struct Written(Vec<u8>);

impl Written {
    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Their [`Value::digest`].
    pub(crate) fn digest(&self) -> u128 {
        digest::of_messagepack(&self.0[1..]).unwrap_or_else(|| digest::of_unreadable(&self.0))
    }

    pub(crate) fn into_args(mut self) -> Args {
        self.0.shrink_to_fit();
        Args(Value::from_bytes(Bytes::from(self.0)))
    }

    /// Nothing needs them: the next call may have their memory.
    pub(crate) fn recycle(self) {
        if self.0.capacity() <= SPARE_BYTES {
            // A thread that is ending keeps none.
            let _ = SPARE.try_with(|spare| spare.set(self.0));
        }
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clone().into_args().fmt(f)
    }
}

/// Writes the arguments of a call.
pub struct ArgsWriter {
    /// The codec byte and the head of a map of few entries, then names and values.
    sink: Sink,
    written: usize,
    /// The first argument that was refused; nothing is written after it.
    refused: Option<ValueError>,
}

impl ArgsWriter {
    /// Begins a call of about `count` arguments.
    pub(crate) fn new(count: usize) -> ArgsWriter {
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        bytes.reserve(32 + 32 * count.min(64));
        bytes.extend([CODEC_MESSAGEPACK, FEW]);
        ArgsWriter { sink: Sink::new(bytes), written: 0, refused: None }
    }

    /// Writes an argument. A failure is kept for [`ArgsWriter::finish`].
    pub(crate) fn arg<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> &mut ArgsWriter {
        if self.refused.is_none() {
            let written = self.name(name).and_then(|()| encode(&mut self.sink, value));
            self.refused = written.err().map(|error| error.inside(name));
            self.written += 1;
        }
        self
    }

    fn name(&mut self, name: &str) -> Result<(), ValueError> {
        match name.len() {
            // The length in the first byte.
            len @ 0..=31 => {
                let bytes = self.sink.get_mut();
                bytes.push(0xa0 | len as u8);
                bytes.extend_from_slice(name.as_bytes());
                Ok(())
            }
            _ => encode(&mut self.sink, name),
        }
    }

    /// The arguments and their [`Value::digest`].
    ///
    /// # Errors
    ///
    /// If an argument could not be encoded; the path begins with its name.
    pub(crate) fn finish(self) -> Result<(Args, u128), ValueError> {
        let written = self.written()?;
        let digest = written.digest();
        Ok((written.into_args(), digest))
    }

    /// The same, as long as nothing needs them.
    ///
    /// # Errors
    ///
    /// As [`ArgsWriter::finish`].
    pub(crate) fn written(self) -> Result<Written, ValueError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let head = Head::new(true, self.written, false)
            .map_err(|refused| ValueError::new(ValueErrorKind::Encode, "", String::new(), refused.to_string()))?;
        let mut bytes = self.sink.into_inner();
        match *head.as_slice() {
            [few] => bytes[1] = few,
            ref many => drop(bytes.splice(1..2, many.iter().copied())),
        }
        Ok(Written(bytes))
    }
}

impl fmt::Debug for ArgsWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgsWriter")
            .field("written", &self.written)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
