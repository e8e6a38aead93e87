//! What people and programs see of runs: states, holds, and logs as typed entries and as JSON lines.

use std::{collections::BTreeMap, time::SystemTime};

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use crate::{
    clock::{Millis, system_time},
    contract::{Contract, Returns, site_by_id},
    drive::Life,
    entry::{Call, Entry, EntryError, Kind, Outcome, each_entry},
    error::Parked,
    fold::{StepState, What},
    id::{Attempt, RunId, Seq, StepNo},
    script::place,
    store::{Record, StoreError},
    value::Value,
};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It is being replayed, or waits for its turn.
    Opening,
    /// Its code or at least one body of an effect is under way, or waits for a free slot.
    Running,
    /// Only sleeps, and this one is over first.
    Sleeping {
        /// When.
        until: SystemTime,
    },
    /// An attempt at an effect failed, and nothing else is under way.
    Retrying {
        /// The step's path.
        path: String,
        /// The attempt that failed.
        attempt: Attempt,
        /// When the next one is due.
        at: SystemTime,
    },
    /// At least one step is in doubt and is being settled: its reconcile function is asked, or a person's "run again" waits until
    /// no request of the earlier attempt can be under way any more.
    Reconciling {
        /// The step's path.
        path: String,
    },
    /// At least one step is in doubt and waits for a person; nothing else is under way. See [`crate::Runtime::holds`].
    Held {
        /// The steps.
        steps: Vec<StepNo>,
    },
    /// The code is over; bodies that nobody waits for are still under way.
    Ending,
    /// The store does not take the run's entries; it is tried again.
    StorageTrouble {
        /// Why.
        reason: String,
    },
    /// Its workflow is not in this binary.
    WaitingForCode {
        /// The recorded name.
        workflow: String,
        /// The module it was in.
        module: String,
    },
    /// It is not gone on with.
    Parked(Parked),
    /// It completed.
    Completed,
    /// Its workflow returned an error.
    Failed {
        /// The error in words.
        message: String,
    },
}

impl Status {
    /// Whether the run has its terminal entry.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Status::Completed | Status::Failed { .. })
    }

    /// One word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Status::Opening => "opening",
            Status::Running => "running",
            Status::Sleeping { .. } => "sleeping",
            Status::Retrying { .. } => "retrying",
            Status::Reconciling { .. } => "reconciling",
            Status::Held { .. } => "held",
            Status::Ending => "ending",
            Status::StorageTrouble { .. } => "storage trouble",
            Status::WaitingForCode { .. } => "waiting for code",
            Status::Parked(_) => "parked",
            Status::Completed => "completed",
            Status::Failed { .. } => "failed",
        }
    }

    /// What a person can do now, if anything is for a person to do.
    pub fn next_action(&self) -> Option<String> {
        match self {
            Status::Held { .. } => Some("find out what the held step did, and call Runtime::resolve".into()),
            Status::StorageTrouble { .. } => {
                Some("make the store writable again: free space, restart the server".into())
            }
            Status::WaitingForCode { workflow, .. } => {
                Some(format!("open the store with a binary that has {workflow}"))
            }
            Status::Parked(parked) => Some(parked.next.clone()),
            _ => None,
        }
    }
}

/// A run in a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its id.
    pub id: RunId,
    /// Recorded name of its workflow.
    pub workflow: String,
    /// The module of its workflow.
    pub module: String,
    /// Where it stands.
    pub status: Status,
    /// When it was started.
    pub started_at: SystemTime,
    /// Since when it stands there, as far as that is known: the last entry of its log, the parking, its end.
    pub since: SystemTime,
}

/// A step in doubt that waits for a person.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hold {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepNo,
    /// Its path.
    pub path: String,
    /// The effect.
    pub effect: String,
    /// The attempt in doubt: what [`crate::Runtime::resolve`] must name.
    pub attempt: Attempt,
    /// The arguments.
    pub args: Json,
    /// The key under which the provider may know the call.
    pub key: String,
    /// Why nobody knows.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
}

/// What a run's task says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub(crate) status: Option<Status>,
    pub(crate) last_at: Millis,
    /// Steps in doubt that wait for a person.
    pub(crate) holds: Vec<Hold>,
    /// Steps in doubt that a reconcile function is asked about: a person may resolve them too.
    pub(crate) reconciling: Vec<Hold>,
    /// What the effects of all these return.
    pub(crate) returns: BTreeMap<StepNo, Returns>,
}

impl Look {
    pub(crate) fn at(life: &Life) -> Look {
        let state = life.state();
        let (mut holds, mut reconciling, mut returns) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (mut running, mut retrying) = (false, None);
        let mut sleeping: Option<Millis> = None;
        for (no, step) in &state.steps {
            match (&step.what, &step.state) {
                (What::Timer { deadline, .. }, StepState::Waiting) => {
                    sleeping = Some(sleeping.map_or(*deadline, |first| first.min(*deadline)));
                }
                (What::Effect(effect), StepState::InDoubt(attempt, reason, since)) if !step.closed => {
                    let asking = life.settling.get(no).is_some_and(|settle| settle.is_under_way());
                    returns.extend(life.core().effect(*no).map(|meta| (*no, (meta.returns)())));
                    let doubts = if asking { &mut reconciling } else { &mut holds };
                    doubts.push(Hold {
                        run: life.setting.run.clone(),
                        step: *no,
                        path: effect.path.to_string(),
                        effect: effect.effect.to_string(),
                        attempt: *attempt,
                        args: Value::from_bytes(Bytes::copy_from_slice(&effect.args)).to_json(),
                        key: life.key(effect.key.as_deref(), &effect.path),
                        reason: reason.to_string(),
                        since: system_time(*since),
                    });
                }
                (What::Effect(effect), StepState::Failed(attempt, at)) if !step.closed => {
                    retrying = Some((effect.path.to_string(), *attempt, *at));
                }
                (What::Effect(_), StepState::Called(_) | StepState::Queued | StepState::NotStarted(_)) => {
                    running = true
                }
                _ => {}
            }
        }
        let status = if let Some((reason, _)) = life.log.trouble() {
            Status::StorageTrouble { reason: reason.to_string() }
        } else if state.ending.is_some() {
            Status::Ending
        } else if running {
            Status::Running
        } else if let Some(first) = reconciling.first() {
            Status::Reconciling { path: first.path.clone() }
        } else if !holds.is_empty() {
            Status::Held { steps: holds.iter().map(|hold| hold.step).collect() }
        } else if let Some((path, attempt, at)) = retrying {
            Status::Retrying { path, attempt, at: system_time(at) }
        } else if let Some(until) = sleeping {
            Status::Sleeping { until: system_time(until) }
        } else {
            Status::Running
        };
        Look { status: Some(status), last_at: state.last_at, holds, reconciling, returns }
    }
}

/// One entry of a log, for readers.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Its place.
    pub seq: Seq,
    /// When it was appended.
    pub at: SystemTime,
    /// Its name: `effect.called`, `run.completed`, ..
    pub name: &'static str,
    /// The step it is about.
    pub step: Option<StepNo>,
    /// The step's path.
    pub path: Option<String>,
    json: Map<String, Json>,
}

impl LogEntry {
    /// Everything the entry says, values decoded, as one JSON object.
    pub fn to_json(&self) -> Json {
        Json::Object(self.json.clone())
    }

    /// One field of [`LogEntry::to_json`].
    pub fn get(&self, field: &str) -> Option<&Json> {
        self.json.get(field)
    }
}

/// The entry as one line of JSON.
impl std::fmt::Display for LogEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", Json::Object(self.json.clone()))
    }
}

enum ReadError {
    Entry(Seq, EntryError),
}

impl From<(Seq, EntryError)> for ReadError {
    fn from((seq, e): (Seq, EntryError)) -> Self {
        ReadError::Entry(seq, e)
    }
}

/// Reads records into entries, for a log from its beginning up to `len` entries. `key_prefix`: of the engine's own keys.
pub(crate) fn read_log(
    run: &RunId,
    place: &str,
    records: Vec<Record>,
    len: u64,
    key_prefix: &str,
) -> Result<Vec<LogEntry>, StoreError> {
    let mut entries = Vec::new();
    let mut names = Names { key_prefix, steps: BTreeMap::new(), next: 0 };
    for record in records {
        let read = each_entry(record.first, record.frames, |seq, _, entry| -> Result<(), ReadError> {
            if seq.0 < len {
                entries.push(names.read(seq, entry));
            }
            Ok(())
        });
        if let Err(ReadError::Entry(seq, e)) = read {
            let (place, run) = (place.to_owned(), Some(run.clone()));
            return Err(StoreError::Damaged { place, run, seq: Some(seq), what: e.to_string().into() });
        }
    }
    Ok(entries)
}

/// What a reader must remember of the entries before, to say which step an entry is about.
struct Names<'a> {
    key_prefix: &'a str,
    steps: BTreeMap<StepNo, (String, Option<Json>)>,
    next: u32,
}

impl Names<'_> {
    fn ask(&mut self, path: String, key: Option<Json>) -> StepNo {
        let step = StepNo(self.next);
        self.next += 1;
        self.steps.insert(step, (path, key));
        step
    }

    fn read(&mut self, seq: Seq, entry: &Entry<'_>) -> LogEntry {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Json| {
            fields.insert(name.to_owned(), value);
        };
        put("seq", seq.0.into());
        put("at", time(entry.at).into());
        put("entry", entry.kind.name().into());
        let mut step = None;
        let mut rest: Vec<(&str, Json)> = Vec::new();
        match &entry.kind {
            Kind::RunStarted(started) => {
                rest.push(("workflow", (&*started.workflow).into()));
                rest.push(("module", (&*started.module).into()));
                rest.push(("args", value(&started.args)));
                rest.push(("build", (&*started.build).into()));
            }
            Kind::RunEnding(end) | Kind::RunEnded(end) => match end {
                crate::entry::End::Completed { value: v } => rest.push(("value", value(v))),
                crate::entry::End::Failed { value: v, message } => {
                    rest.push(("error", (&**message).into()));
                    rest.push(("value", value(v)));
                }
            },
            Kind::EffectQueued(call) | Kind::EffectCalled(call) => {
                let path = call.path.to_string();
                let own = || format!("{}/{path}", self.key_prefix);
                let keyed = Contract::from(call.contract) == Contract::Keyed;
                let key = keyed.then(|| Json::from(call.key.as_deref().map_or_else(own, str::to_owned)));
                step = Some(self.ask(path, key.clone()));
                rest = call_fields(call);
                if let Kind::EffectCalled(_) = entry.kind {
                    rest.push(("attempt", 1.into()));
                }
                rest.extend(key.map(|key| ("key", key)));
            }
            Kind::TimerSet { path, site, deadline, .. } => {
                step = Some(self.ask(path.to_string(), None));
                rest.push(("deadline", time(*deadline).into()));
                rest.extend(site_field(*site));
            }
            Kind::VersionChosen { path, site, version } => {
                step = Some(self.ask(path.to_string(), None));
                rest.push(("version", (*version).into()));
                rest.extend(site_field(*site));
            }
            Kind::StepClosed { step: s } | Kind::TimerFired { step: s } => step = Some(*s),
            Kind::EffectResult { step: s, attempt, outcome, unsure } => {
                step = Some(*s);
                rest.push(("attempt", attempt.0.into()));
                rest.push(outcome_field(outcome));
                if *unsure {
                    rest.push(("unsure", true.into()));
                }
            }
            Kind::EffectCalledAgain { step: s, attempt } => {
                step = Some(*s);
                rest.push(("attempt", attempt.0.into()));
                rest.extend(self.steps.get(s).and_then(|(_, key)| key.clone()).map(|key| ("key", key)));
            }
            Kind::EffectFailed { step: s, attempt, error, retry_at, unsure } => {
                step = Some(*s);
                rest.push(("attempt", attempt.0.into()));
                rest.push(outcome_field(error));
                rest.push(("retry_at", time(*retry_at).into()));
                if *unsure {
                    rest.push(("unsure", true.into()));
                }
            }
            Kind::EffectNotStarted { step: s, attempt } => {
                step = Some(*s);
                rest.push(("attempt", attempt.0.into()));
            }
            Kind::EffectInDoubt { step: s, attempt, reason } => {
                step = Some(*s);
                rest.push(("attempt", attempt.0.into()));
                rest.push(("reason", (&**reason).into()));
            }
            Kind::EffectResolved { step: s, attempt, how, by } => {
                step = Some(*s);
                rest.push(("attempt", attempt.0.into()));
                rest.push((
                    "how",
                    match how {
                        crate::entry::Resolved::Succeeded => "succeeded",
                        crate::entry::Resolved::Failed => "failed",
                        crate::entry::Resolved::RunAgain => "run again",
                    }
                    .into(),
                ));
                rest.push(("by", (&**by).into()));
            }
        }
        let path = step.and_then(|s| self.steps.get(&s).map(|(path, _)| path.clone()));
        if let Some(step) = step {
            put("step", step.0.into());
        }
        if let Some(path) = &path {
            put("path", path.clone().into());
        }
        for (name, value) in rest {
            put(name, value);
        }
        LogEntry { seq, at: system_time(entry.at), name: entry.kind.name(), step, path, json: fields }
    }
}

fn call_fields(call: &Call<'_>) -> Vec<(&'static str, Json)> {
    let mut fields = vec![
        ("effect", Json::from(call.effect())),
        ("contract", Contract::from(call.contract).as_str().into()),
        ("args", value(&call.args)),
    ];
    fields.extend(site_field(call.site));
    fields
}

fn site_field(site: u128) -> Option<(&'static str, Json)> {
    site_by_id(site).map(|site| ("site", place(site).into()))
}

fn outcome_field(outcome: &Outcome<'_>) -> (&'static str, Json) {
    match outcome {
        Outcome::Ok(v) | Outcome::Err(v) => ("value", value(v)),
        Outcome::Fault(fault) => ("fault", json!({ "text": fault.0.to_string(), "fault": fault.0 })),
    }
}

fn value(bytes: &[u8]) -> Json {
    Value::from_bytes(Bytes::copy_from_slice(bytes)).to_json()
}

/// RFC 3339 in UTC; milliseconds since 1970 where that has no date.
fn time(at: Millis) -> String {
    // The last millisecond of the year 9999.
    const LAST: Millis = 253_402_300_799_999;
    if at <= LAST {
        humantime::format_rfc3339_millis(system_time(at)).to_string()
    } else {
        format!("{at} ms after 1970")
    }
}
