//! O-PL-1: values that do not survive.
//!
//! As argument of a workflow and of an effect, as an effect's result, as a workflow's result, as error text, as a signal, and as what is
//! published. What is refused as a signal is in `pl_signals`.

use std::{collections::HashMap, ffi::OsString, fmt::Debug};

use durable::{Code, EffectContext};
use serde::{Deserialize, Serialize};

use crate::support::{BOTH, Backend, Bench, World, replays};

/// An effect and a workflow for one type.
macro_rules! of_type {
    ($($module:ident: $type:ty;)*) => {$(
        mod $module {
            use super::*;

            /// Takes a value and gives it back.
            #[durable::effect(idempotent)]
            pub(super) async fn echo(cx: &EffectContext, #[resource] world: &World, value: $type) -> durable::Result<$type> {
                world.note(cx, format!("{value:?}"));
                Ok(value)
            }

            /// Gives what it is told, and publishes it before.
            #[durable::workflow]
            pub(super) async fn is_told() -> $type {
                let value = durable::signal::<$type>("value").await;
                durable::publish("value", &value).await;
                value
            }

            /// Gives what the effect gave.
            #[durable::workflow]
            pub(super) async fn through(value: $type) -> durable::Result<$type> {
                echo(value).await
            }
        }
    )*};
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Skips {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    b: Vec<u8>,
    c: u8,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kinds {
    Unit,
    New(Vec<u8>),
    Pair(i8, Option<String>),
    Named { f: f64, t: (u8, char) },
}

of_type! {
    floats: Vec<f64>;
    small_floats: Vec<f32>;
    wide: (u64, i64, u128, i128);
    texts: Vec<String>;
    letters: Vec<char>;
    bytes: Vec<u8>;
    os: OsString;
    unit: ();
    option: Option<u32>;
    nested: Option<Option<u32>>;
    option_of_unit: Option<()>;
    pairs: HashMap<(u8, u8), String>;
    json: serde_json::Value;
    skips: Vec<Skips>;
    kinds: Vec<Kinds>;
    results: Vec<Result<u8, String>>;
}

/// Passes a value through, which must come back as it was.
macro_rules! survives {
    ($bench:expr, $module:ident, $value:expr, $same:expr) => {{
        let value = $value;
        let id = format!("{}-{}", stringify!($module), $bench.world.ledger().len());
        let run = $bench.runtime.start(&id, $module::through(value.clone())).await.unwrap();
        let back = run.output().await.unwrap_or_else(|e| panic!("{}: {e}", stringify!($module)));
        assert!($same(&back, &value), "{}: {value:?} came back as {back:?}", stringify!($module));
        // The same again after a restart, with an equal argument.
        replays(&$bench.tape(&id), &$bench.clock, 2).await.unwrap();
        let again = $bench.runtime.start(&id, $module::through(value.clone())).await.unwrap().output().await.unwrap();
        assert!($same(&again, &value), "{}: {value:?} is {again:?} now", stringify!($module));
        // As a signal, and as what a reader is shown.
        let id = format!("{id}-told");
        let run = $bench.runtime.start(&id, $module::is_told()).await.unwrap();
        run.signal("value", &value).await.unwrap();
        let back = run.returned().await.unwrap();
        assert!($same(&back, &value), "{}: {value:?} came as {back:?}", stringify!($module));
        let mut shown = value.clone();
        shown.clone_from(&run.published("value").await.unwrap().unwrap());
        assert!($same(&shown, &value), "{}: {value:?} is shown as {shown:?}", stringify!($module));
        replays(&$bench.tape(&id), &$bench.clock, 2).await.unwrap();
    }};
}

fn equal<T: PartialEq>(a: &T, b: &T) -> bool {
    a == b
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_values_come_back_equal_bit_by_bit() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let bits = |a: &Vec<f64>, b: &Vec<f64>| a.iter().map(|f| f.to_bits()).eq(b.iter().map(|f| f.to_bits()));
        let odd_nan = f64::from_bits(0x7ff8_0000_0000_0123);
        let floats =
            vec![f64::NAN, odd_nan, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1, f64::MIN_POSITIVE / 3.0, f64::MAX];
        survives!(bench, floats, floats, bits);
        let small = |a: &Vec<f32>, b: &Vec<f32>| a.iter().map(|f| f.to_bits()).eq(b.iter().map(|f| f.to_bits()));
        survives!(bench, small_floats, vec![0.1_f32, -0.0, f32::NAN, f32::MIN_POSITIVE / 2.0, 16_777_217.0], small);
        survives!(bench, wide, (u64::MAX, i64::MIN, u128::MAX, i128::MIN), equal);
        survives!(bench, wide, ((1 << 53) + 1, -(1 << 53) - 1, 1 << 64, -(1 << 100)), equal);
        let crabs = "🦀".repeat(40);
        let texts = ["\0", "", "a\0b", "\u{d7ff}\u{e000}", "\u{feff}bom", "\r\n", "\u{202e}abc", &crabs];
        survives!(bench, texts, texts.map(str::to_owned).to_vec(), equal);
        let border = (0xd7f0..=0xe010).filter_map(char::from_u32).collect::<Vec<_>>();
        survives!(bench, letters, border, equal);
        survives!(bench, bytes, (0..=255).collect::<Vec<u8>>(), equal);
        survives!(bench, unit, (), equal);
        survives!(bench, option, None, equal);
        survives!(bench, option, Some(0), equal);
        survives!(bench, nested, None, equal);
        survives!(bench, nested, Some(Some(3)), equal);
        survives!(bench, pairs, HashMap::from([((0, 255), "a".to_owned()), ((255, 0), "b".to_owned())]), equal);
        let doc = serde_json::json!({ "a": null, "A": 1, "a ": 2, "": [], "n": u64::MAX, "f": 1.0, "deep": [[[{}]]] });
        survives!(bench, json, doc, equal);
        let skips = [(None, vec![]), (Some(0), vec![0])].map(|(a, b)| Skips { a, b, c: 1 }).to_vec();
        survives!(bench, skips, skips, equal);
        let kinds = vec![
            Kinds::Unit,
            Kinds::New(vec![]),
            Kinds::Pair(-128, None),
            Kinds::Pair(1, Some(String::new())),
            Kinds::Named { f: -0.0, t: (0, '\0') },
        ];
        survives!(bench, kinds, kinds, equal);
        survives!(bench, results, vec![Ok(1), Err(String::new())], equal);
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStringExt;
            survives!(bench, os, OsString::from_vec(vec![b'a', 0xff, 0, 0x80]), equal);
        }
    }
}

// ---- values that are refused ----

/// What an effect gives back.
#[durable::effect(idempotent)]
async fn gives_nested(cx: &EffectContext, #[resource] world: &World) -> durable::Result<Option<Option<u32>>> {
    world.note(cx, "");
    Ok(Some(None))
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    lines: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    note: Option<Option<String>>,
}

#[durable::effect(idempotent)]
async fn takes_order(cx: &EffectContext, #[resource] world: &World, order: Order) -> durable::Result<usize> {
    world.note(cx, "");
    Ok(order.lines.len())
}

#[durable::effect(idempotent)]
async fn gives_order(cx: &EffectContext, #[resource] world: &World) -> durable::Result<Order> {
    world.note(cx, "");
    Ok(Order { lines: vec![Entry { note: None }, Entry { note: Some(None) }] })
}

/// Another text each time.
#[derive(Debug)]
struct Fickle;

static TIMES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

impl Serialize for Fickle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TIMES.fetch_add(1, std::sync::atomic::Ordering::SeqCst).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fickle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u32::deserialize(deserializer).map(|_| Fickle)
    }
}

/// Refuses to be written, at length.
#[derive(Debug, Deserialize)]
struct Refuses;

impl Serialize for Refuses {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not today ".repeat(8_000_000)))
    }
}

#[durable::effect(idempotent)]
async fn gives_fickle(cx: &EffectContext, #[resource] world: &World) -> durable::Result<Fickle> {
    world.note(cx, "");
    Ok(Fickle)
}

#[durable::effect(idempotent, retry(attempts = 5, first = "1s"))]
async fn gives_refusal(cx: &EffectContext, #[resource] world: &World) -> durable::Result<Refuses> {
    world.note(cx, "");
    Ok(Refuses)
}

#[durable::effect(at_most_once)]
async fn fails_with_refusal(cx: &EffectContext, #[resource] world: &World) -> Result<u32, Torn> {
    world.note(cx, "");
    Err(Torn { kept: Some(None) })
}

#[derive(Debug, Serialize, Deserialize)]
struct Torn {
    kept: Option<Option<u8>>,
}

impl From<durable::Fault> for Torn {
    fn from(fault: durable::Fault) -> Torn {
        assert_eq!(fault.kind(), "not_recordable");
        Torn { kept: Some(Some(42)) }
    }
}

#[durable::effect(idempotent)]
async fn takes_refusal(cx: &EffectContext, #[resource] world: &World, refuses: Refuses) -> durable::Result<u32> {
    let _ = refuses;
    world.note(cx, "");
    Ok(1)
}

/// Gives what the error says.
#[durable::workflow]
async fn told(which: String) -> String {
    let failure = match which.as_str() {
        "nested" => gives_nested().await.map(drop),
        "order" => gives_order().await.map(drop),
        "fickle" => gives_fickle().await.map(drop),
        "refusal" => gives_refusal().await.map(drop),
        "order in" => takes_order(Order { lines: vec![Entry { note: Some(None) }] }).await.map(drop),
        "refusal in" => takes_refusal(Refuses).await.map(drop),
        _ => return fails_with_refusal().await.map_or_else(|torn| format!("{torn:?}"), |n| n.to_string()),
    };
    failure.map_or_else(|f| format!("{}: {f}", f.kind().unwrap_or("no kind")), |()| "nothing wrong".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_recorded_is_an_error_that_names_the_field_and_no_body_is_repeated() {
    // What is asked, what the workflow is told, and how many bodies ran.
    let cases = [
        ("nested", vec!["not_recordable: `gives_nested` is not recordable", "Option"], 1),
        ("order", vec!["`gives_order` is not recordable", "lines[1].note"], 1),
        ("fickle", vec!["`gives_fickle` is not recordable", "comes back as"], 1),
        ("refusal", vec!["`gives_refusal` is not recordable", "not today"], 1),
        ("order in", vec!["`takes_order` is not recordable: its arguments", "order.lines[0].note"], 0),
        ("refusal in", vec!["`takes_refusal` is not recordable: its arguments", "not today"], 0),
        ("torn", vec!["Torn { kept: Some(Some(42)) }"], 1),
    ];
    for backend in BOTH {
        for (which, parts, bodies) in &cases {
            let bench = Bench::on(backend).await;
            let run = bench.runtime.start("told", told((*which).into())).await.unwrap();
            bench.end("told").await.unwrap();
            let text = run.returned().await.unwrap();
            for part in parts {
                assert!(text.contains(part), "{which}: {part} is not in {}", &text[..text.len().min(500)]);
            }
            assert!(text.len() < 20_000, "{which}");
            assert_eq!(bench.world.ledger().len(), *bodies, "{which}");
            replays(&bench.tape("told"), &bench.clock, 5).await.unwrap();
            let log = bench.log("told").await;
            let result = log.iter().find(|entry| entry.name == "effect.result").unwrap();
            assert!(result.get("fault").is_some(), "a small outcome says so: {result}");
        }
    }
}

#[durable::workflow]
async fn ends_with(which: String) -> durable::Result<Option<Option<u32>>> {
    match which.as_str() {
        "nested" => Ok(Some(None)),
        "refusal" => Err(durable::Failure::new("\0 \u{d7ff} \"quoted\" \n").with_value(&f64::NAN)),
        _ => Ok(None),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_result_that_cannot_be_recorded_parks_the_run_and_odd_error_texts_survive() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("nested", ends_with("nested".into())).await.unwrap();
        let error = bench.parked("nested").await;
        assert_eq!(error.code(), Code::ResultNotRecordable);
        for part in ["run nested is parked", "its result", "Option", "return a value that can be recorded"] {
            assert!(error.to_string().contains(part), "{part} is not in {error}");
        }
        bench.stands("nested").await;
        let run = bench.runtime.start("refusal", ends_with("refusal".into())).await.unwrap();
        let failure = run.returned().await.unwrap().unwrap_err();
        assert_eq!(failure.message(), "\0 \u{d7ff} \"quoted\" \n");
        assert_eq!(failure.value().unwrap(), "NaN");
        bench.replays("refusal").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_argument_of_a_workflow_that_cannot_be_recorded_is_refused_by_start() {
    let bench = Bench::on(Backend::Memory).await;
    let error = bench.runtime.start("refused", nested::through(Some(None))).await.unwrap_err();
    assert_eq!(error.code(), Code::ArgumentNotRecordable);
    for part in ["an argument of workflow through cannot be recorded", "`value`"] {
        assert!(error.to_string().contains(part), "{part} is not in {error}");
    }
    assert!(bench.runtime.start("refused", option_of_unit::through(Some(()))).await.is_err());
    let told = bench.runtime.start("told", option_of_unit::is_told()).await.unwrap();
    assert_eq!(told.signal("value", &Some(())).await.unwrap_err().code(), Code::ArgumentNotRecordable);
    assert!(bench.runtime.run("refused").await.unwrap_err().is_not_found());
    // JSON that no number can say is refused by the parser, before it gets anywhere.
    assert!(serde_json::from_str::<serde_json::Value>("1e400").is_err());
}
