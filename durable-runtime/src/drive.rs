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
    contract::{Returned, WorkflowFuture, WorkflowMeta},
    core::{Core, Delivered, Fresh, Stop, Until, lend, with},
    effect::{Start, panic_text},
    entry::{Call, End, Entry, Kind, Outcome, RunStarted},
    failure::{Fault, shortened},
    fold::{RunState, StepState, What},
    head::{HeadInfo, Started},
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    log::{BatchNo, Log, Lost, Next},
    script::{Script, Source},
    store::{Batch, Row, StoreError, Written},
};

mod replay;

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
    pub(crate) unwanted_grace_ms: Millis,
    /// The life before this one ended without saying so.
    pub(crate) after_crash: bool,
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
    /// Those of them that this life has taken over: their ends are its own.
    pub(crate) adopted: BTreeSet<(StepNo, Attempt)>,
    /// Called, and begun when the entry at this place is durable.
    pub(crate) barrier: BTreeMap<Seq, (StepNo, Attempt)>,
    /// Ends of bodies, in the order in which they came.
    pub(crate) queue: VecDeque<Report>,
    /// Rows of the mailbox, oldest first.
    pub(crate) rows: VecDeque<Row>,
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

    // ---- sleeps ----
    /// Sleeps, on the monotonic clock.
    timers: BTreeSet<(Millis, StepNo)>,
    /// The same, by step.
    timer_due: BTreeMap<StepNo, Millis>,
    /// Sleeps until a time of the wall clock.
    deadlines: BTreeSet<(Millis, StepNo)>,
}

/// Finds the code of a stored run.
pub(crate) type Lookup<'a> = &'a dyn Fn(&RunStarted<'_>) -> Option<&'static WorkflowMeta>;

impl Life {
    pub(crate) fn new(setting: Setting, source: Source) -> Life {
        let trip = Arc::new(Trip(AtomicBool::new(false)));
        let log = Log::new(setting.run.clone(), setting.generation, setting.epoch, Seq(0));
        Life {
            log,
            now: Now::default(),
            core: Some(Core::new(Script::new(source), setting.value_bytes_max)),
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
            adopted: BTreeSet::new(),
            barrier: BTreeMap::new(),
            queue: VecDeque::new(),
            rows: VecDeque::new(),
            wanting: VecDeque::new(),
            redo: BTreeSet::new(),
            limits: BTreeSet::new(),
            retries: BTreeSet::new(),
            settling: BTreeMap::new(),
            careful: setting.after_crash,
            first_step: None,
            timers: BTreeSet::new(),
            timer_due: BTreeMap::new(),
            deadlines: BTreeSet::new(),
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
    fn poll_code(&mut self) -> Option<Returned> {
        let (Some(core), Some(mut future)) = (self.core.take(), self.future.take()) else { return None };
        let trip = self.trip.clone();
        let held = Arc::strong_count(&trip);
        let waker = self.waker.clone();
        let before = held + 1;
        let (core, polled) = lend(core, || poll_ready(&mut future, &mut Context::from_waker(&waker)));
        self.core = Some(core);
        // One count more for this function's own waker.
        let foreign = trip.0.swap(false, Ordering::Relaxed) || Arc::strong_count(&trip) > before;
        match polled {
            Ok(returned) => {
                self.future = Some(future);
                let core = self.core_mut();
                if foreign {
                    let after = core.last_site;
                    core.halt(Stop::Foreign { after });
                }
                returned
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

    /// After a poll: its commands are appended, and the run ends if the code has returned.
    pub(crate) fn polled(&mut self, returned: Option<Returned>) {
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
        if let Some(returned) = returned {
            self.end(returned);
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
            self.halt(Stop::Unrecordable { reason: format!("the entry for seq {seq} cannot be written: {e}") });
            return false;
        }
        match self.core_mut().state.apply(&entry) {
            Ok(()) => true,
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
        let core = self.core_mut();
        core.now = core.state.last_at;
        if core.deliver(step, delivered) && self.future.is_some() {
            let returned = self.poll_code();
            self.polled(returned);
        }
    }

    /// Appends a command.
    fn commit(&mut self, command: Fresh) -> bool {
        match command {
            Fresh::Effect(effect) => {
                let unrecordable = self.core().unrecordable(effect.step);
                let callable = unrecordable.is_none() && self.setting.slots.try_take();
                let call = Call {
                    path: effect.path.clone(),
                    effect: (effect.meta.name != effect.path.name).then(|| effect.meta.name.into()),
                    contract: effect.meta.contract.into(),
                    args: (&**effect.args.value().as_bytes()).into(),
                    digest: effect.digest,
                    key: effect.key.as_deref().map(Into::into),
                    site: effect.site,
                };
                let step = effect.step;
                let seq = self.state().len;
                if !self.append(if callable { Kind::EffectCalled(call) } else { Kind::EffectQueued(call) }) {
                    if callable {
                        self.setting.slots.give();
                    }
                    return false;
                }
                if let Some(fault) = unrecordable {
                    self.queue.push_back(Report::unrecordable(step, fault));
                } else if callable {
                    let path = effect.path.to_string();
                    let start = Start {
                        meta: effect.meta,
                        args: effect.args,
                        effect_id: self.effect_id(effect.meta, &path),
                        key: self.key(effect.key.as_deref(), &path),
                        path,
                        attempt: Attempt(1),
                    };
                    self.called(step, seq, start);
                } else {
                    self.wanting.push_back(step);
                }
                true
            }
            Fresh::Timer { path, site, until } => {
                let step = self.state().next_step;
                let wall = self.now.wall;
                let (deadline, absolute) = match until {
                    Until::After(wait) => {
                        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                        (wall.saturating_add(wait), false)
                    }
                    Until::At(deadline) => (deadline, true),
                };
                let appended = self.append(Kind::TimerSet { path, site, deadline, absolute });
                self.arm_timer(step, deadline, absolute);
                appended
            }
            Fresh::Version { path, site, version } => self.append(Kind::VersionChosen { path, site, version }),
            Fresh::Closed { step } => {
                let was = self.state().steps.get(&step).cloned();
                let appended = self.append(Kind::StepClosed { step });
                if let Some(was) = was {
                    self.closed(step, &was);
                }
                appended
            }
        }
    }

    fn arm_timer(&mut self, step: StepNo, deadline: Millis, absolute: bool) {
        if absolute {
            self.deadlines.insert((deadline, step));
        } else {
            let due = self.monotonic_of(deadline);
            self.timers.insert((due, step));
            self.timer_due.insert(step, due);
        }
    }

    /// A sleep that was dropped wakes nobody.
    pub(crate) fn disarm_timer(&mut self, step: StepNo, deadline: Millis) {
        self.deadlines.remove(&(deadline, step));
        if let Some(due) = self.timer_due.remove(&step) {
            self.timers.remove(&(due, step));
        }
    }

    /// A recorded time of the wall clock, on this process's monotonic clock.
    pub(crate) fn monotonic_of(&self, wall: Millis) -> Millis {
        self.now.monotonic.saturating_add(wall.saturating_sub(self.now.wall))
    }

    /// Sets the clocks of the sleeps that are open after a replay.
    fn arm(&mut self) {
        let open: Vec<_> = self.state().steps.iter().map(|(no, step)| (*no, step.clone())).collect();
        for (no, step) in open {
            if let (What::Timer { deadline, absolute }, StepState::Waiting) = (&step.what, &step.state) {
                self.arm_timer(no, *deadline, *absolute);
            }
        }
    }

    /// The code has returned.
    fn end(&mut self, returned: Returned) {
        self.drop_code();
        let value = match returned.value {
            Ok(value) if value.len() <= self.setting.value_bytes_max => value,
            Ok(value) => {
                let limit = self.setting.value_bytes_max;
                let reason = format!("its result has {} bytes, more than the limit of {limit}", value.len());
                return self.halt(Stop::Unrecordable { reason });
            }
            Err(e) => {
                let reason = format!("its result: {}", shortened(&e.to_string()));
                return self.halt(Stop::Unrecordable { reason });
            }
        };
        let bytes = value.as_bytes().to_vec().into();
        let end = match returned.ok {
            true => End::Completed { value: bytes },
            false => End::Failed { value: bytes, message: returned.message.into() },
        };
        if !self.stop_bodies() {
            return;
        }
        if self.state().steps.values().any(|step| step.may_run_outside()) {
            self.append(Kind::RunEnding(end));
        } else {
            self.terminate(end);
        }
    }

    /// Appends the terminal entry. A crash before it is durable replays the code up to its return, or the log up to
    /// `run.ending`, and gets here again.
    pub(crate) fn terminate(&mut self, end: End<'static>) {
        let message = match &end {
            End::Completed { .. } => None,
            End::Failed { message, .. } => Some(message.to_string()),
        };
        if !self.append(Kind::RunEnded(end)) {
            return;
        }
        let ended_at = self.state().last_at;
        if let Some(started) = &self.started {
            let head = HeadInfo::ended(started, ended_at, message).head(self.setting.generation);
            self.log.head(head);
        }
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
        if let Some(report) = self.queue.pop_front() {
            self.body_ended(report);
            return true;
        }
        if let Some(row) = self.rows.pop_front() {
            self.row(row);
            return true;
        }
        if let Some((step, attempt)) = self.next_limit() {
            self.out_of_time(step, attempt);
            return true;
        }
        if let Some(step) = self.next_timer() {
            self.complete(Kind::TimerFired { step }, step, Delivered::Fired);
            return true;
        }
        self.next_call() || self.next_settled() || self.finish()
    }

    fn next_timer(&mut self) -> Option<StepNo> {
        if self.state().ending.is_some() {
            return None;
        }
        if self.timers.first().is_some_and(|(due, _)| *due <= self.now.monotonic) {
            let (_, step) = self.timers.pop_first()?;
            self.timer_due.remove(&step);
            return Some(step);
        }
        if self.deadlines.first().is_some_and(|(due, _)| *due <= self.now.wall) {
            return self.deadlines.pop_first().map(|(_, step)| step);
        }
        None
    }

    /// From `run.ending` on: the terminal entry, once no outward body can be under way.
    fn finish(&mut self) -> bool {
        let state = self.state();
        let Some(end) = state.ending.clone() else { return false };
        if state.steps.values().any(|step| step.may_run_outside()) {
            return false;
        }
        self.terminate(end);
        true
    }

    /// When there may be something to do without anything happening: on the monotonic clock, and on the wall clock.
    pub(crate) fn due(&self) -> (Option<Millis>, Option<Millis>) {
        if self.log.trouble().is_some() {
            return (self.log.due(), None);
        }
        let firsts = [
            self.timers.first().map(|(at, _)| *at),
            self.retries.first().map(|(at, _)| *at),
            self.limits.first().map(|(at, ..)| *at),
            self.settling.values().map(|settle| settle.due).min(),
        ];
        (firsts.into_iter().flatten().min(), self.deadlines.first().map(|(at, _)| *at))
    }

    /// What to do now: first what to append, then what that allows.
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        let gathered = std::mem::take(&mut self.outputs);
        // What is sent again comes before what was gathered since.
        let (mut outputs, rest): (Vec<_>, Vec<_>) =
            gathered.into_iter().partition(|output| matches!(output, Output::Append(..)));
        outputs.extend(self.log.flush().map(|(no, batch)| Output::Append(no, batch)));
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
        self.pass_barrier();
    }
}

/// What a recorded completion gives to its step.
fn completion(kind: &Kind<'_>, frame: &Bytes) -> Option<(StepNo, Delivered)> {
    match kind {
        Kind::EffectResult { step, outcome, .. } => Some((*step, delivered(outcome, frame))),
        Kind::TimerFired { step } => Some((*step, Delivered::Fired)),
        _ => None,
    }
}

fn delivered(outcome: &Outcome<'_>, frame: &Bytes) -> Delivered {
    match outcome {
        Outcome::Ok(value) | Outcome::Err(value) => Delivered::Value(frame.slice_ref(value)),
        Outcome::Fault(fault) => Delivered::Fault(Fault::clone(&fault.0)),
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
        if !with(Core::take_root_ready) {
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
