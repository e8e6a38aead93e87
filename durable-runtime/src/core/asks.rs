//! What the code asks of the world beyond effects and sleeps: signals, people, other runs, and the end.

use std::{borrow::Cow, time::Duration};

use xxhash_rust::xxh3::Xxh3;

use super::{CancelWait, Core, Fresh, FreshChild, Restart, Stop, Takes};
use crate::{
    contract::{EffectMeta, Site, WorkflowMeta},
    entry::{Question, Undo},
    failure::shortened,
    fold::What,
    id::{RUN_ID_BYTES_MAX, RunId, RunIdError, StepNo},
    script::Command,
    value::{Args, Value, ValueError},
};

/// How many waits for a cancel that begin after it are told of it.
const LATE_CANCEL_WAITS_MAX: u32 = 10_000;

/// What is asked for a question.
pub(crate) struct AskQuestion {
    pub(crate) name: Cow<'static, str>,
    pub(crate) title: String,
    /// What is to be approved, if anything is given.
    pub(crate) about: Option<Result<Value, ValueError>>,
    pub(crate) by: Vec<String>,
    pub(crate) within: Option<Duration>,
    pub(crate) takes: Takes,
}

/// What is asked for a child run.
pub(crate) struct AskChild {
    pub(crate) name: Cow<'static, str>,
    pub(crate) meta: &'static WorkflowMeta,
    pub(crate) args: Result<(Args, u128), ValueError>,
    pub(crate) id: Option<Result<RunId, RunIdError>>,
    pub(crate) detached: bool,
}

impl Core {
    /// Asks for a signal: one that is waited for, or all that are there.
    pub(crate) fn ask_signal(
        &mut self,
        name: Cow<'static, str>,
        signal: Cow<'static, str>,
        drain: bool,
        takes: Takes,
        site: &'static Site,
    ) -> Option<StepNo> {
        if self.is_closing() {
            return None;
        }
        self.last_site = Some(site);
        self.short("the name of a signal", [&*signal], site)?;
        let path = self.path(name);
        let step = self.new_slot(None, Some(takes));
        if self.command(&Command::Signal { path: &path, signal: &signal, drain }, Some(site)) {
            self.fresh.push(Fresh::Signal { path, site: site.id, signal, drain });
        }
        Some(step)
    }

    /// Asks a person.
    pub(crate) fn ask_question(&mut self, ask: AskQuestion, site: &'static Site) -> Option<StepNo> {
        if self.is_closing() {
            return None;
        }
        self.last_site = Some(site);
        let AskQuestion { name, title, about, by, within, takes } = ask;
        self.short("the text of a question, and who may answer it,", std::iter::once(&title).chain(&by), site)?;
        let about = match about {
            Some(about) => Some(self.recordable(|| format!("what question {title:?} is about"), about, site)?),
            None => None,
        };
        let mut hash = Xxh3::new();
        hash.update(&about.as_ref().map_or(0, Value::digest).to_le_bytes());
        for text in std::iter::once(&title).chain(&by) {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        let digest = hash.digest128();
        let path = self.path(name);
        let step = self.new_slot(None, Some(takes));
        if self.command(&Command::Question { path: &path, title: &title, digest }, Some(site)) {
            let question = Box::new(Question {
                title: title.into(),
                about: about.map(|about| about.as_bytes().to_vec()).unwrap_or_default().into(),
                by: by.into_iter().map(Into::into).collect(),
                digest,
                deadline: None,
            });
            self.fresh.push(Fresh::Question { path, site: site.id, question, within });
        }
        Some(step)
    }

    /// Asks for a child run: its step and its id.
    pub(crate) fn ask_child(&mut self, ask: AskChild, site: &'static Site) -> Option<(StepNo, RunId)> {
        if self.is_closing() {
            return None;
        }
        self.last_site = Some(site);
        let AskChild { name, meta, args, id, detached } = ask;
        let what = || format!("the arguments of workflow {}", meta.name);
        let (args, digest) = self.recordable_args(what, args, site)?;
        let path = self.path(name);
        let given = id.is_some();
        let mut run = match id {
            None => self.child_id(meta.name, &path.to_string()),
            Some(Ok(run)) => run,
            Some(Err(e)) => {
                let (what, reason) = (format!("the id of a child run of {}", meta.name), e.to_string());
                self.halt(Stop::ValueUnrecordable { what, site, reason });
                return None;
            }
        };
        let step = self.new_slot(None, None);
        self.unawait(step);
        let command = Command::Child { path: &path, run: run.as_str(), given, workflow: meta.name, digest, detached };
        if self.command(&command, Some(site)) {
            let (site, run) = (site.id, run.clone());
            self.fresh.push(Fresh::Child(Box::new(FreshChild { path, site, meta, args, digest, run, detached })));
        } else if let Some(What::Child { run: recorded, .. }) = self.state.steps.get(&step).map(|step| &step.what)
            && let Ok(recorded) = RunId::new(&**recorded)
        {
            // Made in another store, perhaps, whose ids are others.
            run = recorded;
        }
        self.goes_on().then_some((step, run))
    }

    /// The id of a child that was given none: readable, and no other step's, also if this run's id was another one's that was removed.
    fn child_id(&self, workflow: &str, path: &str) -> RunId {
        let place = format!("{}/{path}", self.key_prefix);
        let mut hash = Xxh3::new();
        hash.update(&self.seed.to_le_bytes());
        hash.update(place.as_bytes());
        let unique = format!("{:016x}", hash.digest());
        let room = RUN_ID_BYTES_MAX - unique.len() - 2;
        let mut workflow = workflow.to_owned();
        truncate(&mut workflow, 64);
        let mut parent = self.run.as_str().to_owned();
        truncate(&mut parent, room - workflow.len());
        match RunId::new(format!("{parent}/{workflow}-{unique}")) {
            Ok(id) => id,
            Err(e) => unreachable!("cut to fit: {e}"),
        }
    }

    /// Sends a message to another run's mailbox; false if nothing is asked any more.
    pub(crate) fn send(
        &mut self,
        name: Cow<'static, str>,
        to: Result<RunId, RunIdError>,
        signal: Cow<'static, str>,
        value: Result<Value, ValueError>,
        site: &'static Site,
    ) -> bool {
        if self.is_closing() {
            return false;
        }
        self.last_site = Some(site);
        if self.short("the name of a signal", [&*signal], site).is_none() {
            return false;
        }
        let Some(value) = self.recordable(|| format!("the value of signal {signal}"), value, site) else {
            return false;
        };
        let to = match to {
            Ok(to) => to,
            Err(e) => {
                let what = format!("the run that signal {signal} is sent to");
                self.halt(Stop::ValueUnrecordable { what, site, reason: e.to_string() });
                return false;
            }
        };
        let path = self.path(name);
        let digest = value.digest();
        self.next_step.0 += 1;
        if self.command(&Command::Message { path: &path, to: to.as_str(), signal: &signal, digest }, Some(site)) {
            self.fresh.push(Fresh::Message { path, site: site.id, to, signal, value, digest });
        }
        self.goes_on()
    }

    /// Publishes a value; false if nothing is asked any more.
    pub(crate) fn publish(
        &mut self,
        step: Cow<'static, str>,
        name: Cow<'static, str>,
        value: Result<Value, ValueError>,
        site: &'static Site,
    ) -> bool {
        if self.is_closing() {
            return false;
        }
        self.last_site = Some(site);
        if self.short("the name of a published value", [&*name], site).is_none() {
            return false;
        }
        let Some(value) = self.recordable(|| format!("the value published as {name}"), value, site) else {
            return false;
        };
        let path = self.path(step);
        let digest = value.digest();
        self.next_step.0 += 1;
        if self.command(&Command::Publish { path: &path, name: &name, digest }, Some(site)) {
            self.fresh.push(Fresh::Publish { path, site: site.id, name, value, digest });
        }
        self.goes_on()
    }

    /// Registers a compensation, also while the run is being cancelled; false if the code is over.
    pub(crate) fn add_undo(
        &mut self,
        name: Cow<'static, str>,
        meta: &'static EffectMeta,
        args: Result<(Args, u128), ValueError>,
        key: Option<String>,
        site: &'static Site,
    ) -> bool {
        if self.restart.is_some() {
            return false;
        }
        self.last_site = Some(site);
        let what = || format!("the arguments of {}, which undoes something", meta.name);
        let Some((args, digest)) = self.recordable_args(what, args, site) else { return false };
        let path = self.path(name);
        self.next_step.0 += 1;
        if self.command(&Command::Undo { path: &path, effect: meta.name, digest }, Some(site)) {
            let undo = Box::new(Undo {
                effect: meta.name.into(),
                module: meta.module.into(),
                contract: meta.contract.into(),
                args: args.value().as_bytes().to_vec().into(),
                digest,
                key: key.map(Into::into),
            });
            self.fresh.push(Fresh::Undo { path, site: site.id, undo });
        }
        self.goes_on()
    }

    /// The code is over: the run goes on with this, in a fresh log.
    pub(crate) fn restart_as(
        &mut self,
        meta: &'static WorkflowMeta,
        args: Result<(Args, u128), ValueError>,
        site: &'static Site,
    ) {
        if self.is_closing() {
            return;
        }
        self.last_site = Some(site);
        let what = || format!("the arguments of workflow {}", meta.name);
        if let Some((args, digest)) = self.recordable_args(what, args, site) {
            self.restart = Some(Box::new(Restart { meta, args, digest }));
        }
    }

    /// Stops the run if texts are longer than a value may be.
    fn short<T: AsRef<str>>(
        &mut self,
        what: &str,
        texts: impl IntoIterator<Item = T>,
        site: &'static Site,
    ) -> Option<()> {
        let bytes: usize = texts.into_iter().map(|text| text.as_ref().len()).sum();
        if bytes <= self.value_bytes_max {
            return Some(());
        }
        let reason = format!("it has {bytes} bytes, more than the limit of {}", self.value_bytes_max);
        self.halt(Stop::ValueUnrecordable { what: what.to_owned(), site, reason });
        None
    }

    fn recordable_args(
        &mut self,
        what: impl FnOnce() -> String,
        args: Result<(Args, u128), ValueError>,
        site: &'static Site,
    ) -> Option<(Args, u128)> {
        match args {
            Ok((args, digest)) => {
                let value = self.recordable(what, Ok(args.value().clone()), site)?;
                Some((Args::from_value(value), digest))
            }
            Err(e) => {
                let reason = shortened(&e.to_string()).into_owned();
                self.halt(Stop::ValueUnrecordable { what: what(), site, reason });
                None
            }
        }
    }

    // ---- cancelled() ----

    /// Waits to hear of a cancel. What asks again and again after the cancel is told so often, and then not any more: a loop that
    /// does not heed it would never end, and leaves no entry.
    pub(crate) fn wait_for_cancel(&mut self) -> u64 {
        let no = self.next_cancel_wait;
        self.next_cancel_wait += 1;
        self.late_cancel_waits += u32::from(self.cancelled);
        if self.late_cancel_waits <= LATE_CANCEL_WAITS_MAX {
            self.cancel_waits.insert(no, CancelWait { scope: self.here, told: false });
        }
        no
    }

    /// Whether that wait was told of a cancel.
    pub(crate) fn is_told_of_cancel(&mut self, no: u64) -> bool {
        let here = self.here;
        match self.cancel_waits.get_mut(&no) {
            Some(wait) => {
                wait.scope = here;
                wait.told
            }
            None => false,
        }
    }

    /// Whether somebody waits to hear of a cancel.
    pub(crate) fn awaits_cancel(&self) -> bool {
        self.cancel_waits.values().any(|wait| !wait.told)
    }

    pub(crate) fn forget_cancel_wait(&mut self, no: u64) {
        self.cancel_waits.remove(&no);
    }

    /// After a cancel each waiting `cancelled()` gets a turn of its own, in the order asked, before any other completion:
    /// true if there is one to be polled now.
    pub(crate) fn cancel_turn(&mut self) -> bool {
        if !self.cancelled || self.restart.is_some() {
            return false;
        }
        let Some(wait) = self.cancel_waits.values_mut().find(|wait| !wait.told) else { return false };
        wait.told = true;
        let scope = wait.scope;
        self.mark(scope);
        true
    }
}

fn truncate(text: &mut String, bytes: usize) {
    while text.len() > bytes {
        text.pop();
    }
}
