//! What to do with an effect that an earlier life called and whose outcome is not known: a pure decision.

use crate::{contract::Contract, fold::EffectStep};

/// How often an effect without `retry(..)` is run again because its process died.
pub const REPEATS_AFTER_CRASH_MAX: u32 = 5;

/// Why an attempt is in doubt whose process left neither an outcome nor a word.
pub(crate) const GONE: &str = "the process that ran it is gone";

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fold::{Called, SetAside},
        id::Seq,
    };

    #[track_caller]
    fn check(contract: Contract, begun: u32, wanted: bool, attempts: Option<u32>, expected: Recover) {
        let step = EffectStep {
            called: Called::default(),
            contract,
            begun,
            called_seq: Seq(1),
            called_at: 0,
            set_aside: SetAside::default(),
        };
        assert_eq!(recover(&step, wanted, attempts), expected);
    }

    #[test]
    fn a_call_that_must_not_be_repeated_is_in_doubt() {
        check(Contract::AtMostOnce, 1, true, None, Recover::InDoubt);
        check(Contract::AtMostOnce, 1, false, None, Recover::InDoubt);
    }

    #[test]
    fn what_may_be_repeated_runs_again_while_attempts_are_left() {
        for contract in [Contract::ReadOnly, Contract::Idempotent, Contract::Keyed] {
            check(contract, 1, true, None, Recover::RunAgain);
            check(contract, REPEATS_AFTER_CRASH_MAX, true, None, Recover::RunAgain);
            check(contract, REPEATS_AFTER_CRASH_MAX + 1, true, None, Recover::UsedUp);
            check(contract, 2, true, Some(3), Recover::RunAgain);
            check(contract, 3, true, Some(3), Recover::UsedUp);
            check(contract, 1, true, Some(1), Recover::UsedUp);
        }
    }

    #[test]
    fn what_nobody_waits_for_is_in_doubt_if_the_world_could_notice_it() {
        check(Contract::ReadOnly, 1, false, None, Recover::Nothing);
        check(Contract::Idempotent, 1, false, None, Recover::InDoubt);
        check(Contract::Keyed, 9, false, Some(2), Recover::InDoubt);
    }
}
