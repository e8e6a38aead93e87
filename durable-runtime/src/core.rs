//! What is lent to the workflow's code for one poll: its scopes, its open steps, and the commands it asks.
//!
//! No step uses a waker. A completion is *routed*: it marks, from its step's scope up to the root, which child each
//! combinator must poll, so that one completion costs one way down, whatever the number of branches.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    by_step::ByStep,
    clock::Millis,
    contract::{EffectMeta, Site, WorkflowMeta, site_by_id},
    entry::{Call, Entry, EntryError, Kind, Path, Question, Undo, decode},
    failure::{Fault, shortened},
    fold::{IllegalEntry, RunState},
    id::{RunId, Seq, StepNo},
    script::{AskedArgs, Command, Divergence, Meet, Script, ScriptError, describe, describe_call, meet, place},
    value::{Args, Value, ValueError, Written},
};

mod asks;
mod scope;
mod shelter;

pub(crate) use asks::{AskChild, AskQuestion};

use scope::{Counts, Route, Scope, Segment};
pub(crate) use scope::{OpenJoin, OpenScope};
use shelter::Shelter;

/// A place in [`Core::scopes`].
pub(crate) type ScopeNo = u32;
const ROOT: ScopeNo = 0;

/// What a poll works on. Lent to the code by [`lend`], and in the driver's hands otherwise.
pub(crate) struct Core {
    pub(crate) state: RunState,
    pub(crate) script: Script,
    /// Commands of this poll that are past the end of the log, in the order asked.
    pub(crate) fresh: Vec<Fresh>,
    /// Why the run cannot go on; the poll's commands are then discarded.
    pub(crate) stop: Option<Stop>,
    /// The log holds `run.ending`: what the code still asks for is nothing.
    pub(crate) over: bool,
    /// Time of the completion that this poll is about: what `now()` answers.
    pub(crate) now: Millis,
    /// 128 random bits of `run.started`.
    pub(crate) seed: u128,
    /// Longest value that is recorded, in bytes.
    pub(crate) value_bytes_max: usize,
    /// The run's id.
    run: RunId,
    /// What the engine's own keys and the ids of children and messages are made of: store, run and generation.
    key_prefix: Arc<str>,
    /// A cancel was taken: what no shield encloses asks for nothing more but `undo`.
    pub(crate) cancelled: bool,
    /// A shield is over: what has outlived it may have lost its shelter.
    shield_over: bool,
    /// Those that wait to hear of a cancel, in the order in which they asked.
    cancel_waits: BTreeMap<u64, CancelWait>,
    next_cancel_wait: u64,
    /// How many of them began after the cancel.
    late_cancel_waits: u32,
    /// What the run goes on with in a fresh log: the code is over.
    pub(crate) restart: Option<Box<Restart>>,
    /// The step asked last, for messages about awaits that are none.
    pub(crate) last_site: Option<&'static Site>,
    next_step: StepNo,
    slots: ByStep<Slot>,
    /// Open effects whose arguments cannot be recorded: their bodies never run.
    unrecordable: BTreeMap<StepNo, Fault>,
    scopes: Vec<Scope>,
    free_scopes: Vec<ScopeNo>,
    /// Per combinator: the children that have something to do, in the order in which it happened.
    joins: Vec<VecDeque<u32>>,
    free_joins: Vec<u32>,
    here: ScopeNo,
    /// Where the scope of what is asked is written, to be compared.
    scope_text: String,
    polling: bool,
    versions: HashMap<String, u32>,
    /// Steps dropped since the last command of this poll. In what order values are dropped may be a hash map's affair; so
    /// they are closed in the order in which they were asked.
    dropped: BTreeSet<StepNo>,
    tasks: Vec<Option<Task>>,
    ready_tasks: VecDeque<u32>,
    root_ready: bool,
}

/// A command past the end of the log, not appended yet.
pub(crate) enum Fresh {
    Effect(Box<FreshEffect>),
    Timer { path: Path<'static>, site: u128, until: Until },
    Version { path: Path<'static>, site: u128, version: u32 },
    Signal { path: Path<'static>, site: u128, signal: Cow<'static, str>, drain: bool },
    Question { path: Path<'static>, site: u128, question: Box<Question<'static>>, within: Option<Duration> },
    Child(Box<FreshChild>),
    Message { path: Path<'static>, site: u128, to: RunId, signal: Cow<'static, str>, value: Value, digest: u128 },
    Publish { path: Path<'static>, site: u128, name: Cow<'static, str>, value: Value, digest: u128 },
    Undo { path: Path<'static>, site: u128, undo: Box<Undo<'static>> },
    Closed { step: StepNo },
}

/// A `cancelled()` that is awaited.
struct CancelWait {
    scope: ScopeNo,
    told: bool,
}

/// What a run goes on with in a fresh log.
pub(crate) struct Restart {
    pub(crate) meta: &'static WorkflowMeta,
    pub(crate) args: Args,
    pub(crate) digest: u128,
}

/// A child run, not appended yet.
pub(crate) struct FreshChild {
    pub(crate) path: Path<'static>,
    pub(crate) site: u128,
    pub(crate) meta: &'static WorkflowMeta,
    pub(crate) args: Args,
    pub(crate) digest: u128,
    pub(crate) run: RunId,
    pub(crate) detached: bool,
}

/// A call of an effect, not appended yet.
pub(crate) struct FreshEffect {
    pub(crate) step: StepNo,
    pub(crate) path: Path<'static>,
    pub(crate) meta: &'static EffectMeta,
    pub(crate) args: Args,
    pub(crate) digest: u128,
    pub(crate) key: Option<String>,
    pub(crate) site: u128,
}

/// When a sleep is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    After(Duration),
    At(Millis),
}

/// Why the run cannot go on. Nothing is appended.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Diverged(Box<Divergence>),
    Store(crate::store::StoreError),
    Entry(Seq, EntryError),
    Illegal(IllegalEntry),
    /// A recorded value does not decode as the type that the code has now.
    Undecodable {
        step: String,
        site: Option<&'static Site>,
        error: ValueError,
    },
    /// The engine found a fault, and the step's error type takes none.
    Fault {
        step: String,
        site: Option<&'static Site>,
        fault: Fault,
    },
    /// The workflow's result cannot be recorded.
    Unrecordable {
        reason: String,
    },
    /// What the code asks is longer than an entry may be.
    EntryUnrecordable {
        reason: String,
        after: Option<&'static Site>,
    },
    /// A value that is to be sent, published, asked about or handed on cannot be recorded.
    ValueUnrecordable {
        what: String,
        site: &'static Site,
        reason: String,
    },
    /// Nothing is open that could ever go on.
    Idle {
        after: Option<&'static Site>,
    },
    /// What is to be undone needs an effect that is not in this binary.
    NoEffect {
        effect: String,
        module: String,
    },
    /// Something that is no step was awaited behind the macro's back.
    Foreign {
        after: Option<&'static Site>,
    },
    /// The workflow's code panicked.
    Panicked {
        message: String,
        after: Option<&'static Site>,
    },
}

impl From<ScriptError> for Stop {
    fn from(e: ScriptError) -> Self {
        match e {
            ScriptError::Store(e) => Stop::Store(e),
            ScriptError::Entry(seq, e) => Stop::Entry(seq, e),
        }
    }
}

/// Says whether a message decodes as what a step waits for.
pub(crate) type Takes = fn(&Value) -> Result<(), ValueError>;

struct Slot {
    scope: ScopeNo,
    /// What kept a cancel away from the place where it was last polled.
    shelter: Shelter,
    /// Whether a future is there to be polled: a child's handle may lie about for a while.
    awaited: bool,
    ready: Option<Delivered>,
    effect: Option<&'static EffectMeta>,
    takes: Option<Takes>,
}

impl Slot {
    /// Whether what has come is nothing to the code of a cancelled run: that its child was cancelled as well, which as an error
    /// would have it fail.
    fn is_moot(&self) -> bool {
        !self.shelter.is_shielded()
            && matches!(&self.ready, Some(Delivered::Fault(fault)) if matches!(**fault, Fault::ChildCancelled { .. }))
    }
}

/// What a step is given.
#[derive(Clone, Debug)]
pub(crate) enum Delivered {
    Value(Bytes),
    Fault(Box<Fault>),
    Fired,
    Messages(Vec<Bytes>),
    Granted(Bytes),
    Refused(String),
    Expired,
}

/// A begun step's future.
type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A step that was begun and is awaited later; it goes on meanwhile.
struct Task {
    future: Option<TaskFuture>,
    scope: ScopeNo,
    /// Who awaits it.
    waiter: Option<ScopeNo>,
}

thread_local! {
    static LENT: RefCell<Option<Box<Core>>> = const { RefCell::new(None) };
}

/// Runs `f` on the core that is lent to this thread.
pub(crate) fn with<R>(f: impl FnOnce(&mut Core) -> R) -> R {
    LENT.with_borrow_mut(|core| match core {
        Some(core) => f(core),
        None => unreachable!("a step is polled by its run only: its future is of a sealed type that only a run polls"),
    })
}

/// Runs `f` if a core is lent to this thread and free: a step may be dropped anywhere.
pub(crate) fn try_with(f: impl FnOnce(&mut Core)) {
    let _ = LENT.try_with(|core| {
        if let Ok(mut core) = core.try_borrow_mut()
            && let Some(core) = core.as_mut()
        {
            f(core);
        }
    });
}

/// Lends `core` to this thread while `poll` runs. It comes back also if `poll` panics: a core left behind would be found by
/// another run.
pub(crate) fn lend<R>(mut core: Box<Core>, poll: impl FnOnce() -> R) -> (Box<Core>, std::thread::Result<R>) {
    core.polling = true;
    let before = LENT.replace(Some(core));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll));
    let Some(mut core) = LENT.replace(before) else { unreachable!("nothing takes a lent core away") };
    match &result {
        Ok(_) => core.close_dropped(),
        Err(_) => core.dropped.clear(),
    }
    core.polling = false;
    (core, result)
}

impl Core {
    pub(crate) fn new(script: Script, value_bytes_max: usize, run: RunId, key_prefix: Arc<str>) -> Box<Core> {
        let root = Scope {
            parent: None,
            segment: Segment::Root,
            text: None,
            route: Route::Up,
            counts: Counts::default(),
            shelter: Shelter::default(),
            shelters: false,
        };
        Box::new(Core {
            state: RunState::default(),
            script,
            fresh: Vec::new(),
            stop: None,
            over: false,
            now: 0,
            seed: 0,
            value_bytes_max,
            run,
            key_prefix,
            cancelled: false,
            shield_over: false,
            cancel_waits: BTreeMap::new(),
            next_cancel_wait: 0,
            late_cancel_waits: 0,
            restart: None,
            last_site: None,
            next_step: StepNo(0),
            slots: ByStep::default(),
            unrecordable: BTreeMap::new(),
            scopes: vec![root],
            free_scopes: Vec::new(),
            joins: Vec::new(),
            free_joins: Vec::new(),
            here: ROOT,
            scope_text: String::new(),
            polling: false,
            versions: HashMap::new(),
            dropped: BTreeSet::new(),
            tasks: Vec::new(),
            ready_tasks: VecDeque::new(),
            root_ready: true,
        })
    }

    // ---- commands ----

    /// Meets the log with a command: true if it is past the log's end, so new.
    fn command(&mut self, asked: &Command<'_>, site: Option<&'static Site>) -> bool {
        if !matches!(asked, Command::Closed { .. }) {
            self.close_dropped();
        }
        while self.stop.is_none() && !self.over {
            match self.script.peek() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(e) => {
                    self.stop = Some(e.into());
                    break;
                }
            }
            let (seq, frame) = self.script.shown();
            let entry = match decode(frame) {
                Ok(entry) => entry,
                Err(e) => {
                    self.stop = Some(Stop::Entry(seq, e));
                    break;
                }
            };
            if matches!(entry.kind, Kind::RunEnding(_) | Kind::RunEnded(_)) {
                self.over = true;
                break;
            }
            let met = meet(&entry.kind, asked);
            if met == Meet::Diverged {
                self.stop = Some(diverged(seq, &entry, Some((asked.to_string(), site))));
                break;
            }
            if let Err(e) = self.state.apply(&entry) {
                self.stop = Some(Stop::Illegal(e));
                break;
            }
            self.script.advance();
            if met == Meet::Same {
                break;
            }
        }
        false
    }

    /// Closes what was dropped.
    fn close_dropped(&mut self) {
        while let Some(step) = self.dropped.pop_first() {
            if self.command(&Command::Closed { step }, None) {
                self.fresh.push(Fresh::Closed { step });
            }
        }
    }

    fn new_slot(&mut self, effect: Option<&'static EffectMeta>, takes: Option<Takes>) -> StepNo {
        let step = self.next_step;
        self.next_step.0 += 1;
        let shelter = self.shelter().clone();
        let slot = Slot { scope: self.here, shelter, awaited: true, ready: None, effect, takes };
        self.slots.insert(step, slot);
        step
    }

    /// Whether what is asked here is nothing: the run is cancelled and no shield encloses this place, or it goes on in a
    /// fresh log.
    pub(crate) fn is_closing(&self) -> bool {
        self.restart.is_some() || self.cancelled && !self.shelter().is_shielded()
    }

    /// Whether an immediate step that was met, or is new, gives its answer: not where the poll is to be discarded, nor
    /// where the log holds the end of the code.
    fn goes_on(&self) -> bool {
        self.stop.is_none() && !self.over
    }

    /// Takes a value that is to be recorded, or stops the run.
    fn recordable(
        &mut self,
        what: impl FnOnce() -> String,
        value: Result<Value, ValueError>,
        site: &'static Site,
    ) -> Option<Value> {
        let reason = match value {
            Ok(value) if value.len() <= self.value_bytes_max => return Some(value),
            Ok(value) => format!("it has {} bytes, more than the limit of {}", value.len(), self.value_bytes_max),
            Err(e) => shortened(&e.to_string()).into_owned(),
        };
        self.halt(Stop::ValueUnrecordable { what: what(), site, reason });
        None
    }

    /// Asks for an effect.
    pub(crate) fn ask_effect(&mut self, ask: AskEffect, site: &'static Site) -> Option<StepNo> {
        if self.is_closing() {
            return None;
        }
        self.last_site = Some(site);
        let n = self.count(&ask.name);
        // Or, of what cannot be recorded, the digest that is.
        let (args, unrecordable) = match ask.args {
            Ok(args) if args.len() <= self.value_bytes_max => (Ok(args), None),
            Ok(args) => {
                let fault = Fault::NotRecordable {
                    effect: ask.meta.name.to_owned(),
                    reason: "its arguments are longer than the limit".to_owned(),
                    size: Some(args.len() as u64),
                    limit: Some(self.value_bytes_max as u64),
                };
                (Err(args.digest()), Some(fault))
            }
            Err(e) => {
                let fault = Fault::NotRecordable {
                    effect: ask.meta.name.to_owned(),
                    reason: format!("its arguments: {}", shortened(&e.to_string())),
                    size: None,
                    limit: None,
                };
                (Err(0), Some(fault))
            }
        };
        let step = self.new_slot(Some(ask.meta), None);
        self.unrecordable.extend(unrecordable.map(|fault| (step, fault)));
        let mut scope = mem::take(&mut self.scope_text);
        scope.clear();
        self.push_text(self.here, &mut scope);
        let path = Path { scope: Cow::Borrowed(&scope), name: Cow::Borrowed(&ask.name), n };
        let asked = args.as_ref().map_or_else(|digest| AskedArgs::Digest(*digest), AskedArgs::Written);
        let command = Command::Effect { path: &path, effect: ask.meta.name, args: asked };
        // Arguments are only written out for the message of a divergence.
        let new = self.command(&command, Some(site));
        if let Some(Stop::Diverged(d)) = &mut self.stop
            && let Some(description) = d.asked.as_mut().filter(|_| !new)
        {
            let call = Call {
                path: path.clone(),
                effect: (ask.meta.name != path.name).then_some(Cow::Borrowed(ask.meta.name)),
                contract: ask.meta.contract.into(),
                args: Cow::Borrowed(args.as_ref().map_or(&[], Written::as_bytes)),
                digest: asked.digest(),
                key: None,
                site: site.id,
            };
            *description = describe_call(&call);
        }
        if new {
            let digest = asked.digest();
            let args = args.map_or_else(|_| Args::from_value(Value::from_bytes(Bytes::new())), Written::into_args);
            let path = Path { scope: Cow::Owned(scope.clone()), name: ask.name, n };
            let (meta, key, site) = (ask.meta, ask.key, site.id);
            self.fresh.push(Fresh::Effect(Box::new(FreshEffect { step, path, meta, args, digest, key, site })));
        } else if let Ok(args) = args {
            args.recycle();
        }
        self.scope_text = scope;
        Some(step)
    }

    /// Asks for a sleep.
    pub(crate) fn ask_timer(&mut self, name: Cow<'static, str>, until: Until, site: &'static Site) -> Option<StepNo> {
        if self.is_closing() {
            return None;
        }
        self.last_site = Some(site);
        let path = self.path(name);
        let step = self.new_slot(None, None);
        if self.command(&Command::Timer { path: &path }, Some(site)) {
            self.fresh.push(Fresh::Timer { path, site: site.id, until });
        }
        Some(step)
    }

    /// The version of `name` that this run has: recorded, or `version` if the run gets here for the first time, or 0 if it was here before the
    /// code asked for versions. One answer per name and run.
    pub(crate) fn version(&mut self, name: &str, version: u32, site: &'static Site) -> Option<u32> {
        if let Some(known) = self.versions.get(name) {
            return Some(*known);
        }
        if self.is_closing() {
            return None;
        }
        self.last_site = Some(site);
        let chosen = match self.recorded_version(name) {
            Some(recorded) => recorded,
            None => {
                let path = Path { scope: Cow::Borrowed(""), name: Cow::Owned(name.to_owned()), n: 0 };
                self.next_step.0 += 1;
                if self.stop.is_none() && !self.over {
                    self.fresh.push(Fresh::Version { path, site: site.id, version });
                }
                version
            }
        };
        self.versions.insert(name.to_owned(), chosen);
        Some(chosen)
    }

    /// `Some` if the log goes on here: with the version recorded, or, where something else stands, 0.
    fn recorded_version(&mut self, name: &str) -> Option<u32> {
        self.close_dropped();
        loop {
            if self.stop.is_some() || self.over {
                return Some(0);
            }
            match self.script.peek() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(e) => {
                    self.stop = Some(e.into());
                    return Some(0);
                }
            }
            let (seq, frame) = self.script.shown();
            let entry = match decode(frame) {
                Ok(entry) => entry,
                Err(e) => {
                    self.stop = Some(Stop::Entry(seq, e));
                    return Some(0);
                }
            };
            let chosen = match &entry.kind {
                Kind::VersionChosen { path, version, .. } if path.name == name => Some(*version),
                // Engine entries may be the last of the log: what stands behind them decides.
                kind if kind.is_engine() => None,
                _ => return Some(0),
            };
            match self.state.apply(&entry) {
                Ok(()) => self.script.advance(),
                Err(e) => self.stop = Some(Stop::Illegal(e)),
            }
            if chosen.is_some() {
                self.next_step.0 += 1;
                return chosen;
            }
        }
    }

    // ---- completions ----

    /// Puts a completion in its step's slot; true if somebody waits for it.
    pub(crate) fn deliver(&mut self, step: StepNo, what: Delivered) -> bool {
        let cancelled = self.cancelled;
        let Some(slot) = self.slots.get_mut(&step) else { return false };
        slot.ready = Some(what);
        let (scope, awaited) = (slot.scope, slot.awaited && !(cancelled && slot.is_moot()));
        if awaited {
            self.mark(scope);
        }
        awaited
    }

    /// What has come for a step; the step is over then.
    pub(crate) fn take(&mut self, step: StepNo) -> Option<(Delivered, Option<&'static EffectMeta>)> {
        let (here, shelter, cancelled) = (self.here, self.shelter().clone(), self.cancelled);
        let slot = self.slots.get_mut(&step)?;
        slot.shelter = shelter;
        if slot.ready.is_none() || cancelled && slot.is_moot() {
            slot.scope = here;
            slot.awaited = true;
            return None;
        }
        self.unrecordable.remove(&step);
        self.slots.remove(&step, |slot| slot.ready.take().map(|ready| (ready, slot.effect)))?
    }

    /// The code's description of an open effect step.
    pub(crate) fn effect(&self, step: StepNo) -> Option<&'static EffectMeta> {
        self.slots.get(&step).and_then(|slot| slot.effect)
    }

    /// What an open wait takes.
    pub(crate) fn takes(&self, step: StepNo) -> Option<Takes> {
        self.slots.get(&step).and_then(|slot| slot.takes)
    }

    /// Whether a shield encloses an open step.
    pub(crate) fn shielded(&self, step: StepNo) -> bool {
        self.slots.get(&step).is_some_and(|slot| slot.shelter.is_shielded())
    }

    /// Whether a shield has come to its end since this was asked last.
    pub(crate) fn take_shield_over(&mut self) -> bool {
        mem::take(&mut self.shield_over)
    }

    /// The handle of a step is still there, and nobody polls it now. The shield under which it was looked at last encloses it until
    /// that is over: it may be looked at again.
    pub(crate) fn unawait(&mut self, step: StepNo) {
        if let Some(slot) = self.slots.get_mut(&step) {
            slot.awaited = false;
        }
    }

    /// Why an open effect's arguments cannot be recorded, if so.
    pub(crate) fn unrecordable(&self, step: StepNo) -> Option<Fault> {
        self.unrecordable.get(&step).cloned()
    }

    pub(crate) fn halt(&mut self, stop: Stop) {
        self.stop.get_or_insert(stop);
    }

    /// All that a replay must bring back and that is not in the state.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> String {
        let slot = |(step, slot): (&StepNo, &Slot)| {
            format!(
                "{step}: shielded {}, awaited {}, ready {}",
                slot.shelter.is_shielded(),
                slot.awaited,
                slot.ready.is_some()
            )
        };
        let slots: Vec<String> = self.slots.iter().map(slot).collect();
        let waits: Vec<bool> = self.cancel_waits.values().map(|wait| wait.told).collect();
        format!("{} cancelled {} {waits:?} {slots:?}", self.next_step, self.cancelled)
    }

    // ---- begun steps ----

    /// Whether the workflow's own future has something to do.
    pub(crate) fn take_root_ready(&mut self) -> bool {
        mem::take(&mut self.root_ready)
    }

    /// The next begun step that has something to do: its number, future and scope.
    pub(crate) fn next_task(&mut self) -> Option<(u32, TaskFuture, ScopeNo)> {
        while let Some(t) = self.ready_tasks.pop_front() {
            if let Some(Some(task)) = self.tasks.get_mut(t as usize)
                && let Some(future) = task.future.take()
            {
                return Some((t, future, task.scope));
            }
        }
        None
    }

    /// Puts a begun step back, or, when it is over, wakes who awaits it.
    pub(crate) fn put_task(&mut self, task: u32, future: Option<TaskFuture>) {
        let Some(Some(slot)) = self.tasks.get_mut(task as usize) else { return };
        let over = future.is_none();
        slot.future = future;
        if over && let Some(waiter) = slot.waiter.take() {
            self.mark(waiter);
        }
    }

    /// A scope for a begun step.
    pub(crate) fn open_task(&mut self) -> (u32, ScopeNo) {
        let t = match self.tasks.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.tasks.push(None);
                self.tasks.len() - 1
            }
        };
        let scope = self.open(Segment::Transparent, Route::Task(t as u32), self.here);
        self.has_shelter(scope, Shelter::moving);
        self.tasks[t] = Some(Task { future: None, scope, waiter: None });
        (t as u32, scope)
    }

    /// Notes that the code that is polled now awaits the task.
    pub(crate) fn await_task(&mut self, task: u32) {
        let (here, shelter) = (self.here, self.shelter().clone());
        if let Some(Some(task)) = self.tasks.get_mut(task as usize) {
            task.waiter = Some(here);
            self.scopes[task.scope as usize].shelter.move_to(&shelter);
        }
    }

    /// Forgets a task, and answers its future so that it is dropped while nothing is borrowed.
    fn forget_task(&mut self, task: u32) -> Option<TaskFuture> {
        let task = self.tasks.get_mut(task as usize)?.take()?;
        self.free_scopes.push(task.scope);
        task.future
    }

    /// All tasks' futures, in the order begun, when the code has returned.
    pub(crate) fn take_tasks(&mut self) -> Vec<TaskFuture> {
        (0..self.tasks.len() as u32).filter_map(|t| self.forget_task(t)).collect()
    }
}

/// Closes a step that was dropped before it was over. Outside a poll (the run is being parked or shut down) this says nothing,
/// nor where a panic drops it: that poll is discarded.
pub(crate) fn close(step: StepNo) {
    try_with(|core| {
        let waiting = core.slots.remove(&step, |slot| slot.ready.is_none()) == Some(true);
        core.unrecordable.remove(&step);
        if core.polling && waiting && !std::thread::panicking() {
            core.dropped.insert(step);
        }
    });
}

/// Drops a begun step.
pub(crate) fn drop_task(task: u32) {
    let mut future = None;
    try_with(|core| future = core.forget_task(task));
    drop(future);
}

/// What is asked for an effect.
pub(crate) struct AskEffect {
    pub(crate) name: Cow<'static, str>,
    pub(crate) meta: &'static EffectMeta,
    pub(crate) args: Result<Written, Box<ValueError>>,
    pub(crate) key: Option<String>,
}

/// The code asks for something else than the log holds, or for nothing.
pub(crate) fn diverged(seq: Seq, entry: &Entry<'_>, asked: Option<(String, Option<&'static Site>)>) -> Stop {
    let recorded_at = site_of(&entry.kind).and_then(site_by_id).map(place);
    let asked_at = asked.as_ref().and_then(|(_, site)| *site).map(place);
    Stop::Diverged(Box::new(Divergence {
        seq,
        recorded: describe(entry),
        recorded_at,
        asked: asked.map(|(asked, _)| asked),
        asked_at,
    }))
}

fn site_of(kind: &Kind<'_>) -> Option<u128> {
    match kind {
        Kind::EffectQueued(call) | Kind::EffectCalled(call) => Some(call.site),
        Kind::TimerSet { site, .. }
        | Kind::VersionChosen { site, .. }
        | Kind::SignalAwaited { site, .. }
        | Kind::QuestionAsked { site, .. }
        | Kind::ChildSpawned { site, .. }
        | Kind::MessageSent { site, .. }
        | Kind::ValuePublished { site, .. }
        | Kind::UndoAdded { site, .. } => Some(*site),
        _ => None,
    }
}
