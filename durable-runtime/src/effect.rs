//! Bodies of effects: what they are given, and how they end.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    contract::{EffectMeta, ReconcileEnd},
    failure::{Fault, Reconciled, shortened},
    id::{Attempt, RunId},
    shape::{FromOk, Shape, probe::Probe},
    value::{Args, Param, Value, ValueError},
};

/// What an effect's body knows of its call: the parameter `cx: &EffectContext`.
#[derive(Debug)]
pub struct EffectContext {
    run: RunId,
    path: String,
    effect: &'static str,
    effect_id: u128,
    attempt: Attempt,
    key: String,
    doubt: Mutex<Option<String>>,
    unwanted: watch::Receiver<bool>,
}

impl EffectContext {
    /// The run that the call belongs to.
    pub fn run_id(&self) -> &RunId {
        &self.run
    }

    /// The step's path in its run, such as `join_all[0]/3/charge[1]`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The recorded name of the effect.
    pub fn effect(&self) -> &'static str {
        self.effect
    }

    /// The step's effect id: the effect's compile-time id mixed with its place in the run. The same on every attempt.
    pub fn effect_id(&self) -> u128 {
        self.effect_id
    }

    /// Which attempt this is, from 1; attempts that ended with their process count.
    pub fn attempt(&self) -> u32 {
        self.attempt.0
    }

    /// The key under which the provider must know this call: the rendered template of `key = ".."`; for other effects the
    /// store's id, the run's id, the generation and the path, joined by `/`, each escaped. The same on every attempt and after every
    /// restart, and no other step has it.
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// [`EffectContext::idempotency_key`] as a UUID (version 8, made of 122 bits of its `xxh3_128`), for providers that want one.
    pub fn idempotency_uuid(&self) -> Uuid {
        uuid::Builder::from_custom_bytes(xxh3_128(self.key.as_bytes()).to_be_bytes()).into_uuid()
    }

    /// Says that the body does not know whether it did what it should: its outcome is then discarded, and the step is in
    /// doubt, as after a crash. The fault is for the body to return, if its error type takes one:
    /// `return Err(cx.in_doubt("timed out after send").into())`.
    pub fn in_doubt(&self, reason: impl Into<String>) -> Fault {
        let reason = shortened(&reason.into()).into_owned();
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        Fault::InDoubt { effect: self.effect.to_owned(), attempt: self.attempt.0, reason }
    }

    /// Returns once nobody waits for the outcome any more (the branch was dropped, the run has ended, or the process
    /// shuts down): a body that can stop should, and return what it knows.
    pub async fn cancelled(&self) {
        let mut unwanted = self.unwanted.clone();
        // The sender lives as long as the body is listed as running.
        let _ = unwanted.wait_for(|unwanted| *unwanted).await;
    }
}

/// The values that effects take by `#[resource]`, by type.
#[derive(Clone, Default)]
pub(crate) struct Resources(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Resources {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn has(&self, id: TypeId) -> bool {
        self.0.contains_key(&id)
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} resources", self.0.len())
    }
}

/// One attempt at an effect, as expansions see it.
#[doc(hidden)]
#[derive(Clone)]
pub struct Invocation(Arc<Inner>);

struct Inner {
    meta: &'static EffectMeta,
    args: Args,
    context: EffectContext,
    resources: Arc<Resources>,
    /// Kept until the body and all that runs for it is gone: a body that blocks its thread outlives the task that waits for it.
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl Invocation {
    pub(crate) fn new(
        start: &Start,
        run: RunId,
        resources: Arc<Resources>,
        unwanted: watch::Receiver<bool>,
        kept: Option<Box<dyn Any + Send + Sync>>,
    ) -> Invocation {
        let meta = start.meta;
        let context = EffectContext {
            run,
            path: start.path.clone(),
            effect: meta.name,
            effect_id: start.effect_id,
            attempt: start.attempt,
            key: start.key.clone(),
            doubt: Mutex::new(None),
            unwanted,
        };
        Invocation(Arc::new(Inner { meta, args: start.args.clone(), context, resources, _kept: kept }))
    }

    pub fn arg<T: ?Sized, O>(&self, param: &Param<T, O>) -> Result<O, ValueError> {
        (param.read)(&self.0.args, param.name)
    }

    pub fn context(&self) -> &EffectContext {
        &self.0.context
    }

    /// The resource of that type.
    ///
    /// # Panics
    ///
    /// If there is none. `open` has refused to start then, so this is only reached by an effect that link-time
    /// registration does not know.
    #[expect(clippy::panic, reason = "a body's panic is an outcome that the run records")]
    pub fn resource<T: Send + Sync + 'static>(&self) -> &T {
        match self.0.resources.0.get(&TypeId::of::<T>()).and_then(|any| any.downcast_ref()) {
            Some(resource) => resource,
            None => panic!(
                "effect {} needs a resource of type {}; give it to Runtime::builder().resource(..)",
                self.0.meta.name,
                std::any::type_name::<T>()
            ),
        }
    }

    pub fn end<R>(&self, shape: fn(Probe<R>) -> Shape<R>, out: R, retry_if: Option<fn(&R) -> bool>) -> BodyEnd {
        let shape = shape(Probe::new());
        if let Some(reason) = self.0.context.doubt.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return BodyEnd::InDoubt { reason };
        }
        let ok = !(shape.is_err)(&out);
        // A serializer is user code and may panic: the body has run, so that is an outcome that cannot be recorded.
        let encoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (shape.encode)(&out)));
        let value = match encoded {
            Ok(Ok(value)) => value,
            Ok(Err(e)) => return BodyEnd::NotRecordable { reason: shortened(&e.to_string()).into_owned() },
            Err(payload) => {
                return BodyEnd::NotRecordable { reason: format!("its serializer panicked: {}", panic_text(payload)) };
            }
        };
        if ok {
            return BodyEnd::Ok { value };
        }
        let retry = retry_if.is_none_or(|retry_if| retry_if(&out));
        BodyEnd::Err { value, retry, message: shortened(&shape.words(&out)).into_owned() }
    }

    pub fn reconciled<R: FromOk<Ok = T>, T>(
        &self,
        shape: fn(Probe<R>) -> Shape<R>,
        out: crate::failure::Result<Reconciled<T>>,
    ) -> ReconcileEnd {
        match out {
            Ok(Reconciled::Happened(value)) => ReconcileEnd::Happened((shape(Probe::new()).encode)(&R::from_ok(value))),
            Ok(Reconciled::CannotHappen) => ReconcileEnd::CannotHappen,
            Ok(Reconciled::Unknown) => ReconcileEnd::Unknown,
            Err(failure) => ReconcileEnd::Failed(failure.to_string()),
        }
    }

    /// Runs a body that blocks on the thread pool for such.
    pub async fn blocking(
        self,
        body: impl FnOnce(&Invocation) -> Result<BodyEnd, ValueError> + Send + 'static,
    ) -> Result<BodyEnd, ValueError> {
        match tokio::task::spawn_blocking(move || body(&self)).await {
            Ok(end) => end,
            Err(e) => match e.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(_) => {
                    Ok(BodyEnd::InDoubt { reason: "the process shut down before the body began or ended".into() })
                }
            },
        }
    }
}

/// What the driver wants begun.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) meta: &'static EffectMeta,
    pub(crate) args: Args,
    pub(crate) path: String,
    pub(crate) effect_id: u128,
    pub(crate) attempt: Attempt,
    pub(crate) key: String,
}

/// How a body ended.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum BodyEnd {
    /// It returned; an `Ok` if it returns a `Result`.
    Ok { value: Value },
    /// It returned an `Err`.
    Err { value: Value, retry: bool, message: String },
    /// It returned what cannot be recorded.
    NotRecordable { reason: String },
    /// It says itself that it does not know.
    InDoubt { reason: String },
    /// It panicked.
    Panicked { message: String },
    /// It did not return in time.
    TimedOut { timeout_ms: u64 },
    /// The runtime was shut down and dropped it.
    ShutDown,
}

/// A panic in words. A payload that is no text is forgotten, because dropping it is user code that may panic again.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<String>() {
        Ok(text) => return shortened(&text).into_owned(),
        Err(payload) => payload,
    };
    match payload.downcast::<&'static str>() {
        Ok(text) => shortened(*text).into_owned(),
        Err(payload) => {
            std::mem::forget(payload);
            "a panic without text".to_owned()
        }
    }
}

/// Polls `future`, and turns a panic into an end.
pub(crate) struct CatchPanic<F>(pub(crate) std::pin::Pin<Box<F>>);

impl<F: Future<Output = Result<BodyEnd, ValueError>>> Future for CatchPanic<F> {
    type Output = Result<BodyEnd, ValueError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let future = self.0.as_mut();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.poll(cx))) {
            Ok(polled) => polled,
            Err(payload) => std::task::Poll::Ready(Ok(BodyEnd::Panicked { message: panic_text(payload) })),
        }
    }
}
