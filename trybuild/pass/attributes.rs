//! Attributes below ours, visibilities, modules, `cfg`, effects made by `macro_rules`.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub)]

/// Tools that an agent has.
pub mod tools {
    /// One that all may call.
    #[durable::effect(read_only)]
    #[must_use]
    pub async fn open(query: &str) -> u64 {
        query.len() as u64
    }

    mod inside {
        #[durable::effect(idempotent)]
        pub(super) async fn above(n: u64) -> u64 {
            n
        }

        #[durable::effect(idempotent)]
        pub(in crate::tools) async fn within(n: u64) -> u64 {
            n
        }

        #[durable::workflow]
        pub(crate) async fn everywhere(n: u64) -> u64 {
            above(n).await + within(n).await + super::open("x").await
        }
    }

    /// Re-exports keep all that an item is.
    pub(crate) use inside::everywhere;

    /// A part of everything.
    #[durable::part]
    pub async fn some(n: &u64) -> u64 {
        inside::above(*n).await + inside::within(*n).await
    }
}

#[durable::effect(read_only)]
#[tracing::instrument(skip(text), fields(length = text.len()))]
async fn traced(text: &str, n: u64) -> Result<u64, String> {
    tracing::info!("inside");
    Ok(n)
}

#[durable::workflow]
#[tracing::instrument(ret)]
async fn traced_workflow(n: u64) -> Result<u64, String> {
    traced("text", n).await
}

#[durable::effect(read_only)]
#[cfg(any())]
async fn absent(gone: NoSuchType) {}

#[cfg(any())]
#[durable::workflow]
async fn absent_workflow() {
    absent().await;
}

#[durable::effect(read_only)]
#[allow(unused_variables)]
#[cfg_attr(all(), allow(unused_mut))]
async fn careless(mut n: u64) -> u64 {
    let unused = 1;
    3
}

#[durable::workflow]
async fn unused_arguments(#[allow(unused_variables)] n: u64, _m: u64) {
    #[cfg(any())]
    absent().await;
    #[allow(unused_variables)]
    let n = traced("a", 1).await;
}

#[allow(deprecated)]
mod old {
    #[durable::effect(read_only)]
    #[deprecated(note = "use `traced`")]
    async fn old() {}

    #[durable::workflow]
    pub(crate) async fn uses_old() {
        old().await
    }
}

macro_rules! tool {
    ($(#[$attr:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty $body:block) => {
        $(#[$attr])*
        #[durable::effect(read_only)]
        async fn $name($($arg: $ty),*) -> $out $body
    };
}

tool! {
    /// Made by a macro.
    made(a: &str, b: Vec<u64>) -> usize { a.len() + b.len() }
}

macro_rules! agent {
    ($name:ident, $tool:ident) => {
        #[durable::workflow]
        async fn $name(text: String) -> usize {
            let first = $tool(&text, vec![1]).await;
            first + $tool("more", vec![]).await
        }
    };
}

agent!(made_agent, made);

/// An effect may stand in an `impl`, and inside a function.
pub struct Tools;

impl Tools {
    /// Adds.
    #[durable::effect(read_only)]
    pub async fn add(a: u64, b: u64) -> u64 {
        a + b
    }

    /// Adds more.
    #[durable::workflow]
    pub async fn sum(all: Vec<u64>) -> u64 {
        let mut sum = 0;
        for n in all {
            sum = Tools::add(sum, n).await;
        }
        sum
    }
}

impl<T: Send> Generic<T> {
    /// Also where the type around it is generic.
    #[durable::effect(read_only)]
    pub async fn zero() -> u64 {
        0
    }
}

/// Of anything.
pub struct Generic<T>(pub T);

fn main() {
    #[durable::effect(read_only)]
    async fn local() -> u64 {
        1
    }

    #[durable::workflow]
    async fn local_workflow() -> u64 {
        local().await + Generic::<u8>::zero().await + tools::some(&1).await
    }

    let _ = (local_workflow(), tools::everywhere(1), traced_workflow(1), careless(1), unused_arguments(1, 2));
    let _ = (old::uses_old(), made_agent(String::new()), Tools::sum(vec![]));
}
