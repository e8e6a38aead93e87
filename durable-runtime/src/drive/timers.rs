//! A run's sleeps, and the deadlines of its questions.

use std::collections::{BTreeMap, BTreeSet};

use super::Life;
use crate::{
    clock::Millis,
    core::Delivered,
    entry::{Answered, Kind},
    fold::{StepState, What},
    id::StepNo,
};

/// What is due when.
#[derive(Default)]
pub(crate) struct Sleeps {
    /// By the monotonic clock.
    elapsing: BTreeSet<(Millis, StepNo)>,
    /// The same, by step.
    due_of: BTreeMap<StepNo, Millis>,
    /// By the wall clock.
    until: BTreeSet<(Millis, StepNo)>,
    /// What an earlier life of this process knew of the monotonic clock: a wall clock that was set meanwhile neither shortens
    /// nor lengthens what elapses.
    pub(crate) known: BTreeMap<StepNo, Millis>,
}

impl Sleeps {
    /// The first on the monotonic clock, and the first on the wall clock.
    pub(super) fn due(&self) -> (Option<Millis>, Option<Millis>) {
        (self.elapsing.first().map(|(at, _)| *at), self.until.first().map(|(at, _)| *at))
    }

    /// All that elapses, for a later life in this process.
    pub(crate) fn elapsing(&self) -> impl Iterator<Item = (StepNo, Millis)> + '_ {
        self.due_of.iter().map(|(step, due)| (*step, *due))
    }

    /// Whether what elapses for a step has elapsed.
    pub(crate) fn is_due(&self, step: StepNo, monotonic: Millis) -> bool {
        self.due_of.get(&step).is_some_and(|due| *due <= monotonic)
    }

    fn next(&mut self, monotonic: Millis, wall: Millis) -> Option<StepNo> {
        if self.elapsing.first().is_some_and(|(due, _)| *due <= monotonic) {
            let (_, step) = self.elapsing.pop_first()?;
            self.due_of.remove(&step);
            return Some(step);
        }
        if self.until.first().is_some_and(|(due, _)| *due <= wall) {
            return self.until.pop_first().map(|(_, step)| step);
        }
        None
    }
}

impl Life {
    pub(super) fn arm_timer(&mut self, step: StepNo, deadline: Millis, absolute: bool) {
        if absolute {
            self.sleeps.until.insert((deadline, step));
        } else {
            let due = self.sleeps.known.remove(&step).unwrap_or_else(|| self.monotonic_of(deadline));
            self.sleeps.elapsing.insert((due, step));
            self.sleeps.due_of.insert(step, due);
        }
    }

    /// A sleep that was dropped wakes nobody.
    pub(crate) fn disarm_timer(&mut self, step: StepNo, deadline: Millis) {
        self.sleeps.until.remove(&(deadline, step));
        if let Some(due) = self.sleeps.due_of.remove(&step) {
            self.sleeps.elapsing.remove(&(due, step));
        }
    }

    /// A recorded time of the wall clock, on this process's monotonic clock.
    pub(crate) fn monotonic_of(&self, wall: Millis) -> Millis {
        self.now.monotonic.saturating_add(wall.saturating_sub(self.now.wall))
    }

    /// A time of the monotonic clock, as the wall clock will show it if nobody sets it.
    pub(super) fn wall_of(&self, monotonic: Millis) -> Millis {
        self.now.wall.saturating_add(monotonic.saturating_sub(self.now.monotonic))
    }

    /// Sets the clocks of what is open after a replay, and notes who waits for what.
    pub(super) fn arm(&mut self) {
        let open: Vec<_> = self.state().steps.iter().map(|(no, step)| (*no, step.clone())).collect();
        for (no, step) in open {
            if step.unsure {
                self.unsure_since.insert(no, self.now.monotonic);
            }
            if step.state != StepState::Waiting || self.is_stopped(no) {
                continue;
            }
            match &step.what {
                What::Timer { deadline, absolute } => self.arm_timer(no, *deadline, *absolute),
                What::Signal { name, .. } => self.mailbox.wait(name, no),
                What::Question(question) => {
                    self.mailbox.questions.insert(no);
                    if let Some(deadline) = question.question.deadline {
                        self.arm_timer(no, deadline, false);
                    }
                }
                What::Child { .. } | What::Effect(_) => {}
            }
        }
    }

    /// The next sleep that is over, or question that nobody answered in time.
    pub(super) fn next_sleep(&mut self) -> bool {
        if self.state().ending.is_some() {
            return false;
        }
        let (monotonic, wall) = (self.now.monotonic, self.now.wall);
        let Some(step) = self.sleeps.next(monotonic, wall) else { return false };
        if self.mailbox.questions.remove(&step) {
            let kind = Kind::QuestionAnswered { step, answer: Answered::Expired, by: "".into() };
            self.complete(kind, step, Delivered::Expired);
        } else {
            self.complete(Kind::TimerFired { step }, step, Delivered::Fired);
        }
        true
    }
}
