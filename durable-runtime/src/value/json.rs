//! Recorded values as JSON, for people: lossy where JSON is, never failing.

use serde_json::{Map, Value as Json, json};

use super::error::join_path;
use super::wire::{MAX_DEPTH, Malformed, Reader, Token};

/// Most bytes of an unreadable record that are shown.
const UNDECODABLE_BYTES_MAX: usize = 1024;

/// A MessagePack value as JSON.
pub(super) fn from_messagepack(bytes: &[u8]) -> Result<Json, Malformed> {
    let mut reader = Reader::new(bytes);
    let json = value(&mut reader, 0)?;
    reader.finish()?;
    Ok(json)
}

/// Path of the first place where two values differ, and what is there. Where they differ in what JSON cannot show (bits of
/// a NaN), the path is empty.
pub(super) fn difference(before: &Json, after: &Json) -> (String, String, String) {
    let absent = || "nothing".to_owned();
    match (before, after) {
        (Json::Object(before), Json::Object(after)) => {
            let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                let (a, b) = match (before.get(key), after.get(key)) {
                    (Some(a), Some(b)) if a == b => continue,
                    (Some(a), Some(b)) => {
                        let (path, a, b) = difference(a, b);
                        return (join_path(key, &path), a, b);
                    }
                    // An absent field and a nil one are the same value.
                    (Some(Json::Null), None) | (None, Some(Json::Null)) => continue,
                    (a, b) => (a, b),
                };
                return (key.clone(), a.map_or_else(absent, short), b.map_or_else(absent, short));
            }
            (String::new(), short(&Json::Object(before.clone())), short(&Json::Object(after.clone())))
        }
        (Json::Array(before), Json::Array(after)) if before.len() == after.len() => {
            match before.iter().zip(after).enumerate().find(|(_, (a, b))| a != b) {
                Some((index, (a, b))) => {
                    let (path, a, b) = difference(a, b);
                    (join_path(&format!("[{index}]"), &path), a, b)
                }
                None => (String::new(), "an array".to_owned(), "another".to_owned()),
            }
        }
        (before, after) => (String::new(), short(before), short(after)),
    }
}

/// The JSON text, cut after 60 characters.
fn short(json: &Json) -> String {
    let text = json.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// What is shown for bytes that are no record.
pub(super) fn undecodable(bytes: &[u8]) -> Json {
    let shown = &bytes[..bytes.len().min(UNDECODABLE_BYTES_MAX)];
    let more = if shown.len() < bytes.len() { ".." } else { "" };
    json!({ "$undecodable": format!("{}{more}", hex(shown)) })
}

/// Recursion ends at [`MAX_DEPTH`].
fn value(reader: &mut Reader<'_>, depth: usize) -> Result<Json, Malformed> {
    Ok(match reader.token()? {
        Token::Nil => Json::Null,
        Token::Bool(value) => Json::Bool(value),
        Token::Int(value) => match (u64::try_from(value), i64::try_from(value)) {
            (Ok(value), _) => value.into(),
            (_, Ok(value)) => value.into(),
            // No token holds a wider one.
            _ => Json::String(value.to_string()),
        },
        // By way of its shortest text, so that 0.1 is shown as 0.1 and not as 0.10000000149011612.
        Token::F32(bits) => {
            let text = f32::from_bits(bits).to_string();
            text.parse().map_or(Json::String(text), float)
        }
        Token::F64(bits) => float(f64::from_bits(bits)),
        Token::Str(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Json::String(text.to_owned()),
            Err(_) => json!({ "$bytes": hex(bytes) }),
        },
        Token::Bin(bytes) => json!({ "$bytes": hex(bytes) }),
        Token::Ext(tag, bytes) => json!({ "$ext": tag, "$bytes": hex(bytes) }),
        Token::Array(_) | Token::Map { .. } if depth >= MAX_DEPTH => return Err(Malformed::Deep),
        Token::Array(len) => {
            // Grows as it is filled: a length is only a promise.
            let mut items = Vec::new();
            for _ in 0..len {
                items.push(value(reader, depth + 1)?);
            }
            Json::Array(items)
        }
        Token::Map { len, .. } => {
            let mut fields = Map::new();
            for _ in 0..len {
                let mut key = match value(reader, depth + 1)? {
                    Json::String(text) => text,
                    other => other.to_string(),
                };
                // The number 1 and the text "1" are two keys of one map, and nothing may vanish before the reader's eyes.
                while fields.contains_key(&key) {
                    key.push('\'');
                }
                fields.insert(key, value(reader, depth + 1)?);
            }
            Json::Object(fields)
        }
    })
}

fn float(value: f64) -> Json {
    match serde_json::Number::from_f64(value) {
        Some(number) => Json::Number(number),
        // "NaN", "inf", "-inf".
        None => Json::String(value.to_string()),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
