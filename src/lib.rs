//! durable
pub use durable_macros::{effect, part, workflow};
#[doc(hidden)]
pub use durable_runtime::rt as __rt;
pub use durable_runtime::*;
