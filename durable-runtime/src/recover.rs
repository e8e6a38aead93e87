//! What to do with an effect that an earlier life called and whose outcome is not known: a pure decision.

use crate::{contract::Contract, fold::EffectStep};

/// How often an effect without `retry(..)` is run again because its process died.
pub const REPEATS_AFTER_CRASH_MAX: u32 = 5;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recover {
    /// Call it again when a slot is free.
    RunAgain,
    /// It is in doubt: reconcile, hold, or an error, as its attribute says.
    InDoubt,
    /// It has been begun as often as it may be: a fault.
    UsedUp,
    /// Nobody waits for it, and nobody could notice whether it ran.
    Nothing,
}

/// Decides. `wanted`: somebody waits for the outcome. `attempts`: of the code's `retry(..)`.
pub(crate) fn recover(step: &EffectStep, wanted: bool, attempts: Option<u32>) -> Recover {
    let most = attempts.unwrap_or(1 + REPEATS_AFTER_CRASH_MAX);
    match step.contract {
        Contract::ReadOnly if !wanted => Recover::Nothing,
        Contract::AtMostOnce => Recover::InDoubt,
        _ if !wanted => Recover::InDoubt,
        _ if step.begun < most => Recover::RunAgain,
        _ => Recover::UsedUp,
    }
}
