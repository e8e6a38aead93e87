//! The attributes of the crate `durable`, which re-exports them: `#[durable::effect]`, `#[durable::workflow]` and
//! `#[durable::part]`. Use them from there; what they expand to names `::durable`.
//!
//! A function goes through the stages in this order: `parse` (what was written), `options`, `check` and `key` (the rules,
//! and their words), `steps` (the awaits of a body), `expand` and `meta` (what it becomes). All mistakes of a function are
//! said at once, and the function itself is always still there.

mod check;
mod errors;
mod expand;
mod forbidden;
mod key;
mod lifetimes;
mod meta;
mod model;
mod options;
mod parse;
mod steps;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes a function an effect: something that happens once in the world, and whose outcome is recorded.
///
/// Calling it runs nothing. It records the arguments and gives a `durable::EffectCall`, which a workflow awaits.
///
/// ```
/// # use durable::EffectContext;
/// # struct Gateway;
/// # impl Gateway { async fn refund(&self, _: &str, cents: u64, _: &str) -> Result<Receipt, PaymentError> { Ok(Receipt { cents }) } }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Receipt { cents: u64 }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # enum PaymentError { Declined }
/// #[durable::effect(key = "{order_id}:refund:{cents}", retry(attempts = 5))]
/// async fn refund(cx: &EffectContext, #[resource] gateway: &Gateway, order_id: &str, cents: u64) -> Result<Receipt, PaymentError> {
///     gateway.refund(order_id, cents, cx.idempotency_key()).await
/// }
/// ```
///
/// # Contracts
///
/// The process may die while the body runs. The contract says what a repeat would do then; one is required.
///
/// | contract | a repeat | after a crash |
/// |---|---|---|
/// | `read_only` | nobody outside could tell, but for its cost | runs again |
/// | `idempotent` | harmless, even late, overlapping its twin, or after later steps | runs again with the recorded arguments |
/// | `key = "{arg}:.."` | the provider knows the key and answers as the first time | runs again with the recorded key |
/// | `at_most_once` | harm | never runs again by itself |
///
/// *Keys.* A template names recorded arguments, which are shown by `Display` and escaped so that different arguments never
/// give one key; `{{` and `}}` are braces. Bare `key` uses the key that the engine makes, one per step of a run. The body
/// takes `cx: &EffectContext` and gives the provider `cx.idempotency_key()`.
///
/// *In doubt.* A step of an `at_most_once` effect whose outcome is not known waits for a person, unless it says
///
/// - `reconcile(path, settle = "2m")`: a function finds out. It is called with `&EffectContext` and then every other
///   parameter of the effect, resources included, and returns `durable::Result<Reconciled<T>>`. It is not asked before
///   `settle` has passed since this process first saw the doubt: a request of the dead process may still be under way.
///   `settle` must exceed the longest time that a request can travel, or that a process can be suspended.
/// - `in_doubt = error`: the workflow gets the doubt as an error; the error type must take a `durable::Fault`.
///
/// ```
/// # use durable::{EffectContext, Reconciled};
/// # struct Bank;
/// # impl Bank {
/// #     async fn wire(&self, _: &str, _: u64) -> durable::Result<u64> { Ok(7) }
/// #     async fn find(&self, _: &str, _: u64) -> durable::Result<Option<u64>> { Ok(Some(7)) }
/// # }
/// #[durable::effect(at_most_once, reconcile(find_wire, settle = "2m"))]
/// async fn wire(#[resource] bank: &Bank, account: &str, cents: u64) -> durable::Result<u64> {
///     bank.wire(account, cents).await
/// }
///
/// async fn find_wire(_: &EffectContext, bank: &Bank, account: &str, cents: u64) -> durable::Result<Reconciled<u64>> {
///     Ok(match bank.find(account, cents).await? {
///         Some(id) => Reconciled::Happened(id),
///         None => Reconciled::CannotHappen,
///     })
/// }
/// ```
///
/// # Options
///
/// - `name = ".."`: the recorded name, instead of the function's. Two of one name keep a runtime from opening.
/// - `retry(attempts = 5, first = "1s", max = "1m", factor = 2, if = path)`: an `Err` is followed by another attempt after
///   `first`, then after `factor` times the wait before, at most `max`. `attempts` is the number of bodies ever begun,
///   those that a crash ended included. `if` names a `fn(&E) -> bool`. Not for `at_most_once`. Without `retry` an `Err` is
///   final.
/// - `timeout = "30s"`: the longest time of one attempt; 5 minutes unless given, none for `read_only`.
/// - `kind = ".."`: free text for tables and metrics, such as `"chat"`.
///
/// Durations are whole numbers with a unit: `"500ms"`, `"30s"`, `"2m"`, `"1h"`, `"1d"`.
///
/// # Parameters
///
/// - `name: T`, recorded: `T` is serde's `Serialize` and `DeserializeOwned`. `&T` is lent from a copy, where `T: ToOwned`
///   (`&str`, `&[T]`, `&Path`, `&Order`).
/// - `#[model_text] name: T`, recorded, and worded by a model: it cannot be part of a key.
/// - `cx: &EffectContext`, from the engine.
/// - `#[resource] name: &T`, from `Runtime::builder().resource(..)`.
///
/// A `fn` that is not `async` runs on the pool for blocking work. Attributes below this one, such as
/// `#[tracing::instrument]`, are about the body.
#[proc_macro_attribute]
pub fn effect(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::effect(attribute.into(), item.into()).into()
}

/// Makes an `async fn` a workflow: a run of it survives the death of its process.
///
/// Calling it runs nothing: it gives a `durable::WorkflowCall`, which `Runtime::start` starts as a run, and which another
/// workflow may await in place.
///
/// ```
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Order { id: String, cents: u64 }
/// # #[durable::effect(read_only)]
/// # async fn search_policy(query: &str) -> durable::Result<String> { Ok(query.to_owned()) }
/// # #[durable::effect(idempotent)]
/// # async fn refund(order: &str, cents: u64) -> durable::Result<u64> { Ok(cents) }
/// # fn amount_owed(_: &str, order: &Order) -> u64 { order.cents }
/// #[durable::workflow]
/// async fn refund_agent(order: Order) -> durable::Result<String> {
///     let policy = search_policy("refund window").await?;
///     let cents = refund(&order.id, amount_owed(&policy, &order)).await?;
///     Ok(format!("refunded {cents} cents"))
/// }
/// ```
///
/// The body is ordinary Rust that awaits steps and nothing else: calls of effects, workflows and parts, and what
/// `durable` offers (`sleep`, `join`, `race`, `signal`, `ask`, `spawn`, ..). `async {}` in it becomes a branch, which is a step too. On
/// replay the body runs again from its beginning, and every step that is recorded returns what it returned before. So what
/// would come out otherwise the second time does not compile where the compiler can see it: clocks, randomness,
/// threads, files, the environment. What decides nothing may stand in `durable::untracked(|| ..)`.
///
/// An await may stand inside `vec!`, `format!`, `print!` and its kin, `write!`, `assert!` and its kin, `dbg!`, `panic!` and its
/// kin, and be what `matches!` looks at; from any other macro it must be taken out.
///
/// # Options
///
/// - `name = ".."`: the recorded name, instead of the function's.
#[proc_macro_attribute]
pub fn workflow(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::workflow(attribute.into(), item.into()).into()
}

/// Makes an `async fn` a part: a piece of workflows that may have any signature, and is never stored.
///
/// It may take `&self`, borrow and change what its caller has, be generic, and stand in a trait. Workflows and
/// other parts await it; its own body may await steps, under the same rules as a workflow's. On replay it simply runs again.
///
/// ```
/// # struct Agent { turns: u32 }
/// # #[durable::effect(read_only)]
/// # async fn chat(history: &[String]) -> durable::Result<String> { Ok(format!("reply {}", history.len())) }
/// impl Agent {
///     #[durable::part]
///     async fn turn(&mut self, history: &mut Vec<String>) -> durable::Result<String> {
///         let reply = chat(history).await?;
///         history.push(reply.clone());
///         self.turns += 1;
///         Ok(reply)
///     }
/// }
/// ```
///
/// Its future is boxed, so a part may call itself; what it takes must be `Send`. Attributes below this one
/// are about the function that makes the future.
#[proc_macro_attribute]
pub fn part(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::part(attribute.into(), item.into()).into()
}
