//! What becomes of a record when its type changes.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

/// Decodes the record of one type as another.
fn check_evolution<Old: Serialize, New: Recordable + PartialEq + Debug>(old: Old, new: Result<New, (&str, &str)>) {
    let recorded = Value::encode(&old).unwrap();
    match (recorded.decode::<New>(), new) {
        (Ok(decoded), Ok(new)) => assert_eq!(decoded, new),
        (Err(error), Err((path, reason))) => {
            assert_eq!((error.kind(), error.path()), (ValueErrorKind::Decode, path), "{error}");
            assert!(error.reason().contains(reason), "{error}");
            assert_eq!(error.type_name(), std::any::type_name::<New>());
        }
        (decoded, new) => panic!("{recorded:?}: {decoded:?} is not {new:?}"),
    }
}

mod v1 {
    use serde::Serialize;

    #[derive(Serialize)]
    pub(super) struct Receipt {
        pub(super) id: u32,
        pub(super) lines: Vec<Kind>,
    }

    #[derive(Serialize)]
    pub(super) enum Kind {
        Card,
        Cash { cents: u32 },
    }

    pub(super) fn receipt() -> Receipt {
        Receipt { id: 7, lines: vec![Kind::Card, Kind::Cash { cents: 5 }] }
    }
}

/// The type as it is now: `v2!(Name { fields })`.
macro_rules! v2 {
    ($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* }) => {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct $name { $($(#[$meta])* $field: $type),* }
    };
}

v2!(GainsOption { id: u32, note: Option<String>, lines: Vec<serde_json::Value> });
v2!(GainsRequired { id: u32, note: String });
v2!(GainsDefault {
    #[serde(default)]
    note: String,
    id: u32
});
v2!(Loses { id: u32 });
v2!(Widens { id: u64 });
v2!(WidensMore { id: i128 });
v2!(Narrows { id: i8 });
v2!(ToText { id: String });
v2!(ToFloat { id: f64 });
v2!(ToBool { id: bool });
v2!(Lines { lines: Vec<Kind> });
v2!(FewerLines { lines: Vec<Fewer> });
v2!(OtherLines { lines: Vec<Other> });
v2!(WideLines { lines: Vec<WideKind> });

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Voucher(u8),
    Cash { cents: u32 },
    Card,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Fewer {
    Card,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Other {
    Card,
    Coins { cents: u32 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum WideKind {
    Card,
    Cash { cents: String },
}

#[test]
fn a_record_survives_a_change_of_its_type_or_says_where_it_does_not() {
    let old = v1::receipt;
    let lines = vec![json!("Card"), json!({ "Cash": { "cents": 5 } })];
    check_evolution(old(), Ok(GainsOption { id: 7, note: None, lines }));
    check_evolution::<_, GainsRequired>(old(), Err(("note", "missing field `note`")));
    check_evolution::<_, Vec<GainsRequired>>([old()], Err(("[0].note", "missing field `note`")));
    check_evolution(old(), Ok(GainsDefault { id: 7, note: String::new() }));
    check_evolution(old(), Ok(Loses { id: 7 }));
    check_evolution(old(), Ok(Widens { id: 7 }));
    check_evolution(old(), Ok(WidensMore { id: 7 }));
    check_evolution(old(), Ok(Narrows { id: 7 }));
    check_evolution::<_, Narrows>(Loses { id: 200 }, Err(("id", "invalid value: integer `200`, expected i8")));
    check_evolution::<_, ToText>(old(), Err(("id", "invalid type: integer `7`, expected a string")));
    check_evolution::<_, Loses>(ToText { id: "7".to_owned() }, Err(("id", "invalid type: string, expected a")));
    check_evolution(old(), Ok(ToFloat { id: 7.0 }));
    check_evolution::<_, Loses>(ToFloat { id: 7.0 }, Err(("id", "invalid type: floating point `7.0`, expected u32")));
    check_evolution::<_, ToBool>(old(), Err(("id", "invalid type: integer `7`, expected a boolean")));
    check_evolution(old(), Ok(Lines { lines: vec![Kind::Card, Kind::Cash { cents: 5 }] }));
    check_evolution::<_, FewerLines>(old(), Err(("lines[1]", "unknown variant `Cash`, expected `Card`")));
    check_evolution::<_, OtherLines>(old(), Err(("lines[1]", "unknown variant `Cash`, expected `Card` or `Coins`")));
    check_evolution::<_, WideLines>(old(), Err(("lines[1].Cash.cents", "integer `5`, expected a string")));
    // The same where a person gave the value as JSON.
    let given = |json: &serde_json::Value| Value::from_json(json);
    let json = json!({ "id": 7, "lines": ["Card", { "Cash": { "cents": 5 } }] });
    assert_eq!(given(&json).decode::<Loses>().unwrap(), Loses { id: 7 });
    assert_eq!(given(&json).decode::<FewerLines>().unwrap_err().path(), "lines[1]");
    assert_eq!(given(&json).decode::<GainsRequired>().unwrap_err().path(), "note");
}

#[test]
fn an_argument_may_be_added_as_an_option_and_is_never_made_up() {
    let check = |args: &Args| {
        assert_eq!(args.decode::<u64>("cents").unwrap(), 250);
        assert_eq!(args.decode::<Option<u8>>("added").unwrap(), None);
        for error in [
            args.decode::<String>("added").unwrap_err(),
            args.decode::<serde_json::Value>("added").unwrap_err(),
            args.decode::<Vec<u8>>("added").unwrap_err(),
            args.decode::<GainsDefault>("added").unwrap_err(),
        ] {
            assert_eq!(error.path(), "added");
            assert_eq!(error.reason(), "the recorded call has no such argument");
        }
        assert_eq!(args.decode::<GainsRequired>("order").unwrap_err().path(), "order.note");
        assert_eq!(args.decode::<Vec<u8>>("order").unwrap_err().path(), "order");
    };
    let mut writer = ArgsWriter::new(0);
    writer.arg("cents", &250_u8).arg("order", &Loses { id: 7 }).arg("name", "str");
    let (args, digest) = writer.finish().unwrap();
    check(&args);
    check(&Args::from_value(Value::from_json(&args.to_json())));
    assert_eq!(Value::from_json(&args.to_json()).digest(), digest);
    // Another order, one more argument that is `None`.
    let mut writer = ArgsWriter::new(4);
    writer.arg("name", &"str".to_owned()).arg("added", &None::<u8>).arg("order", &Widens { id: 7 }).arg("cents", &250);
    assert_eq!(writer.finish().unwrap().1, digest);
    // No arguments at all, and what are no arguments.
    let (args, digest) = ArgsWriter::new(0).finish().unwrap();
    assert_eq!((args.to_json(), args.value().len()), (json!({}), 2));
    assert_eq!(digest, Value::from_json(&json!({})).digest());
    for value in [Value::encode(&[1, 2]).unwrap(), Value::from_json(&json!(1)), Value::from_bytes(Bytes::new())] {
        assert_eq!(Args::from_value(value).decode::<u8>("cents").unwrap_err().path(), "cents");
    }
}
