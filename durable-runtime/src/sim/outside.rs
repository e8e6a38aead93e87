//! The world outside: what bodies did there, requests that are still under way, providers that remember keys. The engine
//! learns of it only by what bodies return, and by reconcile functions.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::sync::watch;

use super::{
    Rng,
    effects::{ANSWERS, NO, SAYS, SEEN, Says, TIMEOUT_MS, UNDER_WAY_MS},
};
use crate::{
    clock::Millis,
    contract::{Contract, ReconcileEnd, WhenInDoubt},
    effect::{BodyEnd, CatchPanic, Invocation, Resources, Start},
    failure::{Failure, Reconciled},
    id::{Attempt, Generation, RunId, StepNo},
    value::ValueError,
};

/// How an ended body is told to the engine.
pub(super) type Ended = Result<BodyEnd, ValueError>;

/// A step of a run: of which log, and its number there.
pub(super) type StepOf = (usize, Generation, StepNo);

/// A body that was begun.
pub(super) struct Begun {
    /// When, in true time.
    pub(super) at: Millis,
    /// In which place, and by which process there.
    pub(super) place: usize,
    pub(super) process: u64,
    /// By which task of the process, and in which of its lives.
    pub(super) task: u64,
    pub(super) life: u64,
    pub(super) run: usize,
    pub(super) generation: Generation,
    pub(super) step: StepNo,
    pub(super) start: Start,
    /// The arguments, decoded.
    pub(super) no: u64,
    pub(super) seen: u64,
    /// Entries that the store held then.
    pub(super) stored: u64,
    /// How it ended, if its process lived to see it.
    pub(super) end: Option<BodyEnd>,
    /// Its future is there.
    pub(super) running: bool,
    /// The process has not heard of its end.
    pub(super) listed: bool,
    /// Its life is over, and it still holds a slot.
    pub(super) slot: bool,
}

impl Begun {
    pub(super) fn step(&self) -> StepOf {
        (self.run, self.generation, self.step)
    }
}

/// Something that happens outside at its time.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The request of this body has its effect.
    Land(usize),
    /// The body returns.
    Return(usize, How),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Value,
    Error(u64),
    Doubt,
    Panic,
    NotRecordable,
}

/// A body that has returned just now: its number, and how it ended.
pub(super) struct Return {
    pub(super) body: usize,
    pub(super) end: Ended,
}

#[derive(Default)]
pub(super) struct Outside {
    pub(super) begun: Vec<Begun>,
    /// What happened: when, by which body, with what value.
    pub(super) landed: Vec<(Millis, usize, u64)>,
    providers: BTreeMap<String, u64>,
    events: BTreeMap<(Millis, u64), Event>,
    next: u64,
}

impl Outside {
    fn at(&mut self, at: Millis, event: Event) {
        self.next += 1;
        self.events.insert((at, self.next), event);
    }

    pub(super) fn due(&self) -> Option<Millis> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// A body begins: what it will do is decided here.
    pub(super) fn begin(&mut self, rng: &mut Rng, faults: bool, mut begun: Begun) {
        let i = self.begun.len();
        let args = &begun.start.args;
        begun.no = (NO.read)(args, "no").unwrap_or(0);
        begun.seen = (SEEN.read)(args, "seen").unwrap_or(0);
        let (now, meta) = (begun.at, begun.start.meta);
        let limited =
            meta.contract != Contract::AtMostOnce && (meta.timeout_ms.is_some() || meta.contract.is_outward());
        self.begun.push(begun);
        let land = now + 1 + rng.below(15);
        let back = land + 1 + rng.below(15);
        let late = land + rng.below(UNDER_WAY_MS - TIMEOUT_MS);
        let (lands, returns) = match if faults { rng.below(23) } else { 99 } {
            0..=2 => (None, Some((back, How::Error(rng.below(9))))),
            3 => (Some(land), Some((back, How::Error(rng.below(9))))),
            4 => (rng.one_in(2).then_some(late), Some((back, How::Doubt))),
            5 => (rng.one_in(2).then_some(late), Some((back, How::Panic))),
            6 => (rng.one_in(2).then_some(late), Some((now + 4_000 + rng.below(4_000), How::Error(1)))),
            7 => (Some(late), Some((late + 1 + rng.below(3 * TIMEOUT_MS), How::Value))),
            8 => (Some(land), Some((back, How::NotRecordable))),
            // It returns at once.
            9..=11 => (Some(now), Some((now, How::Value))),
            // It never returns. Of what must not be repeated nobody would ever know more.
            12 if limited => (rng.one_in(2).then_some(late), None),
            _ => (Some(land), Some((back, How::Value))),
        };
        if let Some(at) = lands {
            self.at(at, Event::Land(i));
        }
        if let Some((at, how)) = returns {
            self.at(at, Event::Return(i, how));
        }
    }

    /// Whatever is due by now; bodies that return are answered.
    pub(super) fn happen(&mut self, rng: &mut Rng, now: Millis) -> Vec<Return> {
        let mut returns = Vec::new();
        while let Some((&(at, n), &event)) = self.events.first_key_value()
            && at <= now
        {
            self.events.remove(&(at, n));
            match event {
                Event::Land(i) => self.land(rng, now, i),
                Event::Return(i, how) if self.begun[i].running => returns.push(self.end(i, how)),
                Event::Return(..) => {}
            }
        }
        returns
    }

    fn land(&mut self, rng: &mut Rng, now: Millis, i: usize) {
        let start = &self.begun[i].start;
        let value = rng.below(1_000_000);
        if start.meta.contract == Contract::Keyed {
            if self.providers.contains_key(&start.key) {
                return;
            }
            self.providers.insert(start.key.clone(), value);
        }
        self.landed.push((now, i, value));
    }

    fn end(&mut self, i: usize, how: How) -> Return {
        let value = match self.providers.get(&self.begun[i].start.key) {
            Some(value) if self.begun[i].start.meta.contract == Contract::Keyed => Some(*value),
            _ => self.landed.iter().find(|(_, by, _)| *by == i).map(|(.., value)| *value),
        };
        let says = match how {
            How::Value => Says::Value(value.unwrap_or_default()),
            How::Error(error) => Says::Error(error),
            How::Doubt => Says::Doubt,
            How::Panic | How::NotRecordable => Says::Panic,
        };
        let begun = &mut self.begun[i];
        begun.running = false;
        let end = match how {
            How::NotRecordable => Ok(BodyEnd::NotRecordable { reason: "it does not come back equal".into() }),
            _ => {
                SAYS.set(Some(says));
                let (run, call) = (begun.start.meta.run, invocation(&begun.start));
                poll(CatchPanic(Box::pin(async move { run(call).await })))
            }
        };
        begun.end = end.as_ref().ok().cloned();
        Return { body: i, end }
    }

    /// The body's future is dropped; a request may still be under way.
    pub(super) fn abort(&mut self, task: u64, step: (Generation, StepNo), attempt: Attempt) {
        if let Some(begun) = self.listed(task, step, attempt) {
            begun.running = false;
            begun.listed = false;
        }
    }

    /// A task's own note of a body.
    pub(super) fn listed(&mut self, task: u64, step: (Generation, StepNo), attempt: Attempt) -> Option<&mut Begun> {
        let is =
            |b: &&mut Begun| b.listed && b.task == task && (b.generation, b.step) == step && b.start.attempt == attempt;
        self.begun.iter_mut().find(is)
    }

    /// Strikes a body off; answers whether it was listed, and whether it held a slot by itself.
    pub(super) fn forget(&mut self, body: usize) -> Option<bool> {
        let begun = &mut self.begun[body];
        std::mem::take(&mut begun.listed).then(|| std::mem::take(&mut begun.slot))
    }

    /// Somebody tells the body that nobody waits for it; now and then it listens, and says that it does not know.
    pub(super) fn unwanted(&mut self, rng: &mut Rng, now: Millis, task: u64, step: (Generation, StepNo)) {
        let is = |b: &Begun| b.running && b.task == task && (b.generation, b.step) == step;
        let Some(i) = self.begun.iter().position(is) else { return };
        if rng.one_in(2) {
            self.at(now + 1 + rng.below(5), Event::Return(i, How::Doubt));
        }
    }

    /// A process dies. Half of the requests that were under way still arrive, some time later.
    pub(super) fn crash(&mut self, rng: &mut Rng, now: Millis, process: u64) {
        for begun in self.begun.iter_mut().filter(|begun| begun.process == process) {
            begun.running = false;
            begun.listed = false;
            begun.slot = false;
        }
        let events = std::mem::take(&mut self.events);
        for ((at, n), event) in events {
            let (Event::Land(i) | Event::Return(i, _)) = event;
            if self.begun[i].process != process {
                self.events.insert((at, n), event);
            } else if matches!(event, Event::Land(_)) && rng.one_in(2) {
                let latest = self.begun[i].at + UNDER_WAY_MS;
                let at =
                    if rng.one_in(2) { at } else { latest.max(now) - rng.below(latest.saturating_sub(now).max(1)) };
                self.events.insert((at.max(now), n), event);
            }
        }
    }

    /// The value with which the step's effect has happened.
    pub(super) fn happened(&self, step: StepOf) -> Option<u64> {
        self.landed.iter().find(|(_, i, _)| self.begun[*i].step() == step).map(|(.., value)| *value)
    }

    /// Whether a request of the step is still under way.
    pub(super) fn is_under_way(&self, step: StepOf) -> bool {
        self.events.values().any(|event| matches!(*event, Event::Land(i) if self.begun[i].step() == step))
    }

    /// Whether a body of the step has its future in the task.
    pub(super) fn runs(&self, task: u64, step: StepOf, attempt: Attempt) -> bool {
        let is = |b: &Begun| b.running && b.task == task && b.step() == step && b.start.attempt == attempt;
        self.begun.iter().any(is)
    }

    pub(super) fn running(&self, process: u64) -> usize {
        self.begun.iter().filter(|b| b.running && b.process == process).count()
    }

    /// A reconcile function looks.
    pub(super) fn reconcile(&self, rng: &mut Rng, lies: bool, step: StepOf, start: &Start) -> ReconcileAnswer {
        let WhenInDoubt::Reconcile { run: ask, .. } = start.meta.in_doubt else { return Ok(ReconcileEnd::Unknown) };
        ANSWERS.set(Some(match self.happened(step) {
            _ if rng.one_in(8) => Ok(Reconciled::Unknown),
            _ if rng.one_in(16) => Err(Failure::new("the provider is down")),
            Some(value) if !lies => Ok(Reconciled::Happened(value)),
            _ => Ok(Reconciled::CannotHappen),
        }));
        poll(ask(invocation(start)))
    }
}

pub(super) type ReconcileAnswer = Result<ReconcileEnd, ValueError>;

fn invocation(start: &Start) -> Invocation {
    let run = RunId::new("the simulation's").unwrap();
    Invocation::new(start, run, Arc::new(Resources::default()), watch::channel(false).1, None)
}

/// Bodies of the simulation return when they are polled first.
fn poll<T>(mut future: impl Future<Output = T> + Unpin) -> T {
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => out,
        Poll::Pending => unreachable!("bodies of the simulation await nothing"),
    }
}
