//! Recorded values as JSON, for people: lossy where JSON is, never failing.

use serde_json::{Map, Value as Json, json};

use super::error::join_path;
use super::wire::{MAX_DEPTH, Malformed, Reader, Token};

/// Most bytes of an unreadable record that are shown.
const UNDECODABLE_BYTES_MAX: usize = 1024;

/// Most bytes of the text of a key that is no string.
const KEY_BYTES_MAX: usize = 1024;

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
            for n in 0..len {
                let mut key = match value(reader, depth + 1)? {
                    Json::String(text) => text,
                    other => key_text(&other),
                };
                // The number 1 and the text "1" are two keys of one map, and nothing may vanish before the reader's eyes.
                while fields.contains_key(&key) {
                    key = format!("{key} #{n}");
                }
                fields.insert(key, value(reader, depth + 1)?);
            }
            Json::Object(fields)
        }
    })
}

/// The text of a key that is none. Cut, because every map that is a key of a map within a key escapes the text once more, and
/// doubles it.
fn key_text(key: &Json) -> String {
    let mut text = key.to_string();
    if text.len() > KEY_BYTES_MAX {
        text.truncate(text.floor_char_boundary(KEY_BYTES_MAX));
        text.push_str("..");
    }
    text
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::{
        super::{ArgsWriter, Bytes, Value},
        *,
    };

    fn check<T: serde::Serialize>(value: T, json: Json) {
        assert_eq!(Value::encode(&value).unwrap().to_json(), json);
    }

    fn check_bytes(bytes: &[u8], json: Json) {
        assert_eq!(Value::from_bytes(Bytes::copy_from_slice(bytes)).to_json(), json);
    }

    #[test]
    fn what_json_can_say_it_says() {
        let data = json!({ "a": [1, -1, u64::MAX, i64::MIN, 0.1, null, true, {}], "": "\u{0}" });
        check(&data, data.clone());
        assert_eq!(Value::from_json(&data).to_json(), data);
        check((0.1_f32, 1e-45_f32, -0.0), json!([0.1, 1e-45, -0.0]));
        let mut writer = ArgsWriter::new(1);
        writer.arg("a", &Some(1));
        assert_eq!(writer.finish().unwrap().0.to_json(), json!({ "a": 1 }));
    }

    #[test]
    fn what_json_cannot_say_it_says_in_words() {
        check([f64::NAN, f64::INFINITY, f64::NEG_INFINITY], json!(["NaN", "inf", "-inf"]));
        check([f32::NAN, f32::INFINITY], json!(["NaN", "inf"]));
        check(u128::MAX, json!({ "$bytes": "f".repeat(32) }));
        check(HashMap::from([((1, 2), 3)]), json!({ "[1,2]": 3 }));
        check_bytes(&[1, 0x82, 1, 0xc0, 0xa1, b'1', 0xc2], json!({ "1": null, "1 #1": false }));
        check_bytes(&[1, 0xc4, 2, 0xc0, 0xff], json!({ "$bytes": "c0ff" }));
        check_bytes(&[1, 0xa2, 0xc0, 0xff], json!({ "$bytes": "c0ff" }));
        check_bytes(&[1, 0xd4, 5, 0xab], json!({ "$ext": 5, "$bytes": "ab" }));
        check_bytes(&[1, 0x92, 1], json!({ "$undecodable": "019201" }));
        check_bytes(&[2, b'[', b'1'], json!({ "$undecodable": "025b31" }));
        check_bytes(&[9, 1], json!({ "$undecodable": "0901" }));
        check_bytes(&[], json!({ "$undecodable": "" }));
    }

    #[test]
    fn a_key_within_a_key_does_not_double_without_end() {
        // Maps whose keys are maps whose keys are maps: every level escapes the text of the one below.
        let deep = [&[1][..], &[0x81].repeat(100), &[0xa1, b'"'], &[0xc0; 100]].concat();
        let json = Value::from_bytes(deep.into()).to_json();
        assert!(json.to_string().len() < 4 * KEY_BYTES_MAX);
        // One key, very often.
        let entries = [0xa1, b'a', 0xc0].repeat(20_000);
        let many = [&[1, 0xde, 0x4e, 0x20][..], &entries].concat();
        let json = Value::from_bytes(many.into()).to_json();
        assert_eq!(json.as_object().map(Map::len), Some(20_000));
    }

    #[test]
    fn a_difference_is_where_it_is() {
        let check = |before: Json, after: Json, path: &str, a: &str, b: &str| {
            assert_eq!(difference(&before, &after), (path.to_owned(), a.to_owned(), b.to_owned()));
        };
        check(json!({ "a": [1, { "b": 2 }] }), json!({ "a": [1, { "b": 3 }] }), "a[1].b", "2", "3");
        check(json!({ "a": 1 }), json!({ "a": 1, "b": [] }), "b", "nothing", "[]");
        check(json!({ "a": null, "b": 1 }), json!({}), "b", "1", "nothing");
        check(json!([1, 2]), json!([1]), "", "[1,2]", "[1]");
        check(json!(BTreeMap::<u8, u8>::new()), json!("x".repeat(90)), "", "{}", &format!("\"{}..", "x".repeat(59)));
    }
}
