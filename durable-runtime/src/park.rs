//! Why a run is parked, in words: the reason, both sides where there are two, and the one next action.

use std::sync::Arc;

use crate::{
    clock::{Millis, system_time},
    contract::Site,
    core::Stop,
    error::{Code, Parked, divergence_why},
    head::ParkedInfo,
    id::Seq,
    script::place,
    store::StoreError,
};

/// How often a run's replay may kill the process before the run is set aside.
pub const DEATHS_MAX: u32 = 5;

const RETRY_WITH_CODE: &str = "open the store with code that fits the log, or put the old code back";

impl ParkedInfo {
    pub(crate) fn of(stop: &Stop, since: Millis) -> ParkedInfo {
        let (code, why, next) = match stop {
            Stop::Diverged(d) => (
                Code::Diverged,
                divergence_why(d),
                match d.asked_at.is_some() && d.asked_at == d.recorded_at {
                    true => "the same call was given something else: if the code has not changed, what it is given differs from \
                             replay to replay (the order of a HashSet or HashMap, a global); give it what does not, such as a \
                             BTreeSet. If the code has changed, put the old code back, or guard the change with \
                             durable::version; then open the store again"
                        .to_owned(),
                    false => "put the old code back, or guard the change with durable::version; then open the store again".to_owned(),
                },
            ),
            Stop::Store(e @ StoreError::Damaged { .. }) => {
                (Code::LogDamaged, format!("its log cannot be read: {e}"), RESTORE.to_owned())
            }
            Stop::Store(e) => (
                Code::StorageFailed,
                format!("its log cannot be read: {e}"),
                "see to the store's medium; then call retry, or open the store again".to_owned(),
            ),
            Stop::Entry(seq, e) => (Code::LogDamaged, format!("its log is damaged at seq {seq}: {e}"), RESTORE.to_owned()),
            Stop::Illegal(e) => (Code::LogDamaged, format!("its log is no legal history: {e}"), RESTORE.to_owned()),
            Stop::Undecodable { step, site, error } => (
                Code::Undecodable,
                format!("a recorded value of {step}{} does not decode: {error}", at(*site)),
                format!("make the type take the recorded form (serde's default, alias, Option); then {RETRY_WITH_CODE}"),
            ),
            Stop::Fault { step, site, fault } => (
                Code::FaultNotTaken,
                format!("{step}{}: {fault}; its error type takes no durable::Fault", at(*site)),
                "implement From<durable::Fault> for the effect's error type, or use durable::Failure; then open the store again"
                    .to_owned(),
            ),
            Stop::Unrecordable { reason } => (
                Code::ResultNotRecordable,
                format!("the workflow returned, but {reason}"),
                format!("return a value that can be recorded; then {RETRY_WITH_CODE}"),
            ),
            Stop::EntryUnrecordable { reason, after } => (
                Code::ValueNotRecordable,
                format!("what the workflow has asked cannot be recorded, {}: {reason}", after_step(*after)),
                format!("give shorter names and values; then {RETRY_WITH_CODE}"),
            ),
            Stop::ValueUnrecordable { what, site, reason } => (
                Code::ValueNotRecordable,
                format!("{what} cannot be recorded{}: {reason}", at(Some(*site))),
                format!("give a value that can be recorded; then {RETRY_WITH_CODE}"),
            ),
            Stop::Idle { after } => (
                Code::WaitsForNothing,
                format!("the workflow waits for nothing that could ever come, {}", after_step(*after)),
                "mend the code (a race without steps, a set that nothing was added to) and open the store again; or cancel the run"
                    .to_owned(),
            ),
            Stop::NoEffect { effect, module } => (
                Code::EffectMissing,
                format!("what is to be undone next needs effect {effect} of module {module}, which is not in this binary"),
                "open the store with a binary that has that effect".to_owned(),
            ),
            Stop::Foreign { after } => (
                Code::ForeignAwait,
                format!("the workflow awaited a future that is no step, {}", after_step(*after)),
                "move what it awaits into an effect; then open the store again".to_owned(),
            ),
            Stop::Panicked { message, after } => (
                Code::Panicked,
                format!("the workflow's code panicked, {}: {message}", after_step(*after)),
                "mend the code and open the store again, or call retry if the cause was outside".to_owned(),
            ),
        };
        ParkedInfo { code: code as u16, since, why, next }
    }

    pub(crate) fn rejected(seq: Seq, reason: &Arc<str>, since: Millis) -> ParkedInfo {
        ParkedInfo {
            code: Code::RecordRejected as u16,
            since,
            why: format!("the store will never take the record at seq {seq}: {reason}"),
            next: "call retry: the step that it belongs to then ends as not recordable".to_owned(),
        }
    }

    /// Whether a restart does not change it.
    pub(crate) fn is_for_a_person(&self) -> bool {
        self.code == Code::RecordRejected as u16
    }

    pub(crate) fn died(deaths: u32, since: Millis) -> ParkedInfo {
        ParkedInfo {
            code: Code::DiedInReplay as u16,
            since,
            why: format!("the process died {deaths} times while the run was replayed"),
            next: "find what its code does to the process (memory, abort, stack); then call retry".to_owned(),
        }
    }

    pub(crate) fn public(&self) -> Parked {
        Parked {
            code: Code::from_number(self.code).unwrap_or(Code::LogDamaged),
            why: self.why.clone(),
            next: self.next.clone(),
            since: system_time(self.since),
        }
    }
}

/// What to do about a log that is damaged.
pub(crate) const RESTORE: &str = "restore the store from a backup; the other runs are not concerned";

fn at(site: Option<&'static Site>) -> String {
    site.map(|site| format!(" (awaited at {})", place(site))).unwrap_or_default()
}

fn after_step(site: Option<&'static Site>) -> String {
    match site {
        Some(site) => format!("after step {} ({})", site.callee, place(site)),
        None => "before its first step".to_owned(),
    }
}
