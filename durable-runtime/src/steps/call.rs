//! Calls of effects and workflows: plain data until they are awaited.

use std::{
    fmt::{Display, Write},
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Name, Step, Wait, named, only_in_workflows, poll_in, sealed::Sealed};
use crate::{
    contract::{EffectMeta, Returns, Site, WorkflowFuture, WorkflowMeta},
    core::{AskEffect, Delivered, OpenScope, Stop, with},
    failure::Fault,
    value::{Args, ArgsWriter, Check, KeyPart, Param, Recordable, Value, ValueError, Written},
};

/// A call of an effect: what `search_policy("refunds")` returns. Nothing runs until a workflow awaits it.
#[must_use = "an effect does nothing until a workflow awaits it"]
pub struct EffectCall<R> {
    pub(crate) meta: &'static EffectMeta,
    pub(crate) name: Name,
    args: Result<Written, Box<ValueError>>,
    pub(crate) key: Option<String>,
    checks: Checks,
    _returns: PhantomData<fn() -> R>,
}

named!([R] EffectCall<R>);
only_in_workflows!([R: Recordable] EffectCall<R>);

impl<R> EffectCall<R> {
    /// The arguments, if each will be the same on every replay. Runs code of the user's types.
    pub(super) fn lasting_args(self) -> Result<(Args, u128), ValueError> {
        let args = self.args.map_err(|error| *error).map(|args| {
            let digest = args.digest();
            (args.into_args(), digest)
        });
        lasting(&args, &self.checks).and(args)
    }
}

/// How each argument of a call is checked, and its name.
#[derive(Default)]
struct Checks {
    /// Many calls have one argument.
    first: Option<(Check, &'static str)>,
    others: Vec<(Check, &'static str)>,
}

impl Checks {
    fn push(&mut self, check: Check, name: &'static str) {
        match &mut self.first {
            None => self.first = Some((check, name)),
            Some(_) => self.others.push((check, name)),
        }
    }
}

/// Whether each argument will be the same on every replay.
fn lasting(args: &Result<(Args, u128), ValueError>, checks: &Checks) -> Result<(), ValueError> {
    let Ok((args, _)) = args else { return Ok(()) };
    checks.first.iter().chain(&checks.others).try_for_each(|(check, name)| check(args, name))
}

impl<R> std::fmt::Debug for EffectCall<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EffectCall").field("effect", &self.meta.name).field("args", &self.args).finish()
    }
}

/// A call of a workflow: what `refund_agent(order)` returns. Started by [`crate::Runtime::start`], or awaited by another
/// workflow as a part of its run.
#[must_use = "a workflow does nothing until it is started or awaited"]
pub struct WorkflowCall<R> {
    pub(crate) meta: &'static WorkflowMeta,
    pub(crate) name: Name,
    pub(crate) args: Result<(Args, u128), ValueError>,
    checks: Checks,
    _returns: PhantomData<fn() -> R>,
}

named!([R] WorkflowCall<R>);
only_in_workflows!([R: Recordable] WorkflowCall<R>);

impl<R> WorkflowCall<R> {
    /// Whether each argument will be the same on every replay.
    pub(crate) fn check(&self) -> Result<(), ValueError> {
        lasting(&self.args, &self.checks)
    }

    /// The arguments, if each will be the same on every replay. Runs code of the user's types.
    pub(super) fn lasting_args(self) -> Result<(Args, u128), ValueError> {
        self.check().and(self.args)
    }
}

impl<R> std::fmt::Debug for WorkflowCall<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkflowCall").field("workflow", &self.meta.name).field("args", &self.args).finish()
    }
}

/// Collects the arguments of a call of an effect; for expansions.
#[doc(hidden)]
pub struct EffectArgs {
    meta: &'static EffectMeta,
    args: ArgsWriter,
    key: Option<String>,
    checks: Checks,
}

impl EffectArgs {
    pub fn new(meta: &'static EffectMeta) -> EffectArgs {
        let params = meta.params.len();
        EffectArgs { meta, args: ArgsWriter::new(params), key: None, checks: Checks::default() }
    }

    pub fn arg<T: ?Sized, O>(mut self, param: &Param<T, O>, value: &T) -> EffectArgs {
        (param.write)(&mut self.args, param.name, value);
        self.checks.push(param.check, param.name);
        self
    }

    pub fn key_text(mut self, text: &'static str) -> EffectArgs {
        // As in a value: what is escaped there must not be written here.
        self.key.get_or_insert_default().push_str(&text.replace('%', "%25"));
        self
    }

    /// Adds an argument to the key. `end`, the character that ends the value in the key, and `%` are escaped in it, so that
    /// two different lists of arguments never give one key.
    pub fn key_value<T: KeyPart + ?Sized>(mut self, value: &T, end: char) -> EffectArgs {
        let key = self.key.get_or_insert_default();
        for c in Shown(value).to_string().chars() {
            if c == end || c == '%' || c.is_control() {
                let mut utf8 = [0; 4];
                for byte in c.encode_utf8(&mut utf8).bytes() {
                    // Writing to a string does not fail.
                    let _ = write!(key, "%{byte:02X}");
                }
            } else {
                key.push(c);
            }
        }
        self
    }

    pub fn call<R>(self) -> EffectCall<R> {
        EffectCall {
            meta: self.meta,
            name: self.meta.name.into(),
            args: self.args.written().map_err(Box::new),
            key: self.key,
            checks: self.checks,
            _returns: PhantomData,
        }
    }
}

struct Shown<'a, T: ?Sized>(&'a T);

impl<T: KeyPart + ?Sized> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Collects the arguments of a call of a workflow; for expansions.
#[doc(hidden)]
pub struct WorkflowArgs {
    meta: &'static WorkflowMeta,
    args: ArgsWriter,
    checks: Checks,
}

impl WorkflowArgs {
    pub fn new(meta: &'static WorkflowMeta) -> WorkflowArgs {
        WorkflowArgs { meta, args: ArgsWriter::new(meta.params.len()), checks: Checks::default() }
    }

    pub fn arg<T: ?Sized, O>(mut self, param: &Param<T, O>, value: &T) -> WorkflowArgs {
        (param.write)(&mut self.args, param.name, value);
        self.checks.push(param.check, param.name);
        self
    }

    pub fn call<R>(self) -> WorkflowCall<R> {
        let (meta, args, checks) = (self.meta, self.args.finish(), self.checks);
        WorkflowCall { meta, name: meta.name.into(), args, checks, _returns: PhantomData }
    }
}

impl<R> Sealed for EffectCall<R> {}

impl<R: Recordable> Step for EffectCall<R> {
    type Output = R;
    type Future = EffectFuture<R>;

    fn into_future(self, site: &'static Site) -> EffectFuture<R> {
        let ask = AskEffect { name: self.name, meta: self.meta, args: self.args, key: self.key };
        EffectFuture { wait: Wait::New(ask), site, _returns: PhantomData }
    }
}

/// An effect that is awaited.
#[doc(hidden)]
pub struct EffectFuture<R> {
    wait: Wait<AskEffect>,
    site: &'static Site,
    _returns: PhantomData<fn() -> R>,
}

impl<R: Recordable> Future for EffectFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        let Some((delivered, meta)) = poll_effect(&mut this.wait, this.site) else { return Poll::Pending };
        let name = || meta.map_or_else(String::new, |meta| meta.name.to_owned());
        match received(delivered, meta.map(|meta| meta.returns), name, this.site) {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

/// Not generic: compiled once.
fn poll_effect(wait: &mut Wait<AskEffect>, site: &'static Site) -> Option<(Delivered, Option<&'static EffectMeta>)> {
    wait.poll(|core, ask| core.ask_effect(ask, site))
}

/// The value of an effect or a child run. What does not decode, and a fault that the error type does not take, stop the
/// run, and the step is never ready. Decoding is user code, so nothing may be borrowed meanwhile.
pub(super) fn received<R: Recordable>(
    delivered: Delivered,
    returns: Option<fn() -> Returns>,
    step: impl FnOnce() -> String,
    site: &'static Site,
) -> Option<R> {
    let value = match recorded(delivered, returns) {
        Ok(value) => value.decode(),
        Err(Problem::Undecodable(error)) => Err(error),
        Err(Problem::Fault(fault)) => {
            let stop = Stop::Fault { step: step(), site: Some(site), fault };
            with(|core| core.halt(stop));
            return None;
        }
    };
    match value {
        Ok(value) => Some(value),
        Err(error) => {
            let stop = Stop::Undecodable { step: step(), site: Some(site), error };
            with(|core| core.halt(stop));
            None
        }
    }
}

enum Problem {
    Undecodable(ValueError),
    Fault(Fault),
}

/// What was recorded of a step; a fault as the error that the step's type makes of it.
fn recorded(delivered: Delivered, returns: Option<fn() -> Returns>) -> Result<Value, Problem> {
    match delivered {
        Delivered::Value(bytes) => Ok(Value::from_bytes(bytes)),
        Delivered::Fault(fault) => match returns.and_then(|returns| returns().fault) {
            Some(encode) => encode(*fault).map_err(Problem::Undecodable),
            None => Err(Problem::Fault(*fault)),
        },
        _ => unreachable!("a wait's completion is for a wait: the fold refuses another"),
    }
}

impl<R> Sealed for WorkflowCall<R> {}

impl<R: Recordable> Step for WorkflowCall<R> {
    type Output = R;
    type Future = InlineFuture<R>;

    fn into_future(self, site: &'static Site) -> InlineFuture<R> {
        InlineFuture { state: InlineState::New(self), site, _returns: PhantomData }
    }
}

/// A workflow that is awaited by another: a scope of its own in the same run.
#[doc(hidden)]
pub struct InlineFuture<R> {
    state: InlineState<R>,
    site: &'static Site,
    _returns: PhantomData<fn() -> R>,
}

enum InlineState<R> {
    New(WorkflowCall<R>),
    Open(&'static WorkflowMeta, WorkflowFuture, OpenScope),
    Over,
}

impl<R> Unpin for InlineFuture<R> {}

impl<R: Recordable> InlineFuture<R> {
    fn halt(&mut self, meta: &'static WorkflowMeta, error: ValueError) -> Poll<R> {
        let site = Some(self.site);
        with(|core| core.halt(Stop::Undecodable { step: meta.name.to_owned(), site, error }));
        self.state = InlineState::Over;
        Poll::Pending
    }
}

impl<R: Recordable> Future for InlineFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        if let InlineState::New(_) = this.state
            && let InlineState::New(call) = std::mem::replace(&mut this.state, InlineState::Over)
        {
            let future = call.args.and_then(|(args, _)| (call.meta.run)(args));
            match future {
                Ok(future) => {
                    let scope = with(|core| core.open_scope(call.name));
                    this.state = InlineState::Open(call.meta, future, scope);
                }
                Err(e) => return this.halt(call.meta, e),
            }
        }
        let InlineState::Open(meta, future, scope) = &mut this.state else { return Poll::Pending };
        let meta = *meta;
        let Poll::Ready(returned) = poll_in(scope.0, future.as_mut(), cx) else { return Poll::Pending };
        this.state = InlineState::Over;
        match returned.value.and_then(|value| value.decode()) {
            Ok(value) => Poll::Ready(value),
            Err(e) => this.halt(meta, e),
        }
    }
}
