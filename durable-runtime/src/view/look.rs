//! What can be said of a run from the fold of its log, and more if its life is at hand.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Hold, OpenQuestion, Status, Stored, Token};
use crate::{
    clock::{Millis, system_time},
    contract::Returns,
    core::Takes,
    drive::Life,
    entry::{End, key_prefix},
    fold::{EffectStep, RunState, Step, StepState, What},
    id::{Attempt, Generation, RunId, StepNo, StoreId},
    recover::GONE,
    value::Value,
};

/// What is known of a run at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// `None`: the run has no life that could say.
    pub(crate) status: Option<Status>,
    pub(crate) generation: Generation,
    pub(crate) last_at: Millis,
    /// Steps in doubt that wait for a person.
    pub(crate) holds: Vec<Hold>,
    /// Steps in doubt that a reconcile function is asked about: a person may resolve them too.
    pub(crate) reconciling: Vec<Hold>,
    /// What the effects of all these return, if the code is at hand.
    pub(crate) returns: BTreeMap<StepNo, Returns>,
    pub(crate) questions: Vec<OpenAsk>,
    /// Of the signals that are waited for, what the next message must decode as, if that can be said.
    pub(crate) signals: BTreeMap<String, Takes>,
    /// The run is cancelled and its code not at hand: what a shield encloses is still open, and the log does not say what that is.
    pub(crate) unsure: bool,
}

/// An open question.
#[derive(Clone, Debug)]
pub(crate) struct OpenAsk {
    pub(crate) question: OpenQuestion,
    /// See [`crate::mailbox::Reply::round`].
    pub(crate) round: u32,
    /// Says whether a value is of the type that was asked for, if the code is at hand.
    pub(crate) takes: Option<Takes>,
    /// Nobody can answer any more, and the run is about to find that out.
    pub(crate) expired: bool,
}

/// Whose log it is.
struct About<'a> {
    run: &'a RunId,
    generation: Generation,
    /// What the engine's own keys begin with.
    key_prefix: &'a str,
    /// The wall clock.
    now: Millis,
}

impl Look {
    /// At a run that has a life.
    pub(crate) fn at(life: &Life) -> Look {
        let setting = &life.setting;
        let about = About {
            run: &setting.run,
            generation: setting.generation,
            key_prefix: &setting.key_prefix,
            now: life.now.wall,
        };
        look(life.state(), &about, Some(life), &BTreeSet::new())
    }

    /// Whether a person is sent to the step at that path. Of a cancelled run only its code knows what a shield keeps open; without it,
    /// what was asked for under one.
    pub(crate) fn is_open(&self, path: &str) -> bool {
        !self.unsure || path.split('/').any(|scope| scope.starts_with("shield["))
    }

    /// At a run that has none. `lost`: see [`Stored::lost`].
    pub(crate) fn of(stored: &Stored, run: &RunId, store: StoreId, now: Millis, lost: &BTreeSet<StepNo>) -> Look {
        let generation = stored.generation;
        let key_prefix = &key_prefix(store, run, generation);
        look(&stored.state, &About { run, generation, key_prefix, now }, None, lost)
    }
}

pub(crate) fn status_of_end(end: &End<'_>) -> Status {
    match end {
        End::Completed { .. } => Status::Completed,
        End::Failed { message, .. } => Status::Failed { message: message.to_string() },
        End::Cancelled { reason, .. } => Status::Cancelled { reason: reason.to_string() },
        // Its next log is on its way.
        End::Restarted { .. } => Status::Opening,
    }
}

/// What the open steps of a run wait for.
#[derive(Default)]
struct Waits {
    /// A body may be under way, or is to be begun.
    running: bool,
    retrying: Option<(String, Attempt, Millis)>,
    sleeping: Option<Millis>,
    signals: BTreeSet<String>,
    children: Vec<RunId>,
    detached: Vec<RunId>,
}

impl Waits {
    /// Whether there is something to do now, by a process: with none, nothing of it is being done.
    fn needs_process(&self, over: bool, person: bool) -> bool {
        let comes = self.retrying.is_some() || self.sleeping.is_some() || !self.signals.is_empty();
        self.running || !comes && !person && self.children.is_empty() && (over || self.detached.is_empty())
    }
}

fn look(state: &RunState, about: &About<'_>, life: Option<&Life>, lost: &BTreeSet<StepNo>) -> Look {
    let unsure = life.is_none() && state.cancel.is_some() && state.ending.is_none();
    let mut look = Look { generation: about.generation, last_at: state.last_at, unsure, ..Look::default() };
    let mut waits = Waits::default();
    for (no, step) in state.steps.iter() {
        let wanted = match life {
            Some(life) => life.is_wanted(*no),
            None => !step.closed && (step.undo.is_some() || state.ending.is_none()),
        };
        match (&step.what, &step.state) {
            (What::Effect(effect), StepState::Called(attempt)) if wanted && lost.contains(no) => {
                look.holds.push(hold(about, *no, effect, *attempt, GONE, effect.called_at));
            }
            (What::Effect(_), StepState::Called(_)) => waits.running = true,
            // What becomes of an attached child is waited for, whoever waits.
            (What::Child { run, detached, .. }, StepState::Waiting) => {
                let children = if *detached { &mut waits.detached } else { &mut waits.children };
                children.extend(RunId::new(&**run));
            }
            _ if !wanted => {}
            (What::Effect(_), StepState::Queued | StepState::NotStarted(_)) => waits.running = true,
            (What::Effect(effect), StepState::Failed(attempt, at)) => {
                waits.retrying = Some((effect.called.path(), *attempt, *at));
            }
            (What::Effect(effect), StepState::InDoubt(attempt, reason, since)) => {
                let asking = life.is_some_and(|l| l.settling.get(no).is_some_and(|settle| settle.is_under_way()));
                // Nobody reads what undoes something returned.
                let meta = life.filter(|_| step.undo.is_none()).and_then(|life| life.meta(*no));
                look.returns.extend(meta.map(|meta| (*no, (meta.returns)())));
                let hold = hold(about, *no, effect, *attempt, reason, *since);
                if asking { &mut look.reconciling } else { &mut look.holds }.push(hold);
            }
            (What::Timer { deadline, .. }, StepState::Waiting) => {
                waits.sleeping = Some(waits.sleeping.map_or(*deadline, |first| first.min(*deadline)));
            }
            (What::Signal { name, .. }, StepState::Waiting) => {
                waits.signals.insert(name.to_string());
            }
            (What::Question(_), StepState::Waiting) => look.questions.extend(open_ask(about, *no, step, life)),
            _ => {}
        }
    }
    if let Some(life) = life {
        look.signals = waits.signals.iter().filter_map(|name| Some((name.clone(), life.takes_next(name)?))).collect();
    }
    look.status = Some(status(state, life, &look, waits));
    look
}

fn hold(about: &About<'_>, step: StepNo, effect: &EffectStep, attempt: Attempt, reason: &str, since: Millis) -> Hold {
    let own = || format!("{}/{}", about.key_prefix, effect.called.path());
    Hold {
        run: about.run.clone(),
        step,
        path: effect.called.path(),
        effect: effect.called.effect().to_owned(),
        attempt,
        args: Value::from_bytes(Bytes::copy_from_slice(effect.called.args())).to_json(),
        key: effect.called.key().map_or_else(own, str::to_owned),
        reason: reason.to_owned(),
        since: system_time(since),
        set_aside: effect.set_aside.times,
        set_aside_why: effect.set_aside.shown().map(|(_, why)| why.to_owned()),
    }
}

fn open_ask(about: &About<'_>, no: StepNo, step: &Step, life: Option<&Life>) -> Option<OpenAsk> {
    let What::Question(asked) = &step.what else { return None };
    let (run, generation, path) = (about.run.clone(), about.generation, asked.path.to_string());
    let subject = &asked.question.about;
    let question = OpenQuestion {
        token: Token { run: run.clone(), generation, path: path.clone() }.text(),
        run,
        path,
        title: asked.question.title.to_string(),
        about: match subject.is_empty() {
            true => serde_json::Value::Null,
            false => Value::from_bytes(Bytes::copy_from_slice(subject)).to_json(),
        },
        by: asked.question.by.iter().map(ToString::to_string).collect(),
        asked_at: system_time(asked.asked_at),
        expires_at: asked.question.deadline.map(system_time),
        set_aside: asked.set_aside.times,
        set_aside_why: asked.set_aside.shown().map(|(_, why)| why.to_owned()),
    };
    let expired = match life {
        Some(life) => life.sleeps.is_due(no, life.now.monotonic),
        None => asked.question.deadline.is_some_and(|deadline| deadline <= about.now),
    };
    let takes = life.and_then(|life| life.core().takes(no));
    Some(OpenAsk { question, round: asked.set_aside.times, takes, expired })
}

/// One state out of all that is the case: what must be seen to first.
fn status(state: &RunState, life: Option<&Life>, look: &Look, waits: Waits) -> Status {
    if let Some((reason, _)) = life.and_then(|life| life.log.trouble()) {
        return Status::StorageTrouble { reason: reason.to_string() };
    }
    if let (true, Some(end)) = (state.ended, &state.ending) {
        return status_of_end(end);
    }
    let over = state.ending.is_some() || state.cancel.is_some();
    let held = look.holds.iter().filter(|hold| look.is_open(&hold.path));
    let held: Vec<_> = held.map(|hold| hold.step).collect();
    let asked = look.questions.iter().filter(|ask| look.is_open(&ask.question.path));
    let tokens: Vec<_> = asked.map(|ask| ask.question.token.clone()).collect();
    if life.is_none() && waits.needs_process(over, !held.is_empty() || !tokens.is_empty()) {
        return Status::Interrupted;
    }
    if waits.running && !over {
        return Status::Running;
    }
    if !waits.running && look.reconciling.is_empty() && !held.is_empty() {
        return Status::Held { steps: held };
    }
    if !waits.running && look.reconciling.is_empty() && !tokens.is_empty() {
        return Status::AwaitingAnswer { tokens };
    }
    if over {
        let settling_until = life.and_then(Life::settling_until).map(system_time);
        return match &state.ending {
            Some(End::Cancelled { .. }) => Status::Cancelling { settling_until },
            Some(End::Failed { .. }) if !state.undos.is_empty() => Status::Undoing { settling_until },
            Some(_) => Status::Ending,
            None => Status::Cancelling { settling_until },
        };
    }
    if let Some(first) = look.reconciling.first() {
        Status::Reconciling { path: first.path.clone() }
    } else if let Some((path, attempt, at)) = waits.retrying {
        Status::Retrying { path, attempt, at: system_time(at) }
    } else if !waits.signals.is_empty() {
        Status::AwaitingSignal { names: waits.signals.into_iter().collect() }
    } else if !waits.children.is_empty() {
        Status::AwaitingChild { runs: waits.children }
    } else if let Some(until) = waits.sleeping {
        Status::Sleeping { until: system_time(until) }
    } else if !waits.detached.is_empty() {
        Status::AwaitingChild { runs: waits.detached }
    } else if life.is_some_and(|life| life.core().awaits_cancel()) {
        Status::AwaitingCancel
    } else {
        Status::Running
    }
}
