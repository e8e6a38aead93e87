//! Steps against a core alone: what they ask, when they are ready, and what is left when they are dropped.

use std::{
    collections::HashSet,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use serde::Serialize;

use super::{
    Step,
    ask::{Answer, Question, ask},
    begin::begin,
    branch::branch,
    call::{EffectArgs, EffectCall, WorkflowArgs, WorkflowCall},
    cancel::{cancelled, shield},
    combine::{join, race},
    fact::{now, version},
    restart::restart_as,
    send::{publish, send},
    signal::{signal, signals},
    spawn::{Child, spawn},
    step,
    timer::sleep,
    undo::undo,
};
use crate::{
    contract::{Contract, EffectMeta, Returns, Site, WhenInDoubt, WorkflowMeta, effect_id},
    core::{Core, Delivered, Fresh, Stop, lend},
    failure::{Failure, Fault},
    id::{RunId, StepNo},
    script::Script,
    shape::probe::*,
    value::{Param, Value},
};

mod polls;
mod runs;
mod waits;

static HERE: Site = Site::new("tests", "agent", 0, "step", "tests.rs", 1);

static RELEASE: EffectMeta = EffectMeta {
    name: "release",
    explicit_name: false,
    function: "release",
    module: "tests",
    file: "tests.rs",
    line: 1,
    id: effect_id("release"),
    contract: Contract::Keyed,
    in_doubt: WhenInDoubt::Hold,
    kind: None,
    retry: None,
    timeout_ms: None,
    params: &["what"],
    resources: &[],
    returns: plain,
    run: |_| unreachable!("no body runs here"),
};

static COUNTER: WorkflowMeta = WorkflowMeta {
    name: "counter",
    explicit_name: false,
    function: "counter",
    module: "tests",
    file: "tests.rs",
    line: 1,
    params: &["what"],
    sites: &[],
    returns: plain,
    run: |_| unreachable!("no child runs here"),
};

static RESEARCHER: WorkflowMeta = WorkflowMeta {
    name: "researcher",
    explicit_name: false,
    function: "researcher",
    module: "tests",
    file: "tests.rs",
    line: 1,
    params: &["what"],
    sites: &[],
    returns: faulty,
    run: |_| unreachable!("no child runs here"),
};

fn plain() -> Returns {
    let probe = Probe::<u64>::new();
    probe.shape(probe.text()).returns()
}

fn faulty() -> Returns {
    let probe = Probe::<Result<u64, Failure>>::new();
    (&&&probe).shape((&&&probe).text()).returns()
}

const TEXT: Param<String> = Param::new("what");
const SET: Param<HashSet<u64>> = Param::new("what");

fn release(what: &str) -> EffectCall<u64> {
    EffectArgs::new(&RELEASE).arg(&TEXT, &what.to_owned()).key_text("key:").key_value(what, '\0').call()
}

fn counter(what: &str) -> WorkflowCall<u64> {
    WorkflowArgs::new(&COUNTER).arg(&TEXT, &what.to_owned()).call()
}

/// What every replay would write in another order.
fn set() -> HashSet<u64> {
    (0..100).collect()
}

/// A run's core and its code.
struct Run<T> {
    core: Option<Box<Core>>,
    code: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: 'static> Run<T> {
    fn of(code: impl Future<Output = T> + Send + 'static) -> Run<T> {
        let script = Script::new(Box::new(|_| Ok(Vec::new())));
        let core = Core::new(script, 1_000, RunId::new("run").unwrap(), "store/run/0".into());
        Run { core: Some(core), code: Some(Box::pin(code)) }
    }

    /// Of code that awaits one step.
    fn awaiting<S: Step<Output = T>>(awaited: S) -> Run<T>
    where
        S::Future: 'static,
    {
        Run::of(step(awaited, &HERE))
    }

    fn core(&mut self) -> &mut Core {
        self.core.as_mut().unwrap()
    }

    fn lent<R>(&mut self, poll: impl FnOnce(&mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> R) -> R {
        let (core, result) = lend(self.core.take().unwrap(), || poll(&mut self.code));
        self.core = Some(core);
        result.unwrap()
    }

    fn poll(&mut self) -> Poll<T> {
        self.lent(|code| code.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop())))
    }

    /// Polls: what was asked, and that nothing is ready.
    #[track_caller]
    fn asks(&mut self, asked: &[&str]) {
        assert!(self.poll().is_pending(), "nothing is ready");
        assert_eq!(self.asked(), asked);
    }

    /// The commands asked since, in words.
    fn asked(&mut self) -> Vec<String> {
        let fresh = std::mem::take(&mut self.core().fresh);
        fresh.into_iter().map(words).collect()
    }

    /// Delivers, and whether somebody waits for it.
    fn deliver(&mut self, no: u32, what: Delivered) -> bool {
        self.core().deliver(StepNo(no), what)
    }

    /// Delivers and polls.
    #[track_caller]
    fn after(&mut self, no: u32, what: Delivered) -> Poll<T> {
        assert!(self.deliver(no, what), "somebody waits for it");
        self.poll()
    }

    /// A cancel is taken.
    fn cancel(&mut self) {
        self.core().cancelled = true;
    }

    #[track_caller]
    fn stop(&mut self) -> String {
        match self.core().stop.take() {
            Some(Stop::ValueUnrecordable { what, reason, .. }) => format!("unrecordable {what}: {reason}"),
            Some(Stop::Undecodable { step, .. }) => format!("undecodable {step}"),
            Some(Stop::Fault { step, fault, .. }) => format!("fault {step}: {}", fault.kind()),
            other => panic!("{other:?}"),
        }
    }
}

fn words(command: Fresh) -> String {
    match command {
        Fresh::Effect(effect) => format!("effect {}", effect.path),
        Fresh::Timer { path, .. } => format!("timer {path}"),
        Fresh::Version { path, version, .. } => format!("version {path} = {version}"),
        Fresh::Signal { path, signal, drain: false, .. } => format!("signal {path} of {signal}"),
        Fresh::Signal { path, signal, drain: true, .. } => format!("drain {path} of {signal}"),
        Fresh::Question { path, question, within, .. } => {
            let about = match question.about.is_empty() {
                true => String::new(),
                false => Value::from_bytes(question.about.to_vec().into()).to_json().to_string(),
            };
            format!("question {path}: {} {about} by {} within {within:?}", question.title, question.by.join(","))
        }
        Fresh::Child(child) => {
            let detached = if child.detached { ", detached" } else { "" };
            format!("child {} of {}{detached}", child.path, child.meta.name)
        }
        Fresh::Message { path, to, signal, value, .. } => {
            format!("message {path}: {signal} {} to {to}", value.to_json())
        }
        Fresh::Publish { path, name, value, .. } => format!("publish {path}: {name} {}", value.to_json()),
        Fresh::Undo { path, undo, .. } => {
            format!("undo {path} of {} under {}", undo.effect, undo.key.unwrap_or_default())
        }
        Fresh::Closed { step } => format!("closed {step}"),
    }
}

fn bytes<T: Serialize>(value: &T) -> Bytes {
    Value::encode(value).unwrap().as_bytes().clone()
}

fn message<T: Serialize>(value: &T) -> Delivered {
    Delivered::Messages(vec![bytes(value)])
}

fn child_cancelled() -> Delivered {
    Delivered::Fault(Box::new(Fault::ChildCancelled { run: "child".to_owned(), reason: "why".to_owned() }))
}
