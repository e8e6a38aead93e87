//! What an effect, a workflow and a call site say about themselves: plain data, known at compile time.

use std::{any::TypeId, future::Future, pin::Pin};

use xxhash_rust::const_xxh3::xxh3_128;

use crate::{
    effect::{BodyEnd, Invocation},
    failure::Fault,
    value::{Args, Value, ValueError},
};

/// A boxed body of an effect, as the engine runs it. `Err` says which recorded argument does not decode.
pub type BodyFuture = Pin<Box<dyn Future<Output = Result<BodyEnd, ValueError>> + Send>>;
/// A boxed reconcile function, as the engine runs it.
pub type ReconcileFuture = Pin<Box<dyn Future<Output = Result<ReconcileEnd, ValueError>> + Send>>;
/// A boxed workflow body, as the engine polls it.
pub type WorkflowFuture = Pin<Box<dyn Future<Output = Returned> + Send>>;

/// What a repeat of an effect would do, and so what the engine may do when it does not know whether a body ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contract {
    /// Nobody outside could tell a repeat, but for its cost.
    ReadOnly,
    /// A repeat is harmless, even late, overlapping its twin, or after later steps.
    Idempotent,
    /// The provider knows the key and answers a repeat as it answered the first time.
    Keyed,
    /// A repeat does harm: never run again without a person or a reconcile function saying so.
    AtMostOnce,
}

impl Contract {
    /// Whether the world could notice that the body ran: everything but [`Contract::ReadOnly`].
    pub const fn is_outward(self) -> bool {
        !matches!(self, Contract::ReadOnly)
    }

    /// The word that stands in the attribute, in the log and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Contract::ReadOnly => "read_only",
            Contract::Idempotent => "idempotent",
            Contract::Keyed => "key",
            Contract::AtMostOnce => "at_most_once",
        }
    }
}

/// What happens to an [`Contract::AtMostOnce`] step that is in doubt.
#[derive(Clone, Copy, Debug)]
pub enum WhenInDoubt {
    /// The step waits for a person. The default.
    Hold,
    /// The workflow gets the doubt as an error of its own error type.
    Error,
    /// A function of the user is asked what happened, no earlier than `settle_ms` after this process first saw the doubt.
    Reconcile {
        /// How long a request of a dead process may still be under way, in milliseconds.
        settle_ms: u64,
        /// The function, made ready for the engine by the attribute.
        run: fn(Invocation) -> ReconcileFuture,
    },
}

/// `retry(attempts, first, max, factor)`: how often and how late a failed attempt is followed by another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Bodies ever begun, the first included, crashes included; at least 1.
    pub attempts: u32,
    /// Wait before the second attempt, in milliseconds.
    pub first_ms: u64,
    /// Longest wait between two attempts, in milliseconds.
    pub max_ms: u64,
    /// Each wait is this many times the one before; at least 1.
    pub factor: f64,
}

impl Retry {
    /// The wait after attempt number `attempt` (from 1) failed, in milliseconds.
    pub fn backoff_ms(&self, attempt: u32) -> u64 {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let wait = self.first_ms as f64 * self.factor.powi(exponent);
        if wait >= self.max_ms as f64 { self.max_ms } else { wait as u64 }
    }
}

/// A resource that an effect takes by reference from [`crate::Builder::resource`].
#[derive(Clone, Copy, Debug)]
pub struct ResourceMeta {
    /// The parameter's name.
    pub name: &'static str,
    /// The type's name, for messages.
    pub type_name: fn() -> &'static str,
    /// The type.
    pub type_id: fn() -> TypeId,
}

/// What the return type of an effect or a workflow is to the engine, without the type itself.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// Encodes a fault as an error of the function, where its error type takes one.
    pub fault: Option<fn(Fault) -> Result<Value, ValueError>>,
    /// Says whether a recorded or a given value decodes as the return type.
    pub check: fn(&Value) -> Result<(), ValueError>,
    /// Whether the return type is a `Result`: then a value given by a person for a success is its `Ok`.
    pub is_result: bool,
}

/// An effect, as its attribute describes it.
#[derive(Debug)]
pub struct EffectMeta {
    /// The recorded name: `name = ".."`, else the function's.
    pub name: &'static str,
    /// Whether the name was given by `name = ".."`.
    pub explicit_name: bool,
    /// The function's name in the source.
    pub function: &'static str,
    /// `module_path!()` of the function.
    pub module: &'static str,
    /// Source file of the function.
    pub file: &'static str,
    /// Source line of the function.
    pub line: u32,
    /// [`effect_id`] of the name.
    pub id: u128,
    /// What a repeat does.
    pub contract: Contract,
    /// What happens in doubt; only read where the contract is [`Contract::AtMostOnce`].
    pub in_doubt: WhenInDoubt,
    /// `kind = ".."`, free text for tables and metrics.
    pub kind: Option<&'static str>,
    /// `retry(..)`, if given.
    pub retry: Option<Retry>,
    /// Longest time of one attempt, in milliseconds; `None` for a `read_only` effect without `timeout`.
    pub timeout_ms: Option<u64>,
    /// Names of the recorded parameters, in order.
    pub params: &'static [&'static str],
    /// The resources it takes.
    pub resources: &'static [ResourceMeta],
    /// What the return type is.
    pub returns: fn() -> Returns,
    /// Runs the body.
    pub run: fn(Invocation) -> BodyFuture,
}

/// What a workflow's body returned, encoded.
#[derive(Debug)]
pub struct Returned {
    /// False if the return type is a `Result` and the value an `Err`.
    pub ok: bool,
    /// The whole returned value.
    pub value: Result<Value, ValueError>,
    /// The error in words, if it is one.
    pub message: String,
}

/// What a reconcile function found out, encoded.
#[derive(Debug)]
pub enum ReconcileEnd {
    /// It happened; the value is the effect's whole return value.
    Happened(Result<Value, ValueError>),
    /// It did not and cannot happen any more: the body may run.
    CannotHappen,
    /// Not known now: ask again later.
    Unknown,
    /// The function returned an error: ask again later.
    Failed(String),
}

/// A workflow, as its attribute describes it.
#[derive(Debug)]
pub struct WorkflowMeta {
    /// The recorded name: `name = ".."`, else the function's.
    pub name: &'static str,
    /// Whether the name was given by `name = ".."`.
    pub explicit_name: bool,
    /// The function's name in the source.
    pub function: &'static str,
    /// `module_path!()` of the function.
    pub module: &'static str,
    /// Source file of the function.
    pub file: &'static str,
    /// Source line of the function.
    pub line: u32,
    /// Names of the parameters, in order.
    pub params: &'static [&'static str],
    /// Every `.await` of the body, in source order.
    pub sites: &'static [Site],
    /// What the return type is.
    pub returns: fn() -> Returns,
    /// Decodes the arguments and makes the body's future.
    pub run: fn(Args) -> Result<WorkflowFuture, ValueError>,
}

/// A part, as its attribute describes it.
#[derive(Debug)]
pub struct PartMeta {
    /// The function's name, which is the name of the scope it opens.
    pub name: &'static str,
    /// `module_path!()` of the function.
    pub module: &'static str,
    /// Source file of the function.
    pub file: &'static str,
    /// Source line of the function.
    pub line: u32,
    /// Every `.await` of the body, in source order.
    pub sites: &'static [Site],
}

/// One `.await` of a workflow's or part's body.
#[derive(Debug)]
pub struct Site {
    /// 128 bits made at compile time of module, function and number.
    pub id: u128,
    /// The step's number in its function, from 0, in source order.
    pub number: u32,
    /// What is awaited, as written, shortened to the callee's path: `search_policy`, `tools::look`, `agent.turn`.
    pub callee: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Source line of the awaited expression.
    pub line: u32,
}

impl Site {
    /// Describes one `.await`; for expansions.
    pub const fn new(
        module: &'static str,
        function: &'static str,
        number: u32,
        callee: &'static str,
        file: &'static str,
        line: u32,
    ) -> Site {
        Site { id: site_id(hash(b'S', &[module, function], 0), number), number, callee, file, line }
    }
}

/// A function's whole table of steps, for expansions: the number of an await is its place in the table.
pub const fn sites<const N: usize>(
    module: &'static str,
    function: &'static str,
    file: &'static str,
    awaits: [(&'static str, u32); N],
) -> [Site; N] {
    // One hash for the whole table: the compiler interprets this, and a hash for each site is what took its time.
    let base = hash(b'S', &[module, function], 0);
    let mut sites = [const { Site { id: 0, number: 0, callee: "", file: "", line: 0 } }; N];
    let mut i = 0;
    while i < N {
        let (callee, line) = awaits[i];
        sites[i] = Site { id: site_id(base, i as u32), number: i as u32, callee, file, line };
        i += 1;
    }
    sites
}

/// The id of a function's nth site, from the function's: an odd step never meets itself within 128 bits.
const fn site_id(base: u128, number: u32) -> u128 {
    base.wrapping_add((number as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

/// What link-time registration collects.
#[derive(Clone, Copy, Debug)]
pub enum Registered {
    /// By `#[durable::effect]`.
    Effect(&'static EffectMeta),
    /// By `#[durable::workflow]`.
    Workflow(&'static WorkflowMeta),
    /// By `#[durable::part]`.
    Part(&'static PartMeta),
}

inventory::collect!(Registered);

/// The call site with that id in this binary.
pub(crate) fn site_by_id(id: u128) -> Option<&'static Site> {
    inventory::iter::<Registered>
        .into_iter()
        .flat_map(|r| match r {
            Registered::Effect(_) => &[],
            Registered::Workflow(w) => w.sites,
            Registered::Part(p) => p.sites,
        })
        .find(|site| site.id == id)
}

/// The effect of this binary that a recorded call means: by its name and module, or by a name that was given.
pub(crate) fn find_effect(name: &str, module: &str) -> Option<&'static EffectMeta> {
    inventory::iter::<Registered>.into_iter().find_map(|r| match r {
        Registered::Effect(meta) if meta.name == name && (meta.explicit_name || meta.module == module) => Some(*meta),
        _ => None,
    })
}

/// A digest of all that this binary registers: what runs could be replayed otherwise with than before changes it, as far as
/// names, contracts, parameters and awaits say so.
pub(crate) fn code_digest() -> u64 {
    let mut digests: Vec<u64> = inventory::iter::<Registered>
        .into_iter()
        .map(|r| {
            let text = match r {
                Registered::Effect(m) => {
                    format!(
                        "E {} {} {:?} {:?} {:?} {:?}",
                        m.name, m.module, m.contract, m.retry, m.timeout_ms, m.params
                    )
                }
                Registered::Workflow(m) => format!("W {} {} {:?} {}", m.name, m.module, m.params, awaits(m.sites)),
                Registered::Part(m) => format!("P {} {} {}", m.name, m.module, awaits(m.sites)),
            };
            xxhash_rust::xxh3::xxh3_64(text.as_bytes())
        })
        .collect();
    // Link order is no part of the code.
    digests.sort_unstable();
    let bytes: Vec<u8> = digests.iter().flat_map(|digest| digest.to_le_bytes()).collect();
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// What a function awaits, in order.
fn awaits(sites: &[Site]) -> String {
    sites.iter().map(|site| site.callee).collect::<Vec<_>>().join(",")
}

/// How long a request of an effect of this name may be under way, as far as the effects of this binary say so.
pub(crate) fn settle_ms_of(name: &str) -> Option<u64> {
    let effects = inventory::iter::<Registered>.into_iter().filter_map(|r| match r {
        Registered::Effect(meta) if meta.name == name => Some(meta.in_doubt),
        _ => None,
    });
    let settles = effects.filter_map(|in_doubt| match in_doubt {
        WhenInDoubt::Reconcile { settle_ms, .. } => Some(settle_ms),
        _ => None,
    });
    settles.max()
}

/// The id of an effect: 128 bits of its recorded name, so that moving the function changes nothing.
pub const fn effect_id(name: &str) -> u128 {
    hash(b'E', &[name], 0)
}

/// Hashes a domain byte, length-prefixed parts and a number. At most 2,000 bytes of each part count.
const fn hash(domain: u8, parts: &[&str], number: u32) -> u128 {
    let mut bytes = [0u8; 4096];
    bytes[0] = domain;
    let mut at = 1;
    let mut p = 0;
    while p < parts.len() {
        let part = parts[p].as_bytes();
        let length = (part.len() as u32).to_le_bytes();
        let mut i = 0;
        while i < 4 {
            bytes[at] = length[i];
            at += 1;
            i += 1;
        }
        let mut i = 0;
        while i < part.len() && i < 2_000 {
            bytes[at] = part[i];
            at += 1;
            i += 1;
        }
        p += 1;
    }
    let number = number.to_le_bytes();
    let mut i = 0;
    while i < 4 {
        bytes[at] = number[i];
        at += 1;
        i += 1;
    }
    xxh3_128(bytes.split_at(at).0)
}
