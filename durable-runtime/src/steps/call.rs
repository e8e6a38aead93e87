//! Calls of effects and workflows: plain data until they are awaited.

use std::{
    fmt::{Display, Write},
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Name, Step, named, poll_in, sealed::Sealed};
use crate::{
    contract::{EffectMeta, Site, WorkflowFuture, WorkflowMeta},
    core::{AskEffect, Delivered, OpenScope, Stop, close, with},
    failure::Fault,
    id::StepNo,
    value::{Args, ArgsWriter, Check, KeyPart, Param, Recordable, Value, ValueError},
};

/// A call of an effect: what `search_policy("refunds")` returns. Nothing runs until a workflow awaits it.
#[must_use = "an effect does nothing until a workflow awaits it"]
pub struct EffectCall<R> {
    pub(crate) meta: &'static EffectMeta,
    pub(crate) name: Name,
    pub(crate) args: Result<(Args, u128), ValueError>,
    pub(crate) key: Option<String>,
    _returns: PhantomData<fn() -> R>,
}

named!([R] EffectCall<R>);

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
    checks: Vec<(Check, &'static str)>,
    _returns: PhantomData<fn() -> R>,
}

named!([R] WorkflowCall<R>);

impl<R> WorkflowCall<R> {
    /// Whether each argument will be the same on every replay.
    pub(crate) fn check(&self) -> Result<(), ValueError> {
        let Ok((args, _)) = &self.args else { return Ok(()) };
        self.checks.iter().try_for_each(|(check, name)| check(args, name))
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
}

impl EffectArgs {
    pub fn new(meta: &'static EffectMeta) -> EffectArgs {
        EffectArgs { meta, args: ArgsWriter::new(meta.params.len()), key: None }
    }

    pub fn arg<T: ?Sized, O>(mut self, param: &Param<T, O>, value: &T) -> EffectArgs {
        (param.write)(&mut self.args, param.name, value);
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
            args: self.args.finish(),
            key: self.key,
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
    checks: Vec<(Check, &'static str)>,
}

impl WorkflowArgs {
    pub fn new(meta: &'static WorkflowMeta) -> WorkflowArgs {
        WorkflowArgs { meta, args: ArgsWriter::new(meta.params.len()), checks: Vec::new() }
    }

    pub fn arg<T: ?Sized, O>(mut self, param: &Param<T, O>, value: &T) -> WorkflowArgs {
        (param.write)(&mut self.args, param.name, value);
        self.checks.push((param.check, param.name));
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
        EffectFuture { state: EffectState::New(self), site }
    }
}

/// An effect that is awaited.
#[doc(hidden)]
pub struct EffectFuture<R> {
    state: EffectState<R>,
    site: &'static Site,
}

enum EffectState<R> {
    New(EffectCall<R>),
    Asked(StepNo),
    Over,
}

impl<R> Unpin for EffectFuture<R> {}

impl<R: Recordable> Future for EffectFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        let step = match std::mem::replace(&mut this.state, EffectState::Over) {
            EffectState::New(call) => {
                let ask = AskEffect { name: call.name, meta: call.meta, args: call.args, key: call.key };
                let step = with(|core| core.ask_effect(ask, this.site));
                this.state = EffectState::Asked(step);
                return Poll::Pending;
            }
            EffectState::Asked(step) => step,
            EffectState::Over => return Poll::Pending,
        };
        let Some((delivered, meta)) = with(|core| core.take(step)) else {
            this.state = EffectState::Asked(step);
            return Poll::Pending;
        };
        // User code decodes, so nothing may be borrowed meanwhile.
        match received(delivered, meta) {
            Ok(value) => Poll::Ready(value),
            Err(problem) => {
                let step = meta.map_or_else(String::new, |m| m.name.to_owned());
                let site = Some(this.site);
                with(|core| {
                    core.halt(match problem {
                        Problem::Undecodable(error) => Stop::Undecodable { step, site, error },
                        Problem::Fault(fault) => Stop::Fault { step, site, fault },
                    });
                });
                Poll::Pending
            }
        }
    }
}

enum Problem {
    Undecodable(ValueError),
    Fault(Fault),
}

fn received<R: Recordable>(delivered: Delivered, meta: Option<&'static EffectMeta>) -> Result<R, Problem> {
    let value = match (delivered, meta) {
        (Delivered::Value(bytes), _) => Value::from_bytes(bytes),
        (Delivered::Fault(fault), Some(meta)) => match (meta.returns)().fault {
            Some(encode) => encode(fault).map_err(Problem::Undecodable)?,
            None => return Err(Problem::Fault(fault)),
        },
        (Delivered::Fault(fault), None) => return Err(Problem::Fault(fault)),
        (Delivered::Fired, _) => unreachable!("a timer's completion is for a timer: the fold refuses another"),
    };
    value.decode().map_err(Problem::Undecodable)
}

impl<R> Drop for EffectFuture<R> {
    fn drop(&mut self) {
        if let EffectState::Asked(step) = self.state {
            close(step);
        }
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
