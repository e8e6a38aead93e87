//! Values of users' types as they stand in the log.

mod args;
mod digest;
mod encode;
mod error;
mod json;
mod param;
mod wire;

#[cfg(test)]
mod evolution;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use self::{args::Written, param::Check};
pub use self::{
    args::{Args, ArgsWriter},
    error::{ValueError, ValueErrorKind},
    param::{Lend, Lent, Param},
};
use self::{encode::Sink, error::path_text};

/// A type that a workflow or an effect may return, or take as a parameter: anything that serde can write and read,
/// without borrowed data.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded",
    label = "is written to the log and read back on replay",
    note = "derive `serde::Serialize` and `serde::Deserialize` for every type in it; it must also be `Send` and own its data",
    note = "an error that serde does not know, such as one of `anyhow`: return `durable::Result`, into which `?` takes it"
)]
pub trait Recordable: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Recordable for T {}

/// A value that may stand in a key template: anything with `Display`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key",
    label = "has no text form",
    note = "implement `std::fmt::Display` for it, or use another argument in the key"
)]
pub trait KeyPart: fmt::Display {}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> KeyPart for T {}

const CODEC_MESSAGEPACK: u8 = 1;
const CODEC_JSON: u8 = 2;

/// How the bytes behind the codec byte are to be read.
#[derive(Clone, Copy, PartialEq)]
enum Codec {
    MessagePack,
    Json,
}

/// A value of a user's type as it is recorded: one codec byte, then MessagePack with field names (1) or JSON (2). Cheap
/// to clone.
///
/// ```
/// # use durable::Value;
/// let value = Value::encode(&("refund", 250_u32)).unwrap();
/// assert_eq!(value.decode::<(String, u64)>().unwrap(), ("refund".to_owned(), 250));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Bytes);

impl Value {
    /// Encodes as MessagePack with field names.
    ///
    /// # Errors
    ///
    /// [`ValueErrorKind::Encode`] if the type's `Serialize` says so, if the value is nested more than 128 deep, or if it
    /// is a `Some` of something recorded as nothing (`Some(None)`, `Some(())`), which would come back as `None`.
    ///
    /// ```
    /// # use durable::Value;
    /// #[derive(serde::Serialize)]
    /// struct Order { note: Option<Option<String>> }
    ///
    /// assert!(Value::encode(&Order { note: None }).is_ok());
    /// assert_eq!(Value::encode(&Order { note: Some(None) }).unwrap_err().path(), "note");
    /// ```
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Value, ValueError> {
        let mut bytes = Vec::with_capacity(128);
        bytes.push(CODEC_MESSAGEPACK);
        let mut sink = Sink::new(bytes);
        encode::encode(&mut sink, value)?;
        Ok(Value(Bytes::from(sink.into_inner())))
    }

    /// Encodes, decodes that, and encodes the outcome: what would not come back equal is found before anything relies on
    /// it. What a type leaves out on purpose (`#[serde(skip)]`) is no part of the value.
    ///
    /// # Errors
    ///
    /// Those of [`Value::encode`]; [`ValueErrorKind::Changes`] if what comes back is another value or does not decode.
    pub fn encode_checked<T: Recordable>(value: &T) -> Result<Value, ValueError> {
        let changes = |path: &str, reason: String| {
            ValueError::new(ValueErrorKind::Changes, std::any::type_name::<T>(), path.to_owned(), reason)
        };
        let recorded = Value::encode(value)?;
        let back: T = recorded.decode().map_err(|error| changes(error.path(), error.reason().to_owned()))?;
        let again = Value::encode(&back).map_err(|error| changes(error.path(), error.reason().to_owned()))?;
        if digest::same(recorded.body(), again.body()) {
            return Ok(recorded);
        }
        let (path, before, after) = json::difference(&recorded.to_json(), &again.to_json());
        Err(changes(&path, format!("{before} comes back as {after}")))
    }

    /// Decodes as `T`. Unknown fields are passed over unless the type denies them; a missing field is an error unless it
    /// is an `Option` or has a serde default.
    ///
    /// # Errors
    ///
    /// [`ValueErrorKind::Decode`] with the path of the field, what was found and what was expected;
    /// [`ValueErrorKind::Malformed`] if the bytes are not exactly one value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ValueError> {
        match self.codec() {
            Some(Codec::MessagePack) => decode_messagepack(self.body()),
            Some(Codec::Json) => decode_json(self.body()),
            None => Err(malformed::<T>(self.unknown_codec())),
        }
    }

    /// Takes JSON as it is: what a person or another program hands in.
    pub fn from_json(json: &serde_json::Value) -> Value {
        let mut bytes = vec![CODEC_JSON];
        // Writing to memory does not fail, and keys of `serde_json::Value` are strings. If it did fail, what is written
        // so far is no JSON, and decoding it an error.
        let _ = serde_json::to_writer(&mut bytes, json);
        Value(Bytes::from(bytes))
    }

    /// The value as JSON, for people. Never fails: NaN and the infinities are the strings `"NaN"`, `"inf"`, `"-inf"`,
    /// bytes `{"$bytes": "c0ffee"}`, keys that are no strings their JSON text, bytes that are no record
    /// `{"$undecodable": "0107.."}` (at most 1,024 bytes of them).
    ///
    /// ```
    /// # use durable::Value;
    /// let value = Value::encode(&[(1.5, "a"), (f64::NAN, "b")]).unwrap();
    /// assert_eq!(value.to_json(), serde_json::json!([[1.5, "a"], ["NaN", "b"]]));
    /// ```
    pub fn to_json(&self) -> serde_json::Value {
        let json = match self.codec() {
            Some(Codec::MessagePack) => json::from_messagepack(self.body()).ok(),
            Some(Codec::Json) => serde_json::from_slice(self.body()).ok(),
            None => None,
        };
        json.unwrap_or_else(|| json::undecodable(&self.0))
    }

    /// Takes bytes that [`Value::as_bytes`] gave. They are not looked at before they are used.
    pub fn from_bytes(bytes: Bytes) -> Value {
        Value(bytes)
    }

    /// The recorded bytes, the codec byte first.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Number of recorded bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is not even a codec byte: never true of an encoded value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// 128 bits that are equal for equal values: internal equality, not a signature (xxh3 resists accidents, not attackers).
    ///
    /// A function of the recorded bytes alone. The order of map entries does not matter, nor the width of a number's
    /// type; fields that are `None` count as absent, so that adding an `Option` field changes no digest. Floats are
    /// compared by bits (`-0.0` is not `0.0`), an integer is never a float. Entries of a map and the data of an enum's
    /// variant count even if they are `None`. JSON has the digest of the same data in MessagePack, where JSON can say it;
    /// its null entries count as absent fields.
    ///
    /// Bytes that are no record have a digest too, of the bytes.
    pub fn digest(&self) -> u128 {
        let digest = match self.codec() {
            Some(Codec::MessagePack) => digest::of_messagepack(self.body()),
            Some(Codec::Json) => serde_json::from_slice(self.body()).ok().and_then(|json| digest::of_json(&json)),
            None => None,
        };
        digest.unwrap_or_else(|| digest::of_unreadable(&self.0))
    }

    fn codec(&self) -> Option<Codec> {
        match self.0.first() {
            Some(&CODEC_MESSAGEPACK) => Some(Codec::MessagePack),
            Some(&CODEC_JSON) => Some(Codec::Json),
            _ => None,
        }
    }

    /// What is behind the codec byte.
    fn body(&self) -> &[u8] {
        self.0.get(1..).unwrap_or_default()
    }

    fn unknown_codec(&self) -> String {
        match self.0.first() {
            None => "no bytes at all".to_owned(),
            Some(byte) => format!("codec {byte} is unknown to this build"),
        }
    }
}

impl fmt::Debug for Value {
    /// The JSON of a small value, the size of a large one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len() <= 256 {
            write!(f, "Value({})", self.to_json())
        } else {
            write!(f, "Value({} bytes)", self.len())
        }
    }
}

fn malformed<T>(reason: String) -> ValueError {
    ValueError::new(ValueErrorKind::Malformed, std::any::type_name::<T>(), String::new(), reason)
}

fn undecoded<T>(path: &serde_path_to_error::Path, reason: String) -> ValueError {
    let mut path = path_text(path);
    // Serde knows that a field is missing where it looks for it, one level above.
    if let Some(field) = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        path = error::join_path(&path, field);
    }
    ValueError::new(ValueErrorKind::Decode, std::any::type_name::<T>(), path, reason)
}

/// Decodes exactly one MessagePack value.
fn decode_messagepack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ValueError> {
    // First of all: rmp-serde neither counts the nesting of enums nor minds bytes that are left.
    wire::check(bytes).map_err(|error| malformed::<T>(error.to_string()))?;
    let reader = || rmp_serde::Deserializer::from_read_ref(bytes).with_human_readable();
    T::deserialize(&mut reader()).or_else(|_| {
        // Once more, keeping track of the path: only a failure pays for it.
        match serde_path_to_error::deserialize(&mut reader()) {
            Ok(value) => Ok(value),
            Err(tracked) => {
                let path = tracked.path().clone();
                Err(undecoded::<T>(&path, in_words(tracked.into_inner())))
            }
        }
    })
}

/// Says what is wrong where rmp-serde speaks of markers.
fn in_words(error: rmp_serde::decode::Error) -> String {
    use rmp_serde::decode::Error;
    match error {
        // Only numbers, booleans and the nil of a variant without data are asked for by marker.
        Error::TypeMismatch(marker) => {
            let found = match marker.to_u8() {
                0x80..=0x8f | 0xde | 0xdf => "map",
                0x90..=0x9f | 0xdc | 0xdd => "sequence",
                0xa0..=0xbf | 0xd9..=0xdb => "string",
                0xc0 => "nil",
                0xc2 | 0xc3 => "boolean",
                0xc4..=0xc6 => "byte array",
                0xc7..=0xc9 | 0xd4..=0xd8 => "extension type",
                0xca | 0xcb => "floating point number",
                _ => "integer",
            };
            format!("invalid type: {found}, expected a scalar")
        }
        Error::LengthMismatch(len) => format!("invalid length: expected {len} items"),
        Error::OutOfRange => "the number is out of range".to_owned(),
        Error::Utf8Error(error) => format!("the string is not UTF-8: {error}"),
        Error::DepthLimitExceeded => wire::Malformed::Deep.to_string(),
        Error::InvalidMarkerRead(_) | Error::InvalidDataRead(_) => wire::Malformed::Ends.to_string(),
        Error::Syntax(reason) | Error::Uncategorized(reason) => reason,
    }
}

fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ValueError> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        // Once more, keeping track of the path: only a failure pays for it.
        Err(error) => {
            let mut json = serde_json::Deserializer::from_slice(bytes);
            Err(match serde_path_to_error::deserialize::<_, T>(&mut json) {
                Err(tracked) => {
                    let path = tracked.path().clone();
                    undecoded::<T>(&path, tracked.into_inner().to_string())
                }
                // The value is whole: it is what comes after it.
                Ok(_) => malformed::<T>(error.to_string()),
            })
        }
    }
}
