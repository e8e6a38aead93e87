//! The engine of the crate `durable`. Use that one; this one has no stable interface of its own.

mod bodies;
mod builder;
mod by_step;
mod clock;
mod contract;
#[doc(hidden)]
pub mod control;
mod core;
mod drive;
mod effect;
mod entry;
mod error;
mod failure;
mod fold;
mod head;
mod id;
mod log;
mod mailbox;
mod park;
mod recover;
#[doc(hidden)]
pub mod rt;
mod runtime;
mod script;
mod shape;
#[cfg(test)]
mod sim;
mod steps;
pub mod store;
mod value;
mod view;
mod worker;

pub use builder::{BODIES_AT_ONCE, Builder, LOG_ENTRIES_WARN, StepInfo, VALUE_BYTES_MAX, WorkflowInfo, workflows};
pub use clock::{Clock, Millis, SystemClock, TestClock};
pub use contract::Contract;
pub use effect::EffectContext;
pub use error::{Code, Error, Parked};
pub use failure::{Elapsed, Failure, Fault, Reconciled, Result};
pub use id::{Attempt, Epoch, Generation, RUN_ID_BYTES_MAX, RunId, RunIdError, Seq, StepNo, StoreId};
pub use park::DEATHS_MAX;
pub use recover::REPEATS_AFTER_CRASH_MAX;
pub use runtime::{
    AnswerRequest, Answered, AnyRun, CancelRequest, Filter, Finding, FindingKind, Reply, Resolution, Resolved, Run,
    RunningBody, Runtime, ShutdownReport, SignalOrStart, SignalRequest,
};
pub use steps::{
    Step,
    ask::{Answer, Asking, Question, ask},
    begin::{Begin, Beginning, Begun, begin},
    branch::{Branch, Part},
    call::{EffectCall, WorkflowCall},
    cancel::{Cancelled, Shield, cancelled, shield},
    combine::{
        Join, JoinAll, Race, Racing, Timeout, Together, TryJoin, TryJoinAll, TryTogether, join, join_all, race,
        timeout, try_join, try_join_all,
    },
    fact::{Fact, Random, now, random, untracked, uuid, version},
    restart::{Restarting, restart_as},
    send::{Publishing, Sending, publish, send},
    set::{Next, Set},
    signal::{Signal, Signals, signal, signals},
    spawn::{Child, Spawn, Spawning, spawn},
    timer::{Sleep, sleep, sleep_until},
    undo::{Undo, Undoing, undo},
};
pub use store::{Durability, StoreError};
pub use value::{KeyPart, Recordable, Value, ValueError, ValueErrorKind};
pub use view::{
    Hold, LogEntry, OpenQuestion, RunInfo, Status, StatusKind, StatusKindError, StepKind, StepState, StepView,
    UnreadMessage,
};
