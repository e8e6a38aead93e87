//! One run, from its claim on: replays the log, then goes on live, one completion at a time.
//!
//! Nothing here waits, reads a clock or touches a store: the worker (or a simulation) tells a [`Life`] what happened and
//! carries out what it wants. A poll of the code is a transaction: its commands are gathered, appended together behind the
//! completion that it was about, and only then acted on.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;

use crate::{
    bodies::{Body, Report, Settle},
    clock::Millis,
    contract::{EffectMeta, Returned, WorkflowFuture, WorkflowMeta},
    core::{Core, Delivered, Restart, Stop, lend, with},
    effect::{Start, panic_text},
    entry::{Entry, Kind, RunStarted},
    fold::RunState,
    head::Started,
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    log::{BatchNo, Log, Lost, Next},
    script::{Script, Source},
    store::{Batch, StoreError, Written},
};

mod commit;
mod ending;
mod messages;
mod replay;
mod timers;

pub(crate) use commit::first_record;
use messages::Mailbox;
use timers::Sleeps;

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// Wall clock, milliseconds since 1970.
    pub(crate) wall: Millis,
    /// Monotonic clock, milliseconds.
    pub(crate) monotonic: Millis,
}

/// The limit on bodies under way, shared by all runs.
pub(crate) trait Slots: Send + Sync {
    /// Takes a slot if one is free.
    fn try_take(&self) -> bool;
    /// Gives one back.
    fn give(&self);
}

/// What a life needs to know of its run and its process.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) run: RunId,
    pub(crate) generation: Generation,
    pub(crate) epoch: Epoch,
    /// Store, run and generation, escaped: what the engine's own keys begin with.
    pub(crate) key_prefix: Arc<str>,
    pub(crate) slots: Arc<dyn Slots>,
    pub(crate) value_bytes_max: usize,
    /// How long a body that nobody waits for may go on before it counts as in doubt, in milliseconds.
    pub(crate) cancel_grace_ms: Millis,
    /// How long a request of an effect that does not say so itself may be under way, in milliseconds.
    pub(crate) settle_ms: Millis,
    /// Finds an effect by its recorded name and module: what is undone is called from the log alone.
    pub(crate) effects: fn(&str, &str) -> Option<&'static EffectMeta>,
    /// How long requests of the effects of that recorded name may be under way, as far as they say so.
    pub(crate) settles: fn(&str) -> Option<Millis>,
    /// A digest of the code, see [`Wait`].
    ///
    /// [`Wait`]: crate::store::Wait
    pub(crate) code: u64,
    /// The life before this one ended without saying so.
    pub(crate) after_crash: bool,
    /// Its first life since the store was opened: what the log says of steps that wait for a person is said again.
    pub(crate) found: bool,
    /// The code was polled before: what it logs while it is replayed it has logged.
    pub(crate) again: bool,
}

/// What a life wants done, in this order.
#[derive(Debug)]
pub(crate) enum Output {
    /// Submit to the store; answer with [`Life::written`].
    Append(BatchNo, Batch),
    /// Read the log back from here; answer with [`Life::read_back`].
    ReadBack(Seq),
    /// Run the body; answer with [`Life::ended`].
    Start(StepNo, Start),
    /// Drop the body: its end matters to nobody.
    Abort(StepNo, Attempt),
    /// Tell the body that nobody waits for it any more.
    Unwanted(StepNo, Attempt),
    /// Ask the reconcile function; answer with [`Life::reconciled`].
    Reconcile(StepNo, Start),
    /// Tell when a slot is free.
    WantSlot,
    /// That run has got a row, or has been made: it is to be woken.
    Nudge(RunId),
}

/// How the code came to its end.
pub(crate) enum Over {
    /// It returned.
    Returned(Returned),
    /// It goes on in a fresh log.
    Restart(Box<Restart>),
}

/// How claiming a run came out.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It goes on.
    Live,
    /// Its log has the terminal entry already.
    Ended,
    /// It cannot go on.
    Stopped(Stop),
    /// Its workflow is not in this binary.
    NoCode { workflow: String, module: String },
}

/// See the module.
pub(crate) struct Life {
    pub(crate) setting: Setting,
    pub(crate) log: Log,
    pub(crate) now: Now,
    /// `None` only while the code is polled.
    core: Option<Box<Core>>,
    future: Option<WorkflowFuture>,
    trip: Arc<Trip>,
    waker: Waker,
    /// Started by whom, with what; from `run.started`.
    pub(crate) started: Option<Started>,
    /// Why the run stops; set at most once.
    pub(crate) stop: Option<Stop>,
    pub(crate) lost: Option<Lost>,
    pub(crate) outputs: Vec<Output>,

    // ---- bodies; see bodies.rs ----
    /// Bodies called by this life, until their end is appended: each holds a slot.
    pub(crate) bodies: BTreeMap<(StepNo, Attempt), Body>,
    /// Bodies past their time that still run, holding no slot.
    pub(crate) lingering: BTreeSet<(StepNo, Attempt)>,
    /// Bodies of earlier lives that are still under way in this process, and whether they hold a slot.
    pub(crate) inherited: BTreeMap<(StepNo, Attempt), bool>,
    /// Those of them that this life has taken over, and whether their slots with them: their ends are its own.
    pub(crate) adopted: BTreeMap<(StepNo, Attempt), bool>,
    /// Called, and begun when the entry at this place is durable.
    pub(crate) barrier: BTreeMap<Seq, (StepNo, Attempt)>,
    /// Ends of bodies, in the order in which they came.
    pub(crate) queue: VecDeque<Report>,
    /// Steps that want a slot, first come first served.
    pub(crate) wanting: VecDeque<StepNo>,
    /// Steps that a dead life called and that are called again when a slot is free.
    pub(crate) redo: BTreeSet<StepNo>,
    /// Bodies' time limits, on the monotonic clock.
    pub(crate) limits: BTreeSet<(Millis, StepNo, Attempt)>,
    /// Retries, on the monotonic clock.
    pub(crate) retries: BTreeSet<(Millis, StepNo)>,
    /// Steps in doubt that are reconciled or were resolved, and when.
    pub(crate) settling: BTreeMap<StepNo, Settle>,
    /// No body runs before its call is durable, not even a `read_only` one, until this life has got a step further: whoever
    /// crashes again and again must be counted.
    pub(crate) careful: bool,
    /// Place of the first completion of this life.
    first_step: Option<Seq>,

    /// When this process last saw that an attempt's outcome is unknown, on the monotonic clock.
    pub(crate) unsure_since: BTreeMap<StepNo, Millis>,

    /// The sleeps, and the deadlines of questions.
    pub(crate) sleeps: Sleeps,
    /// What has come from outside, and who waits for it.
    pub(crate) mailbox: Mailbox,
}

/// Finds the code of a stored run.
pub(crate) type Lookup<'a> = &'a dyn Fn(&RunStarted<'_>) -> Option<&'static WorkflowMeta>;

impl Life {
    pub(crate) fn new(setting: Setting, source: Source) -> Life {
        let trip = Arc::new(Trip(AtomicBool::new(false)));
        let log = Log::new(setting.run.clone(), setting.generation, setting.epoch, Seq(0));
        let (script, run, prefix) = (Script::new(source), setting.run.clone(), setting.key_prefix.clone());
        Life {
            log,
            now: Now::default(),
            core: Some(Core::new(script, setting.value_bytes_max, run, prefix)),
            future: None,
            waker: Waker::from(trip.clone()),
            trip,
            started: None,
            stop: None,
            lost: None,
            outputs: Vec::new(),
            bodies: BTreeMap::new(),
            lingering: BTreeSet::new(),
            inherited: BTreeMap::new(),
            adopted: BTreeMap::new(),
            barrier: BTreeMap::new(),
            queue: VecDeque::new(),
            wanting: VecDeque::new(),
            redo: BTreeSet::new(),
            limits: BTreeSet::new(),
            retries: BTreeSet::new(),
            settling: BTreeMap::new(),
            careful: setting.after_crash,
            first_step: None,
            unsure_since: BTreeMap::new(),
            sleeps: Sleeps::default(),
            mailbox: Mailbox::default(),
            setting,
        }
    }

    pub(crate) fn core(&self) -> &Core {
        match &self.core {
            Some(core) => core,
            None => unreachable!("the core is lent only while the code is polled"),
        }
    }

    pub(crate) fn core_mut(&mut self) -> &mut Core {
        match &mut self.core {
            Some(core) => core,
            None => unreachable!("the core is lent only while the code is polled"),
        }
    }

    pub(crate) fn state(&self) -> &RunState {
        &self.core().state
    }

    /// Whether the terminal entry is appended.
    pub(crate) fn is_over(&self) -> bool {
        self.state().ended
    }

    // ---- polls ----

    /// Polls what has something to do. What stops the run is in the core.
    fn poll_code(&mut self) -> Option<Over> {
        let (Some(core), Some(mut future)) = (self.core.take(), self.future.take()) else { return None };
        let held = Arc::strong_count(&self.trip);
        let (core, polled) = lend(core, || poll_ready(&mut future, &mut Context::from_waker(&self.waker)));
        self.core = Some(core);
        let woken = self.trip.0.load(Ordering::Relaxed) && self.trip.0.swap(false, Ordering::Relaxed);
        let foreign = woken || Arc::strong_count(&self.trip) > held;
        match polled {
            Ok(returned) => {
                self.future = Some(future);
                let core = self.core_mut();
                if foreign {
                    let after = core.last_site;
                    core.halt(Stop::Foreign { after });
                }
                match core.restart.take() {
                    Some(restart) => Some(Over::Restart(restart)),
                    None => returned.map(Over::Returned),
                }
            }
            Err(payload) => {
                self.future = Some(future);
                let core = self.core_mut();
                let after = core.last_site;
                core.halt(Stop::Panicked { message: panic_text(payload), after });
                None
            }
        }
    }

    /// Drops the code's future outside of a poll: nothing is said about the steps it has open.
    pub(crate) fn drop_code(&mut self) {
        if let Some(future) = self.future.take() {
            drop_quietly(future);
        }
        let tasks = self.core_mut().take_tasks();
        tasks.into_iter().for_each(drop_quietly);
    }

    /// After a poll: its commands are appended, those who wait to hear of a cancel get their turns, and the run ends if
    /// the code is over.
    pub(crate) fn polled(&mut self, mut over: Option<Over>) {
        loop {
            let core = self.core_mut();
            if let Some(stop) = core.stop.take() {
                core.fresh.clear();
                self.halt(stop);
                return;
            }
            let fresh = std::mem::take(&mut core.fresh);
            for command in fresh {
                if !self.commit(command) {
                    return;
                }
            }
            self.shields_over();
            if let Some(over) = over {
                return self.code_over(over);
            }
            if self.future.is_none() || !self.core_mut().cancel_turn() {
                return;
            }
            over = self.poll_code();
        }
    }

    pub(crate) fn halt(&mut self, stop: Stop) {
        self.stop.get_or_insert(stop);
        self.drop_code();
    }

    /// Appends an entry: to the state and to the log. False if that is not possible; then the run stops.
    pub(crate) fn append(&mut self, kind: Kind<'_>) -> bool {
        let at = self.now.wall.max(self.state().last_at);
        let entry = Entry { at, kind };
        // The log first: an entry that cannot be written must not be folded.
        let seq = self.state().len;
        if let Err(e) = self.log.append(&entry) {
            let after = self.core().last_site;
            self.halt(Stop::EntryUnrecordable { reason: format!("the entry for seq {seq}: {e}"), after });
            return false;
        }
        match self.core_mut().state.apply(&entry) {
            Ok(()) => {
                self.note_unsure(&entry.kind);
                true
            }
            Err(illegal) => unreachable!("the engine appended an entry that its own fold refuses: {illegal}"),
        }
    }

    /// Appends one completion and gives it to the code at once: a log never holds two without the poll between.
    pub(crate) fn complete(&mut self, kind: Kind<'_>, step: StepNo, delivered: Delivered) {
        let seq = self.state().len;
        if !self.append(kind) {
            return;
        }
        self.first_step.get_or_insert(seq);
        self.deliver(step, delivered);
    }

    /// Gives the code what was appended for it.
    fn deliver(&mut self, step: StepNo, delivered: Delivered) {
        let core = self.core_mut();
        core.now = core.state.last_at;
        if core.deliver(step, delivered) && self.future.is_some() {
            let returned = self.poll_code();
            self.polled(returned);
        }
    }

    /// Whether it was opened without its code, to be cancelled, and nobody who may has asked for that.
    pub(crate) fn is_without_purpose(&self) -> bool {
        !self.has_code() && self.state().ending.is_none() && self.stop.is_none() && self.log.is_settled()
    }

    /// Whether nothing more becomes of what was appended: all of it is durable, or the store has answered and does not take the rest.
    pub(crate) fn is_closed(&self) -> bool {
        let given_up = self.lost.is_some() || self.log.trouble().is_some();
        self.log.is_settled() || given_up && self.log.is_answered()
    }

    /// Whether the code is there to be polled.
    pub(crate) fn has_code(&self) -> bool {
        self.future.is_some()
    }

    // ---- live ----

    /// Does the next thing there is to do; false if there is none now.
    pub(crate) fn turn(&mut self, now: Now) -> bool {
        self.now = now;
        if let Next::Look { from } = self.log.next(now.monotonic) {
            self.outputs.push(Output::ReadBack(from));
        }
        // A store that refuses: the code is not polled meanwhile.
        if self.stop.is_some() || self.lost.is_some() || self.is_over() || self.log.trouble().is_some() {
            return false;
        }
        if !self.has_code() && self.state().ending.is_none() {
            // Opened without its code to be cancelled: until it is, its log stays as the code has left it.
            let cancel = self.mailbox.next_cancel();
            let found = cancel.is_some();
            if let Some((id, message)) = cancel {
                self.fact(id, message);
            }
            return found;
        }
        if let Some(report) = self.queue.pop_front() {
            self.body_ended(report);
            return true;
        }
        if let Some((id, message)) = self.mailbox.next_fact() {
            self.fact(id, message);
            return true;
        }
        if let Some((step, attempt)) = self.next_limit() {
            self.out_of_time(step, attempt);
            return true;
        }
        self.next_reply()
            || self.next_sleep()
            || self.next_signal()
            || self.next_call()
            || self.next_settled()
            || self.cancelled()
            || self.finish()
            || self.idle()
    }

    /// When there may be something to do without anything happening: on the monotonic clock, and on the wall clock.
    pub(crate) fn due(&self) -> (Option<Millis>, Option<Millis>) {
        if self.log.trouble().is_some() {
            return (self.log.due(), None);
        }
        let (sleep, wall) = self.sleeps.due();
        let firsts = [
            sleep,
            self.retries.first().map(|(at, _)| *at),
            self.limits.first().map(|(at, ..)| *at),
            self.settling.values().map(|settle| settle.due).min(),
            self.undo_due().filter(|due| *due > self.now.monotonic),
        ];
        (firsts.into_iter().flatten().min(), wall)
    }

    /// Whether what was appended may be kept back for a moment: it is new, and nobody waits until it is durable. A body that is
    /// over at once then has its end written together with its call.
    pub(crate) fn may_hold_back(&self) -> bool {
        !self.is_awaited() && self.log.is_about_to_send() && self.log.trouble().is_none()
    }

    /// Whether somebody waits until what was appended is durable.
    fn is_awaited(&self) -> bool {
        // Without code it ends, or is let go of, once that is durable.
        !self.barrier.is_empty() || self.is_over() || self.stop.is_some() || !self.has_code()
    }

    /// What to do now: first what to append, unless it is kept back, then what that allows.
    pub(crate) fn take_outputs(&mut self, hold_back: bool) -> Vec<Output> {
        let gathered = std::mem::take(&mut self.outputs);
        if hold_back {
            return gathered;
        }
        // What is sent again comes before what was gathered since.
        let (mut outputs, rest): (Vec<_>, Vec<_>) =
            gathered.into_iter().partition(|output| matches!(output, Output::Append(..)));
        let batch = self.log.flush(self.is_awaited());
        outputs.extend(batch.map(|(no, batch)| Output::Append(no, batch)));
        outputs.extend(rest);
        outputs
    }

    /// What became of a batch.
    pub(crate) fn written(&mut self, no: BatchNo, result: Result<Written, StoreError>, now: Now) {
        self.now = now;
        let result = self.log.written(no, result, now.wall, now.monotonic);
        self.settle_log(result);
    }

    /// What stands in the store.
    pub(crate) fn read_back(&mut self, stored: Result<Bytes, StoreError>, now: Now) {
        self.now = now;
        let result = self.log.read_back(stored, now.wall, now.monotonic);
        self.settle_log(result);
    }

    fn settle_log(&mut self, result: Result<Vec<(BatchNo, Batch)>, Lost>) {
        match result {
            Ok(again) => self.outputs.extend(again.into_iter().map(|(no, batch)| Output::Append(no, batch))),
            Err(lost) => {
                self.lost.get_or_insert(lost);
                self.drop_code();
            }
        }
        if self.first_step.is_some_and(|seq| seq < self.log.durable()) {
            self.careful = false;
        }
        self.outputs.extend(self.log.take_nudges().into_iter().map(Output::Nudge));
        self.pass_barrier();
    }
}

/// Polls, in a lent core, whatever a completion has marked, until nothing is.
fn poll_ready(root: &mut WorkflowFuture, cx: &mut Context<'_>) -> Option<Returned> {
    loop {
        while let Some((task, mut future, scope)) = with(Core::next_task) {
            let before = with(|core| core.enter(scope));
            let polled = future.as_mut().poll(cx);
            with(|core| core.enter(before));
            let rest = match polled {
                Poll::Ready(()) => {
                    drop(future);
                    None
                }
                Poll::Pending => Some(future),
            };
            with(|core| core.put_task(task, rest));
        }
        // What restarts in a fresh log asks for nothing more.
        if with(|core| core.restart.is_some()) || !with(Core::take_root_ready) {
            return None;
        }
        if let Poll::Ready(returned) = Pin::new(&mut *root).poll(cx) {
            // What was begun and never awaited is closed within this poll, in the order begun.
            let tasks = with(Core::take_tasks);
            drop(tasks);
            return Some(returned);
        }
    }
}

/// Drops user code, which may panic.
fn drop_quietly<T>(code: T) {
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(code))) {
        let _ = panic_text(payload);
    }
}

/// The root's waker: whoever clones or wakes it awaits something that is no step.
struct Trip(AtomicBool);

impl Wake for Trip {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
