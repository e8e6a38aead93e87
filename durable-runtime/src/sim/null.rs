//! Null controls that are broken in the workflow's code.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{controls::Control, effects::Out, prog::CONTROL};
use crate::{
    core::{Delivered, with},
    entry::{Kind, Outcome, decode},
    id::StepNo,
    steps::{begin::Begin, signal::Signal},
};

/// Null control: a scope does not close when the run is cancelled.
pub(super) fn never_closing() {
    if CONTROL.get() == Control::CancelIgnored {
        with(|core| core.cancelled = false);
    }
}

/// Null control: a wait for a message that is begun and looked at later.
impl Begin for Signal<u64> {}

/// An effect; in a null control it is ready in the poll that asks for it, if the log says how it ended.
pub(super) struct Hasty<F>(pub(super) Pin<Box<F>>);

impl<F: Future<Output = Out>> Future for Hasty<F> {
    type Output = Out;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Out> {
        let polled = self.0.as_mut().poll(cx);
        if polled.is_pending() && CONTROL.get() == Control::ReadyAtOnce && takes_next() {
            return self.0.as_mut().poll(cx);
        }
        polled
    }
}

/// Delivers what the log holds next, if it is for the step that was asked last.
fn takes_next() -> bool {
    with(|core| {
        let Ok(true) = core.script.peek() else { return false };
        let Ok(entry) = decode(core.script.shown().1) else { return false };
        let Kind::EffectResult { step, outcome: Outcome::Ok(value), .. } = &entry.kind else { return false };
        if step.0 + 1 != core.state.next_step.0 || *step == StepNo(0) {
            return false;
        }
        let (step, value) = (*step, core.script.keep(value));
        if core.state.apply(&entry).is_err() {
            return false;
        }
        core.script.advance();
        core.deliver(step, Delivered::Value(value))
    })
}
