//! Write an AI agent's run as an ordinary `async fn`. It survives crashes, and pays once.
//!
//! A run is a long chain of expensive, irreversible actions. When the process dies in the middle, starting over pays
//! twice, and replaying blindly charges the card twice. With this crate the run resumes where it stopped: no step whose
//! outcome is on disk runs again, and the contract that each effect declares (what a repeat of it would do) holds at
//! whatever instant the process is killed. What would break replay does not compile where the compiler can see it, and
//! elsewhere parks the run with an exact explanation, nothing lost.
//!
//! ```standalone_crate
//! use durable::{EffectContext, Runtime};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { id: String, cents: u64 }
//!
//! struct Gateway;
//! impl Gateway {
//!     async fn refund(&self, order: &str, cents: u64, key: &str) -> std::io::Result<String> {
//!         Ok(format!("refunded {cents} cents of {order} under {key}"))
//!     }
//! }
//!
//! #[durable::effect(read_only)]
//! async fn search_policy(query: &str) -> durable::Result<String> {
//!     Ok(format!("{query}: 30 days"))
//! }
//!
//! #[durable::effect(key = "{order_id}:refund:{cents}", retry(attempts = 5))]
//! async fn process_refund(
//!     cx: &EffectContext,
//!     #[resource] gateway: &Gateway,
//!     order_id: &str,
//!     cents: u64,
//! ) -> durable::Result<String> {
//!     Ok(gateway.refund(order_id, cents, cx.idempotency_key()).await?)
//! }
//!
//! #[durable::workflow]
//! async fn refund_agent(order: Order) -> durable::Result<String> {
//!     let policy = search_policy("refund window").await?; // step 0
//!     let cents = if policy.contains("30 days") { order.cents } else { 0 }; // plain code: runs again on replay
//!     process_refund(&order.id, cents).await // step 1
//! }
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     # let dir = tempfile::tempdir()?;
//!     # std::env::set_current_dir(&dir)?;
//!     let runtime = Runtime::builder().resource(Gateway).open("agents.db").await?; // unfinished runs go on by themselves
//!     let run = runtime.start("run-7f3a", refund_agent(Order { id: "ORD-3300".into(), cents: 18_000 })).await?;
//!     println!("{}", run.output().await?); // the same id twice is the same run
//!     runtime.shutdown(std::time::Duration::from_secs(10)).await?; // bodies under way get that long
//!     Ok(())
//! }
//! ```
//!
//! **One idea: a workflow awaits steps and nothing else.** Calling an effect runs nothing; it makes an [`EffectCall`],
//! plain data, that becomes a numbered step of the run when the workflow awaits it. Steps are [`EffectCall`],
//! [`WorkflowCall`], [`Part`], `async {}` blocks ([`Branch`]), and what these functions make: [`sleep`], [`sleep_until`],
//! [`now`], [`random`], [`uuid`], [`version`], [`join`], [`try_join`], [`join_all`], [`try_join_all`], [`race`],
//! [`timeout`], [`begin`], [`Set::next`], and those of the next section.
//!
//! The contracts are described at [`macro@effect`], the guarantees and the non-guarantees in the README.
//!
//! # Waiting, other runs, ending
//!
//! A run that only waits leaves memory, and costs nothing until it is woken. All of these are steps: recorded, and the same on every
//! replay.
//!
//! | | |
//! |---|---|
//! | [`signal`], [`signals`] | a message from outside ([`Run::signal`](AnyRun::signal), [`Runtime::signal_or_start`]) or from another run; all that are there |
//! | [`ask`] | a person's yes or no, with a deadline; [`Runtime::questions`] and [`Runtime::answer`] are the other side |
//! | [`spawn`] | a child run, and a [`Child`] to await; cancelled when this one does not want it any more |
//! | [`send`], [`publish`] | a message to another run; a value for whoever looks ([`Run::published`](AnyRun::published)) |
//! | [`undo`] | a call that is made if the run fails or is cancelled, whatever the code is by then |
//! | [`restart_as`] | goes on in a fresh log, under the same id |
//! | [`shield`], [`cancelled`] | keeps a cancel ([`Run::cancel`](AnyRun::cancel)) away from what must not be left half done; hears of it |
//!
//! Cancelling is dropping, at a place in the log: nothing is handed to the code as an `Err`. From there on nothing new is asked outside of
//! a [`shield`] but [`undo`]; bodies of effects that are under way are told ([`EffectContext::cancelled`]), and what they did is
//! still recorded and delivered; then the code is dropped, children are waited for, and what was registered with [`undo`] is called, the
//! last first.

pub use durable_macros::{effect, part, workflow};

// Opening a store and its runs.
pub use durable_runtime::{BODIES_AT_ONCE, Builder, LOG_ENTRIES_WARN, Runtime, ShutdownReport, VALUE_BYTES_MAX};

// Runs, and what can be said of them.
pub use durable_runtime::{
    AnyRun, Attempt, DEATHS_MAX, Filter, Finding, FindingKind, Generation, Hold, LogEntry, OpenQuestion, Parked,
    Resolution, Resolved, Run, RunId, RunIdError, RunInfo, RunningBody, Seq, Status, StatusKind, StatusKindError,
    StepKind, StepNo, StepState, StepView, UnreadMessage,
};

// What is asked of runs from outside.
pub use durable_runtime::{AnswerRequest, Answered, CancelRequest, Reply, SignalOrStart, SignalRequest};

// What workflows and effects are made of.
pub use durable_runtime::{
    Branch, Contract, EffectCall, EffectContext, KeyPart, Part, REPEATS_AFTER_CRASH_MAX, Reconciled, Recordable, Step,
    StepInfo, WorkflowCall, WorkflowInfo, untracked, workflows,
};

// Steps.
pub use durable_runtime::{
    Begin, Beginning, Begun, Fact, Join, JoinAll, Next, Race, Racing, Random, Set, Sleep, Timeout, Together, TryJoin,
    TryJoinAll, TryTogether, begin, join, join_all, now, race, random, sleep, sleep_until, timeout, try_join,
    try_join_all, uuid, version,
};

// Steps that wait for the world outside, or tell it something; other runs; the end.
pub use durable_runtime::{
    Answer, Asking, Cancelled, Child, Publishing, Question, Restarting, Sending, Shield, Signal, Signals, Spawn,
    Spawning, Undo, Undoing, ask, cancelled, publish, restart_as, send, shield, signal, signals, spawn, undo,
};

// Errors.
pub use durable_runtime::{Code, Elapsed, Error, Failure, Fault, Result, StoreError, ValueError, ValueErrorKind};

// Clocks, stores and recorded values.
pub use durable_runtime::{Clock, Durability, Millis, RUN_ID_BYTES_MAX, StoreId, SystemClock, TestClock, Value, store};

#[doc(hidden)]
pub use durable_runtime::rt as __rt;

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
