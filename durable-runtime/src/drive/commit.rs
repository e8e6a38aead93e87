//! The commands of a poll become entries, and what must become true with them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use super::Life;
use crate::{
    bodies::Report,
    clock::Millis,
    core::{Fresh, FreshChild, FreshEffect, Until},
    effect::Start,
    entry::{Call, Child, ChildEnd, Entry, EntryError, Kind, Parent, RunStarted},
    fold::{Step, What},
    head::{HeadInfo, Started},
    id::{Attempt, Generation, RunId, StepNo},
    mailbox::{Mail, Message},
    store::{Act, Head},
};

impl Life {
    /// Appends a command. False if that is not possible; then the run stops.
    pub(super) fn commit(&mut self, command: Fresh) -> bool {
        match command {
            Fresh::Effect(effect) => self.commit_effect(*effect),
            Fresh::Timer { path, site, until } => {
                let step = self.state().next_step;
                let (deadline, absolute) = match until {
                    Until::After(wait) => (self.wall_after(wait), false),
                    Until::At(deadline) => (deadline, true),
                };
                if !self.append(Kind::TimerSet { path, site, deadline, absolute }) {
                    return false;
                }
                self.arm_timer(step, deadline, absolute);
                true
            }
            Fresh::Version { path, site, version } => self.append(Kind::VersionChosen { path, site, version }),
            Fresh::Signal { path, site, signal, drain } => {
                let (step, name) = (self.state().next_step, signal.to_string());
                if !self.append(Kind::SignalAwaited { path, site, signal, drain }) {
                    return false;
                }
                self.mailbox.wait(&name, step);
                if drain {
                    self.mailbox.drain(step);
                }
                true
            }
            Fresh::Question { path, site, mut question, within } => {
                let step = self.state().next_step;
                question.deadline = within.map(|within| self.wall_after(within));
                let deadline = question.deadline;
                if !self.append(Kind::QuestionAsked { path, site, question: *question }) {
                    return false;
                }
                self.mailbox.questions.insert(step);
                if let Some(deadline) = deadline {
                    self.arm_timer(step, deadline, false);
                }
                true
            }
            Fresh::Child(child) => self.commit_child(*child),
            Fresh::Message { path, site, to, signal, value, digest } => {
                let id = Mail::sent_id(&self.setting.key_prefix, self.core().seed, &path.to_string());
                let (name, bytes, sent_at) = (signal.to_string(), value.as_bytes().clone(), self.now.wall);
                let kind = Kind::MessageSent {
                    path,
                    site,
                    to: to.as_str().to_owned().into(),
                    signal,
                    value: bytes.to_vec().into(),
                    digest,
                };
                if !self.append(kind) {
                    return false;
                }
                let row = Message::Signal(Mail { id, name, value: bytes, sent_at }).row();
                self.log.act(Act::Put { to, row });
                true
            }
            Fresh::Publish { path, site, name, value, digest } => {
                let (published, bytes) = (name.as_ref().into(), value.as_bytes().clone());
                let value = bytes.to_vec().into();
                if !self.append(Kind::ValuePublished { path, site, name, value, digest }) {
                    return false;
                }
                self.log.act(Act::Publish { name: published, value: bytes });
                true
            }
            Fresh::Undo { path, site, undo } => self.append(Kind::UndoAdded { path, site, undo: *undo }),
            Fresh::Closed { step } => {
                let was = self.state().steps.get(&step).cloned();
                if !self.append(Kind::StepClosed { step }) {
                    return false;
                }
                if let Some(was) = was {
                    if was.is_attached_child() {
                        self.cancel_child(step, &was, "its parent does not wait for it any more");
                    }
                    self.closed(step, &was);
                }
                true
            }
        }
    }

    fn commit_effect(&mut self, effect: FreshEffect) -> bool {
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
            let path = effect.path.text();
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

    fn wall_after(&self, wait: Duration) -> Millis {
        self.now.wall.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }

    /// A child and its first entry are made in the batch that says so: a crash leaves both or neither.
    fn commit_child(&mut self, child: FreshChild) -> bool {
        let step = self.state().next_step;
        let FreshChild { path, site, meta, args, digest, run, detached } = child;
        let at_path = path.to_string();
        let parent = self.link(step);
        let recorded = Child { run: run.as_str().to_owned().into(), detached, workflow: meta.name.into(), digest };
        if !self.append(Kind::ChildSpawned { path, site, child: recorded }) {
            return false;
        }
        let at = self.state().last_at;
        let seed = self.derived_seed(&at_path);
        let first = RunStarted {
            workflow: meta.name.into(),
            module: meta.module.into(),
            explicit_name: meta.explicit_name,
            args: (&**args.value().as_bytes()).into(),
            digest,
            build: env!("CARGO_PKG_VERSION").into(),
            seed,
            born: at,
            parent: Some(parent.clone()),
            undos: Vec::new(),
        };
        let (head, frames) = match first_record(first, at, Generation(0)) {
            Ok(first) => first,
            Err(e) => return self.cannot_write(&e),
        };
        let owner = parent.id();
        let taken = Message::Child { child: run.as_str().to_owned(), parent, end: ChildEnd::IdTaken };
        self.log.act(Act::Create { run, count: 1, frames, head, owner, taken: taken.row() });
        true
    }

    /// 128 bits that follow from the run's own and a place in it.
    pub(super) fn derived_seed(&self, place: &str) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(b"D");
        hash.update(&self.core().seed.to_le_bytes());
        hash.update(&self.setting.generation.0.to_le_bytes());
        hash.update(place.as_bytes());
        hash.digest128()
    }

    /// Tells a child that it is cancelled: a crash leaves it told together with the entry that this is about, or not at all.
    pub(super) fn cancel_child(&mut self, step: StepNo, child: &Step, reason: &str) {
        let What::Child { run, .. } = &child.what else { return };
        let Ok(to) = RunId::new(&**run) else { return };
        let (reason, by) = (reason.to_owned(), format!("run {}", self.setting.run.as_str()));
        let row = Message::Cancel { reason, by, parent: Some(self.link(step)) }.row();
        self.log.act(Act::Put { to, row });
    }

    /// What says of a child that it is this run's.
    pub(super) fn link(&self, step: StepNo) -> Parent<'static> {
        let run = self.setting.run.as_str().to_owned().into();
        Parent { run, generation: self.setting.generation, step, seed: self.core().seed }
    }
}

/// The first entry of a run's log, and the run's head.
pub(crate) fn first_record(
    started: RunStarted<'_>,
    at: Millis,
    generation: Generation,
) -> Result<(Head, Bytes), EntryError> {
    let head = HeadInfo::new(&Started::of(&started), None).head(generation);
    let mut frames = BytesMut::new();
    Entry { at, kind: Kind::RunStarted(started) }.write(&mut frames)?;
    Ok((head, frames.freeze()))
}
