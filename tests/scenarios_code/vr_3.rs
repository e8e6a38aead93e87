//! O-VR-3: types change under recorded data.
//!
//! Both versions of an effect have one recorded name; which of them the workflow calls is the test's switch, as between two builds.
//! The replay tester for CI comes with that tool.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex},
};

use durable::{Code, EffectContext, Status};

use crate::support::{BOTH, Backend, Bench, World};

/// Which version the code of that run has now.
static VERSIONS: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);

fn set_version(run: &str, version: u32) {
    VERSIONS.lock().unwrap().insert(run.to_owned(), version);
}

fn version_of(run: &str) -> u32 {
    VERSIONS.lock().unwrap()[run]
}

/// One version of `quote`: its types and itself.
macro_rules! quote {
    ($module:ident, $contract:ident, [$($types:tt)*], ($($arg:ident: $arg_type:ty),*), $returns:expr) => {
        mod $module {
            use durable::EffectContext;
            use serde::{Deserialize, Serialize};

            use crate::support::World;

            $($types)*

            #[durable::effect($contract)]
            pub(super) async fn quote(cx: &EffectContext, #[resource] world: &World, $($arg: $arg_type),*) -> durable::Result<B> {
                $(let _ = &$arg;)*
                world.note(cx, stringify!($module));
                world.pass("quote").await;
                Ok($returns)
            }
        }
    };
}

quote!(v1, idempotent, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct A { pub(super) item: String }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) enum Kind { Spot, Future { days: u32 } }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32, pub(super) lines: Vec<Line>, pub(super) kind: Kind }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct Line { pub(super) text: String, pub(super) n: u32 }
], (a: A), B { cents: 250, lines: vec![Line { text: "x".into(), n: 1 }, Line { text: "y".into(), n: 2 }], kind: Kind::Future { days: 3 } });

/// Another version of the outcome's type, with the first version's argument.
macro_rules! outcome {
    ($module:ident, [$($types:tt)*], $returns:expr) => {
        quote!($module, idempotent, [
            #[derive(Debug, Serialize, Deserialize)]
            pub(super) struct A { pub(super) item: String }
            $($types)*
        ], (a: A), $returns);
    };
}

outcome!(gains_option, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u64, pub(super) note: Option<String> }
], B { cents: 1, note: None });
outcome!(gains_required, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32, pub(super) currency: String }
], B { cents: 1, currency: String::new() });
outcome!(loses_field, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32 }
], B { cents: 1 });
outcome!(narrower, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: i8 }
], B { cents: 1 });
outcome!(deep_required, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32, pub(super) lines: Vec<Line> }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct Line { pub(super) text: String, pub(super) price: u32 }
], B { cents: 1, lines: vec![Line { text: String::new(), price: 1 }] });
outcome!(variant_added, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) enum Kind { Spot, Swap, Future { days: u32 } }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32, pub(super) kind: Kind }
], B { cents: [Kind::Spot, Kind::Swap].len() as u32, kind: Kind::Future { days: 1 } });
outcome!(variant_removed, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) enum Kind { Spot }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32, pub(super) kind: Kind }
], B { cents: 1, kind: Kind::Spot });
outcome!(variant_renamed, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) enum Kind { Spot, Forward { days: u32 } }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32, pub(super) kind: Kind }
], B { cents: 1, kind: [Kind::Spot, Kind::Forward { days: 1 }].into_iter().next_back().unwrap() });

quote!(argument_field, idempotent, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct A { pub(super) item: String, pub(super) more: u32 }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32 }
], (a: A), B { cents: 1 });
quote!(argument_option, idempotent, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct A { pub(super) item: String, pub(super) more: Option<u32> }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32 }
], (a: A), B { cents: 1 });
quote!(argument_added, idempotent, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct A { pub(super) item: String }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32 }
], (a: A, urgent: bool), B { cents: 1 });
quote!(at_most_once, at_most_once, [
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct A { pub(super) item: String }
    #[derive(Debug, Serialize, Deserialize)]
    pub(super) struct B { pub(super) cents: u32 }
], (a: A), B { cents: 1 });

#[durable::effect(idempotent)]
async fn after(cx: &EffectContext, #[resource] world: &World, cents: u64) -> durable::Result<u64> {
    world.note(cx, cents);
    Ok(cents)
}

#[durable::workflow]
async fn quotes(run: String) -> durable::Result<u64> {
    let item = || "tea".to_owned();
    let cents = match version_of(&run) {
        1 => u64::from(v1::quote(v1::A { item: item() }).await?.cents),
        2 => {
            let b = gains_option::quote(gains_option::A { item: item() }).await?;
            b.cents + u64::from(b.note.is_some())
        }
        3 => {
            let b = gains_required::quote(gains_required::A { item: item() }).await?;
            u64::from(b.cents) + b.currency.len() as u64
        }
        4 => u64::from(loses_field::quote(loses_field::A { item: item() }).await?.cents),
        5 => u64::try_from(narrower::quote(narrower::A { item: item() }).await?.cents)?,
        6 => u64::from(deep_required::quote(deep_required::A { item: item() }).await?.cents),
        7 => u64::from(variant_added::quote(variant_added::A { item: item() }).await?.cents),
        8 => u64::from(variant_removed::quote(variant_removed::A { item: item() }).await?.cents),
        9 => u64::from(variant_renamed::quote(variant_renamed::A { item: item() }).await?.cents),
        10 => u64::from(argument_field::quote(argument_field::A { item: item(), more: 1 }).await?.cents),
        11 => u64::from(argument_option::quote(argument_option::A { item: item(), more: None }).await?.cents),
        12 => u64::from(argument_option::quote(argument_option::A { item: item(), more: Some(1) }).await?.cents),
        13 => u64::from(argument_added::quote(argument_added::A { item: item() }, true).await?.cents),
        _ => u64::from(at_most_once::quote(at_most_once::A { item: item() }).await?.cents),
    };
    after(cents).await
}

/// The first version's finished run.
async fn first_version(backend: Backend, id: &str) -> Bench {
    set_version(id, 1);
    let bench = Bench::on(backend).await;
    let run = bench.runtime.start(id, quotes(id.to_owned())).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 250);
    bench.replays(id).await;
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_outcome_decodes_or_parks_its_run_with_the_field() {
    // Version, and what the error says; `None`: it decodes.
    let cases: [(u32, Option<&[&str]>); 8] = [
        (2, None),
        (3, Some(&["Ok.currency", "missing field `currency`"])),
        (4, None),
        (5, Some(&["Ok.cents", "250"])),
        (6, Some(&["Ok.lines[0].price", "missing field `price`"])),
        (7, None),
        (8, Some(&["Ok.kind", "unknown variant `Future`"])),
        (9, Some(&["Ok.kind", "unknown variant `Future`", "`Forward`"])),
    ];
    for backend in BOTH {
        for (version, parts) in cases {
            let id = format!("outcome-{version}-{backend:?}");
            let bench = first_version(backend, &id).await;
            let tape = bench.tape(&id);
            set_version(&id, version);
            // Behind the outcome, and behind what was asked next.
            for cut in [3, 4] {
                let next = Bench::after(&tape, cut, &bench.clock).await;
                let Some(parts) = parts else {
                    next.end(&id).await.unwrap();
                    assert_eq!(next.world.bodies("quote"), 0);
                    next.replays(&id).await;
                    continue;
                };
                for n in 0..3 {
                    let error = next.parked(&id).await;
                    let text = error.to_string();
                    assert_eq!(error.code(), Code::Undecodable, "{text}");
                    for part in parts.iter().chain(&[&*format!("run {id} "), "a recorded value of quote", "vr_3.rs:"]) {
                        assert!(text.contains(part), "version {version}: {part} is not in {text}");
                    }
                    assert!(next.world.ledger().is_empty());
                    assert_eq!(next.tape(&id).frames, tape.frames[..cut]);
                    if n < 2 {
                        next.runtime.retry(&id).await.unwrap();
                    }
                }
                set_version(&id, 1);
                next.runtime.retry(&id).await.unwrap();
                next.end(&id).await.unwrap();
                assert_eq!(next.world.bodies("quote"), 0);
                set_version(&id, version);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_arguments_are_a_divergence_unless_the_new_ones_are_none() {
    for (version, same) in [(10, false), (11, true), (12, false), (13, false)] {
        let id = format!("argument-{version}");
        let bench = first_version(Backend::Memory, &id).await;
        let tape = bench.tape(&id);
        set_version(&id, version);
        for cut in [2, 3, 4] {
            let next = Bench::after(&tape, cut, &bench.clock).await;
            if same {
                // Also where the body must run once more, with the arguments that were recorded.
                next.end(&id).await.unwrap();
                continue;
            }
            let error = next.parked(&id).await;
            assert_eq!(error.code(), Code::Diverged, "{error}");
            assert!(next.world.ledger().is_empty());
            assert_eq!(next.tape(&id).frames, tape.frames[..cut]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recorded_contract_rules_for_a_call_that_was_begun() {
    // Begun as idempotent, and now at_most_once: it runs again.
    let bench = first_version(Backend::Memory, "contract").await;
    set_version("contract", 14);
    let next = Bench::after(&bench.tape("contract"), 2, &bench.clock).await;
    next.end("contract").await.unwrap();
    assert_eq!(next.world.inputs("quote"), ["at_most_once"]);
    next.replays("contract").await;
    // Begun as at_most_once, and now idempotent: it is held.
    let begun = Bench::on(Backend::Memory).await;
    begun.runtime.start("contract", quotes("contract".into())).await.unwrap().output().await.unwrap();
    set_version("contract", 4);
    let next = Bench::after(&begun.tape("contract"), 2, &bench.clock).await;
    next.until_status("contract", "held", |status| matches!(status, Status::Held { .. })).await;
    assert!(next.world.ledger().is_empty());
    next.stands("contract").await;
}
