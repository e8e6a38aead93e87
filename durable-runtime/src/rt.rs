//! All that expansions of the attributes may use. Not for use by hand: it changes with any version.

pub use inventory;

use crate::failure::shortened;

pub use crate::{
    contract::{
        BodyFuture, Contract, EffectMeta, PartMeta, ReconcileEnd, ReconcileFuture, Registered, ResourceMeta, Retry,
        Returned, Returns, Site, WhenInDoubt, WorkflowFuture, WorkflowMeta, effect_id, sites,
    },
    effect::{BodyEnd, Invocation},
    shape::{FromOk, Shape, TakesFault, probe, probe::Probe},
    steps::{
        branch::{branch, part},
        call::{EffectArgs, WorkflowArgs},
        step,
    },
    value::{Args, ArgsWriter, KeyPart, Lend, Lent, Param, Recordable, Value, ValueError},
};

/// What the return type of an effect or a workflow is, for its metadata.
pub fn returns<R>(shape: fn(Probe<R>) -> Shape<R>) -> Returns {
    shape(Probe::new()).returns()
}

/// Boxes a workflow's body, which ends with its encoded output.
///
/// # Errors
///
/// None: the type is what a workflow's `run` returns.
pub fn body<R: 'static>(
    shape: fn(Probe<R>) -> Shape<R>,
    body: impl Future<Output = R> + Send + 'static,
) -> Result<WorkflowFuture, ValueError> {
    Ok(Box::pin(async move {
        let out = body.await;
        let shape = shape(Probe::new());
        let ok = !(shape.is_err)(&out);
        let message = if ok { String::new() } else { shortened(&shape.words(&out)).into_owned() };
        Returned { ok, value: (shape.encode)(&out), message }
    }))
}

/// Demands that an effect's error type takes a fault.
pub const fn takes_fault<R: TakesFault>() {}
