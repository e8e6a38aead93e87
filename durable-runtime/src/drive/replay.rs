//! From a claim to the end of the log: the code is polled against what was recorded. Nothing is appended, no body runs.

use bytes::Bytes;

use super::{Life, Lookup, Now, Opened, Over, messages::child_delivered};
use crate::{
    core::{Delivered, Stop},
    effect::panic_text,
    entry::{Answered, Kind, Outcome, decode},
    failure::Fault,
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
        let opened = if self.setting.again {
            let quiet = tracing::subscriber::NoSubscriber::default();
            tracing::subscriber::with_default(quiet, || self.replay_all(lookup))
        } else {
            self.replay_all(lookup)
        };
        if !matches!(opened, Opened::Live) {
            self.drop_code();
        }
        opened
    }

    fn replay_all(&mut self, lookup: Option<Lookup<'_>>) -> Opened {
        match self.begin(lookup) {
            Ok(None) => {}
            Ok(Some(opened)) => return opened,
            Err(stop) => return Opened::Stopped(stop),
        }
        let mut over = None;
        loop {
            if self.future.is_some() && over.is_none() {
                over = self.poll_code();
                if let Some(stop) = self.core_mut().stop.take()
                    && let Err(stop) = self.ends_anyway(stop)
                {
                    return Opened::Stopped(stop);
                }
            }
            let more = match self.next_recorded(over.is_some()) {
                Ok(more) => more,
                Err(stop) => match self.ends_anyway(stop) {
                    Ok(()) => true,
                    Err(stop) => return Opened::Stopped(stop),
                },
            };
            if self.core().over {
                self.drop_code();
                over = None;
            }
            if !more {
                break;
            }
        }
        if self.is_over() {
            return Opened::Ended;
        }
        self.replayed(over);
        match self.stop.take() {
            Some(stop) => Opened::Stopped(stop),
            None => Opened::Live,
        }
    }

    /// Reads `run.started` and makes the code's future.
    fn begin(&mut self, lookup: Option<Lookup<'_>>) -> Result<Option<Opened>, Stop> {
        let Some((_, frame)) = self.core_mut().script.peek()? else {
            let what = "its log is empty".into();
            let run = Some(self.setting.run.clone());
            return Err(Stop::Store(StoreError::Damaged { place: "log".into(), run, seq: Some(Seq(0)), what }));
        };
        let entry = decode(&frame).map_err(|e| Stop::Entry(Seq(0), e))?;
        let core = self.core_mut();
        if !core.pass(&entry) {
            return Err(core.stop.take().unwrap_or(Stop::Foreign { after: None }));
        }
        let Kind::RunStarted(started) = &entry.kind else {
            unreachable!("the fold takes nothing else at seq 0");
        };
        core.now = entry.at;
        core.seed = started.seed;
        self.started = Some(Started::of(started));
        let Some(lookup) = lookup else { return Ok(None) };
        let Some(meta) = lookup(started) else {
            let (workflow, module) = (started.workflow.to_string(), started.module.to_string());
            return Ok(Some(Opened::NoCode { workflow, module }));
        };
        let args = Args::from_value(Value::from_bytes(frame.slice_ref(&started.args)));
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
            let Some((_, frame)) = core.script.peek()? else { return Err(stop) };
            let entry = decode(&frame).map_err(|e| Stop::Entry(core.state.len, e))?;
            if !core.pass(&entry) {
                return Err(core.stop.take().unwrap_or(stop));
            }
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
            let Some((seq, frame)) = core.script.peek().map_err(Stop::from)? else { return Ok(false) };
            // Before any other completion; at the end of the log it is this life that gives them their turns.
            if coded && core.cancel_turn() {
                return Ok(true);
            }
            let entry = decode(&frame).map_err(|e| Stop::Entry(seq, e))?;
            if (coded || over) && entry.kind.is_command() {
                core.diverge(seq, &entry, None);
                return Err(core.stop.take().unwrap_or(Stop::Foreign { after: None }));
            }
            if !core.pass(&entry) {
                return Err(core.stop.take().unwrap_or(Stop::Foreign { after: None }));
            }
            match &entry.kind {
                Kind::RunEnding(_) | Kind::RunEnded(_) => {
                    core.over = true;
                    self.drop_code();
                }
                Kind::CancelRequested { .. } => {
                    core.cancelled = true;
                    core.now = entry.at;
                }
                kind => {
                    if let Some((step, delivered)) = completion(kind, &frame)
                        && core.deliver(step, delivered)
                    {
                        core.now = entry.at;
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// The end of the log is reached: what the last poll asked beyond it is appended, and what earlier lives left open is taken over.
    fn replayed(&mut self, over: Option<Over>) {
        let len = self.state().len;
        self.log = Log::new(self.setting.run.clone(), self.setting.generation, self.setting.epoch, len);
        self.arm();
        self.polled(over);
        if self.stop.is_none() {
            self.take_over();
        }
    }
}

/// What a recorded completion gives to its step.
fn completion(kind: &Kind<'_>, frame: &Bytes) -> Option<(StepNo, Delivered)> {
    let (step, delivered) = match kind {
        Kind::EffectResult { step, outcome, .. } => (step, outcome_delivered(outcome, frame)),
        Kind::TimerFired { step } => (step, Delivered::Fired),
        Kind::SignalReceived { step, messages } => {
            (step, Delivered::Messages(messages.iter().map(|message| frame.slice_ref(&message.value)).collect()))
        }
        Kind::QuestionAnswered { step, answer, .. } => {
            let delivered = match answer {
                Answered::Granted(value) => Delivered::Granted(frame.slice_ref(value)),
                Answered::Refused(reason) => Delivered::Refused(reason.to_string()),
                Answered::Expired => Delivered::Expired,
            };
            (step, delivered)
        }
        Kind::ChildEnded { step, run, end } => (step, child_delivered(run, end, |value| frame.slice_ref(value))),
        _ => return None,
    };
    Some((*step, delivered))
}

fn outcome_delivered(outcome: &Outcome<'_>, frame: &Bytes) -> Delivered {
    match outcome {
        Outcome::Ok(value) | Outcome::Err(value) => Delivered::Value(frame.slice_ref(value)),
        Outcome::Fault(fault) => Delivered::Fault(Fault::clone(&fault.0)),
    }
}
