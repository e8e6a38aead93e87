//! The effects of the simulation: one of each contract and policy. What their bodies do is decided by [`super::outside`].

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Serialize};

use super::{controls::Control, prog::CONTROL};
use crate::{
    clock::Millis,
    contract::{Contract, EffectMeta, Retry, WhenInDoubt, effect_id},
    effect::Invocation,
    failure::{Failure, Fault, Reconciled, Result},
    shape::{Shape, probe::Probe},
    steps::call::{EffectArgs, EffectCall},
    value::{KeyPart, Param},
};

/// What an effect returns when it fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Bad {
    /// The body said so.
    Said(u64),
    /// The engine found it.
    Found(Fault),
}

impl From<Fault> for Bad {
    fn from(fault: Fault) -> Bad {
        Bad::Found(fault)
    }
}

/// What every effect, and the workflow, returns.
pub(super) type Out = std::result::Result<u64, Bad>;

#[expect(clippy::needless_borrow, reason = "the references choose the implementation")]
pub(super) fn shape(probe: Probe<Out>) -> Shape<Out> {
    use crate::shape::probe::*;
    (&&&probe).shape((&&&probe).text())
}

/// What a body does when it ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Says {
    Value(u64),
    Error(u64),
    Doubt,
    Panic,
}

thread_local! {
    /// What the body that is polled next says.
    pub(super) static SAYS: RefCell<Option<Says>> = const { RefCell::new(None) };
    /// What the reconcile function that is polled next answers.
    pub(super) static ANSWERS: RefCell<Option<Result<Reconciled<u64>>>> = const { RefCell::new(None) };
    /// The binary is one in which what undoes is missing.
    pub(super) static NOTHING_UNDOES: Cell<bool> = const { Cell::new(false) };
}

/// The number of the asking operation in the program.
pub(super) const NO: Param<u64> = Param::new("no");
/// All that any branch of the code has seen so far.
pub(super) const SEEN: Param<u64> = Param::new("seen");
/// What makes arguments too long to be recorded.
const PAD: Param<String> = Param::new("pad");

/// A request of a dead or dropped body is under way for less than this.
pub(super) const UNDER_WAY_MS: u64 = 200;
/// Longer than [`UNDER_WAY_MS`], and than any body that is late.
pub(super) const SETTLE_MS: u64 = 450;
/// Longest time of one attempt.
pub(super) const TIMEOUT_MS: u64 = 60;

const fn effect(name: &'static str, contract: Contract, attempts: u32, in_doubt: WhenInDoubt) -> EffectMeta {
    EffectMeta {
        name,
        explicit_name: true,
        function: name,
        module: "sim",
        file: "sim/effects.rs",
        line: 1,
        id: effect_id(name),
        contract,
        in_doubt,
        kind: None,
        retry: match attempts {
            0 => None,
            _ => Some(Retry { attempts, first_ms: 8, max_ms: 30, factor: 2.0 }),
        },
        timeout_ms: if contract.is_outward() || attempts > 0 { Some(TIMEOUT_MS) } else { None },
        params: &["no", "seen"],
        resources: &[],
        returns: || shape(Probe::new()).returns(),
        run: |call| {
            Box::pin(async move {
                call.arg(&NO)?;
                call.arg(&SEEN)?;
                let out = match SAYS.take() {
                    Some(Says::Value(value)) => Ok(value),
                    Some(Says::Error(error)) => Err(Bad::Said(error)),
                    Some(Says::Doubt) => Err(call.context().in_doubt("it does not know").into()),
                    // Not `panic!`: the hook would print each of thousands.
                    Some(Says::Panic) | None => std::panic::resume_unwind(Box::new("the body panicked")),
                };
                Ok(call.end(shape, out, None))
            })
        },
    }
}

const fn reconcile(settle_ms: u64) -> WhenInDoubt {
    WhenInDoubt::Reconcile {
        settle_ms,
        run: |call: Invocation| {
            Box::pin(async move {
                let answer = ANSWERS.take().unwrap_or_else(|| Err(Failure::new("nobody answers")));
                Ok(call.reconciled(shape, answer))
            })
        },
    }
}

/// Every sort of effect.
pub(super) static SORTS: [EffectMeta; 11] = [
    effect("look", Contract::ReadOnly, 0, WhenInDoubt::Hold),
    effect("look_often", Contract::ReadOnly, 3, WhenInDoubt::Hold),
    effect("set", Contract::Idempotent, 0, WhenInDoubt::Hold),
    effect("set_often", Contract::Idempotent, 3, WhenInDoubt::Hold),
    effect("pay", Contract::Keyed, 0, WhenInDoubt::Hold),
    effect("pay_often", Contract::Keyed, 4, WhenInDoubt::Hold),
    effect("pay_once", Contract::Keyed, 1, WhenInDoubt::Hold),
    effect("pay_order", Contract::Keyed, 3, WhenInDoubt::Hold),
    effect("wire", Contract::AtMostOnce, 0, WhenInDoubt::Hold),
    effect("wire_asking", Contract::AtMostOnce, 0, reconcile(SETTLE_MS)),
    effect("wire_daring", Contract::AtMostOnce, 0, WhenInDoubt::Error),
];

/// The place of `wire_asking`.
pub(super) const ASKING: usize = 9;

/// What undoes something.
static UNDOS: [EffectMeta; 8] = [
    effect("unset", Contract::Idempotent, 3, WhenInDoubt::Hold),
    effect("unpay", Contract::Keyed, 0, WhenInDoubt::Hold),
    effect("unpay_often", Contract::Keyed, 3, WhenInDoubt::Hold),
    effect("unpay_often", Contract::Keyed, 3, WhenInDoubt::Hold),
    effect("unwire", Contract::AtMostOnce, 0, WhenInDoubt::Hold),
    effect("unwire_asking", Contract::AtMostOnce, 0, reconcile(SETTLE_MS)),
    effect("unwire_daring", Contract::AtMostOnce, 0, WhenInDoubt::Error),
    effect("unlook", Contract::ReadOnly, 3, WhenInDoubt::Hold),
];

/// A null control's `wire_asking`: it asks at once, while requests of a dead body may still be under way.
static UNSETTLED: EffectMeta = effect("wire_asking", Contract::AtMostOnce, 0, reconcile(0));

/// A null control's `pay_often`: as often as it takes.
static UNLIMITED: EffectMeta = effect("pay_often", Contract::Keyed, 50, WhenInDoubt::Hold);

/// A null control's effects: without a limit in time.
static ENDLESS: [EffectMeta; 3] = [
    endless(effect("set", Contract::Idempotent, 0, WhenInDoubt::Hold)),
    endless(effect("pay", Contract::Keyed, 0, WhenInDoubt::Hold)),
    endless(effect("wire", Contract::AtMostOnce, 0, WhenInDoubt::Hold)),
];

const fn endless(meta: EffectMeta) -> EffectMeta {
    EffectMeta { timeout_ms: None, ..meta }
}

/// A sort of effect, or what a null control makes of it.
pub(super) fn sort(i: usize, control: Control) -> &'static EffectMeta {
    let meta = &SORTS[i % SORTS.len()];
    match control {
        Control::NoSettle if meta.name == UNSETTLED.name => &UNSETTLED,
        Control::AttemptsIgnored if meta.name == UNLIMITED.name => &UNLIMITED,
        Control::NoTimeout => ENDLESS.iter().find(|endless| endless.name == meta.name).unwrap_or(meta),
        _ => meta,
    }
}

/// All effects by name.
pub(super) fn find(name: &str, _: &str) -> Option<&'static EffectMeta> {
    let undoes = UNDOS.iter().find(|meta| meta.name == name).filter(|_| !NOTHING_UNDOES.get());
    undoes.or_else(|| SORTS.iter().find(|meta| meta.name == name))
}

/// Whether it is one of those that undo something.
pub(super) fn undoes(meta: &EffectMeta) -> bool {
    UNDOS.iter().any(|undo| undo.name == meta.name)
}

/// How long a request may be under way, as far as the effect says so.
pub(super) fn settle_ms(name: &str) -> Option<Millis> {
    match find(name, "")?.in_doubt {
        WhenInDoubt::Reconcile { .. } if CONTROL.get() == Control::UndoNoSettle => Some(0),
        WhenInDoubt::Reconcile { settle_ms, .. } => Some(settle_ms),
        _ => None,
    }
}

/// The call that undoes what operation `no` did when the code had seen `seen`.
pub(super) fn undoing(i: usize, no: u64, seen: u64) -> EffectCall<Out> {
    EffectArgs::new(&UNDOS[i % UNDOS.len()]).arg(&NO, &no).arg(&SEEN, &seen).call()
}

/// The call that operation `no` makes of a sort.
pub(super) fn call(meta: &'static EffectMeta, no: u64, seen: u64, too_long: bool) -> EffectCall<Out> {
    let mut args = EffectArgs::new(meta).arg(&NO, &no).arg(&SEEN, &seen);
    if too_long {
        args = args.arg(&PAD, &"x".repeat(super::world::VALUE_BYTES_MAX));
    }
    if meta.name == "pay_order" {
        args = key(key(args, &no, ':').key_text(":"), &seen, '\0');
    }
    args.call()
}

fn key<T: KeyPart>(args: EffectArgs, value: &T, end: char) -> EffectArgs {
    args.key_value(value, end)
}
