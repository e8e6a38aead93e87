//! From a claim to the end of the log: the code is polled against what was recorded. Nothing is appended, no body runs.

use bytes::Bytes;

use super::{Life, Lookup, Now, Opened, Over, messages::child_delivered};
use crate::{
    core::{Delivered, Stop, diverged},
    effect::panic_text,
    entry::{Answered, Kind, Outcome, decode},
    head::Started,
    id::{Seq, StepNo},
    log::Log,
    store::StoreError,
    value::{Args, Value},
};

impl Life {
    /// Replays the log to its end. No body runs, nothing is appended. Without `lookup` the code is not asked: the run goes on
    /// from the log alone, and there is nothing that it may do but end.
    pub(crate) fn replay(&mut self, now: Now, lookup: Option<Lookup<'_>>) -> Opened {
        self.now = now;
        // What the code says while it is replayed it has said before; what is found at the end of the log is new.
        let replayed = if self.setting.again {
            let quiet = tracing::subscriber::NoSubscriber::default();
            tracing::subscriber::with_default(quiet, || self.replay_recorded(lookup))
        } else {
            self.replay_recorded(lookup)
        };
        let opened = match replayed {
            Ok(_) if self.is_over() => Opened::Ended,
            Ok(over) => {
                self.replayed(over);
                self.stop.take().map_or(Opened::Live, Opened::Stopped)
            }
            Err(opened) => opened,
        };
        if !matches!(opened, Opened::Live) {
            self.drop_code();
        }
        opened
    }

    /// Up to the end of the log; how the code came to its end, if it did.
    fn replay_recorded(&mut self, lookup: Option<Lookup<'_>>) -> Result<Option<Over>, Opened> {
        match self.begin(lookup) {
            Ok(None) => {}
            Ok(Some(opened)) => return Err(opened),
            Err(stop) => return Err(Opened::Stopped(stop)),
        }
        let mut over = None;
        loop {
            if self.future.is_some() && over.is_none() {
                over = self.poll_code();
                if let Some(stop) = self.core_mut().stop.take()
                    && let Err(stop) = self.ends_anyway(stop)
                {
                    return Err(Opened::Stopped(stop));
                }
            }
            let more = match self.next_recorded(over.is_some()) {
                Ok(more) => more,
                Err(stop) => match self.ends_anyway(stop) {
                    Ok(()) => true,
                    Err(stop) => return Err(Opened::Stopped(stop)),
                },
            };
            if self.core().over {
                self.drop_code();
                over = None;
            }
            if !more {
                return Ok(over);
            }
        }
    }

    /// Reads `run.started` and makes the code's future.
    fn begin(&mut self, lookup: Option<Lookup<'_>>) -> Result<Option<Opened>, Stop> {
        if !self.core_mut().script.peek()? {
            let what = "its log is empty".into();
            let run = Some(self.setting.run.clone());
            return Err(Stop::Store(StoreError::Damaged { place: "log".into(), run, seq: Some(Seq(0)), what }));
        }
        let Some(core) = &mut self.core else { unreachable!("the core is lent only while the code is polled") };
        let (seq, frame) = core.script.shown();
        let entry = decode(frame).map_err(|e| Stop::Entry(seq, e))?;
        core.state.apply(&entry).map_err(Stop::Illegal)?;
        let Kind::RunStarted(started) = &entry.kind else {
            unreachable!("the fold takes nothing else at seq 0");
        };
        core.now = entry.at;
        core.seed = started.seed;
        self.started = Some(Started::of(started));
        let found = lookup.map(|lookup| {
            lookup(started).ok_or_else(|| Opened::NoCode {
                workflow: started.workflow.to_string(),
                module: started.module.to_string(),
            })
        });
        let args = Args::from_value(Value::from_bytes(core.script.keep(&started.args)));
        core.script.advance();
        let meta = match found {
            Some(Ok(meta)) => meta,
            Some(Err(no_code)) => return Ok(Some(no_code)),
            None => return Ok(None),
        };
        // Decoding is user code, and may panic.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (meta.run)(args))) {
            Ok(Ok(future)) => self.future = Some(future),
            Ok(Err(error)) => return Err(Stop::Undecodable { step: meta.name.to_owned(), site: None, error }),
            Err(payload) => return Err(Stop::Panicked { message: panic_text(payload), after: None }),
        }
        Ok(None)
    }

    /// A run whose log holds `run.ending` ends from the log alone: what its code does now is of no account. `Ok`: the
    /// log was read up to there.
    fn ends_anyway(&mut self, stop: Stop) -> Result<(), Stop> {
        if matches!(stop, Stop::Store(_) | Stop::Entry(..) | Stop::Illegal(_)) {
            return Err(stop);
        }
        self.drop_code();
        loop {
            let core = self.core_mut();
            if !core.script.peek()? {
                return Err(stop);
            }
            let (seq, frame) = core.script.shown();
            let entry = decode(frame).map_err(|e| Stop::Entry(seq, e))?;
            core.state.apply(&entry).map_err(Stop::Illegal)?;
            core.script.advance();
            if core.state.ending.is_some() {
                core.over = true;
                return Ok(());
            }
        }
    }

    /// Folds recorded entries up to the completion that the code is polled for next. False at the end of the log.
    fn next_recorded(&mut self, over: bool) -> Result<bool, Stop> {
        loop {
            let coded = self.future.is_some() && !over;
            let core = self.core_mut();
            if !core.fresh.is_empty() {
                return Ok(false);
            }
            if !core.script.peek()? {
                return Ok(false);
            }
            // Before any other completion; at the end of the log it is this life that gives them their turns.
            if coded && core.cancel_turn() {
                return Ok(true);
            }
            let (seq, frame) = core.script.shown();
            let entry = decode(frame).map_err(|e| Stop::Entry(seq, e))?;
            if (coded || over) && entry.kind.is_command() {
                return Err(diverged(seq, &entry, None));
            }
            core.state.apply(&entry).map_err(Stop::Illegal)?;
            let ends = matches!(entry.kind, Kind::RunEnding(_) | Kind::RunEnded(_));
            if matches!(entry.kind, Kind::CancelRequested { .. }) {
                core.cancelled = true;
                core.now = entry.at;
            }
            let (at, completion) = (entry.at, completion(&entry.kind, |part| core.script.keep(part)));
            core.script.advance();
            if let Some((step, delivered)) = completion
                && core.deliver(step, delivered)
            {
                core.now = at;
                return Ok(true);
            }
            if ends {
                core.over = true;
                self.drop_code();
            }
        }
    }

    /// The end of the log is reached: what the last poll asked beyond it is appended, and what earlier lives left open is taken over.
    fn replayed(&mut self, over: Option<Over>) {
        let len = self.state().len;
        self.log = Log::new(self.setting.run.clone(), self.setting.generation, self.setting.epoch, len);
        self.arm();
        self.polled(over);
        self.cancel_before_going_on();
        if self.stop.is_none() {
            self.take_over();
        }
    }

    /// A cancel that was durable before this life began comes before all that the code could be given now: whoever asked for it
    /// while nothing ran would otherwise find the run a step further, or completed.
    fn cancel_before_going_on(&mut self) {
        while self.has_code()
            && self.state().cancel.is_none()
            && let Some((row, message)) = self.mailbox.next_cancel()
        {
            self.fact(row, message);
        }
    }
}

/// What a recorded completion gives to its step.
fn completion(kind: &Kind<'_>, keep: impl Fn(&[u8]) -> Bytes) -> Option<(StepNo, Delivered)> {
    let (step, delivered) = match kind {
        Kind::EffectResult { step, outcome, .. } => (step, outcome_delivered(outcome, keep)),
        Kind::TimerFired { step } => (step, Delivered::Fired),
        Kind::SignalReceived { step, messages } => {
            (step, Delivered::Messages(messages.iter().map(|message| keep(&message.value)).collect()))
        }
        Kind::QuestionAnswered { step, answer, .. } => {
            let delivered = match answer {
                Answered::Granted(value) => Delivered::Granted(keep(value)),
                Answered::Refused(reason) => Delivered::Refused(reason.to_string()),
                Answered::Expired => Delivered::Expired,
            };
            (step, delivered)
        }
        Kind::ChildEnded { step, run, end } => (step, child_delivered(run, end, keep)),
        _ => return None,
    };
    Some((*step, delivered))
}

fn outcome_delivered(outcome: &Outcome<'_>, keep: impl Fn(&[u8]) -> Bytes) -> Delivered {
    match outcome {
        Outcome::Ok(value) | Outcome::Err(value) => Delivered::Value(keep(value)),
        Outcome::Fault(fault) => Delivered::Fault(Box::new(fault.0.clone())),
    }
}
