//! The disk as one process sees it: it says when something happens on it, counts, dies at a given moment, and can be
//! broken for the controls.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use durable::store::{Act, Addressee, Batch, Done, Store, Write, Written};
use tokio::sync::Notify;

use crate::{
    common::{frames, pass_on::pass_on},
    crash::{CrashStore, Fault},
};

/// When a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Never,
    /// Before the write with this number, from 0, is applied; all before it are durable.
    BeforeWrite(u64),
    /// Before the sync with this number, from 0; writes since the last one are lost.
    BeforeSync(u64),
    /// As the event with this number, a write or a sync, is about to happen; so many writes of those not synced survive.
    PowerLoss {
        event: u64,
        kept: usize,
    },
    /// Not at all: it is shut down once this many writes were submitted. Bodies are waited for, or not.
    Shutdown {
        writes: u64,
        patient: bool,
    },
}

impl Death {
    /// Whether each write is synced at once.
    fn syncs_at_once(self) -> bool {
        matches!(self, Death::BeforeWrite(_) | Death::Never | Death::Shutdown { .. })
    }

    pub(crate) fn kept(self) -> usize {
        match self {
            Death::PowerLoss { kept, .. } => kept,
            _ => 0,
        }
    }
}

/// What is wrong with a disk, for the controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    No,
    /// A write is acknowledged before it is durable: there is no barrier.
    AcksAtOnce,
    /// An outcome, and what follows it, is acknowledged and never written.
    LosesOutcomes,
    /// What a batch puts into other mailboxes is a write of its own.
    PutsApart,
    /// What a batch takes from the mailbox is a write of its own.
    TakesApart,
    /// Each message is a new one, though its sender has sent it before.
    ForgetsIds,
}

pub(crate) struct Disk {
    pub(crate) store: Arc<CrashStore>,
    /// Submitted while the disk writes others, so neither applied nor part of the next sync.
    queue: Mutex<Vec<(Write, Done)>>,
    pub(crate) death: Death,
    broken: Broken,
    /// Something was submitted, or the process has died.
    pub(crate) activity: Notify,
    /// It is time to shut down.
    pub(crate) leave: Arc<Notify>,
    events: Arc<Mutex<u64>>,
    losing: AtomicBool,
}

impl Disk {
    pub(crate) fn new(store: CrashStore, death: Death, broken: Broken) -> Arc<Disk> {
        if death.syncs_at_once() {
            store.sync_after(1);
        }
        let events = Arc::new(Mutex::new(0));
        let (counted, leave) = (events.clone(), Arc::new(Notify::new()));
        let told = leave.clone();
        store.plan(move |nth, _| {
            let mut events = counted.lock().unwrap();
            *events += 1;
            let dies = match death {
                Death::BeforeWrite(n) => nth >= n,
                Death::PowerLoss { event, .. } => *events > event,
                Death::Shutdown { writes, .. } => {
                    if nth >= writes {
                        told.notify_one();
                    }
                    false
                }
                Death::Never | Death::BeforeSync(_) => false,
            };
            dies.then_some(Fault::Crash)
        });
        let (activity, losing) = (Notify::new(), AtomicBool::new(false));
        Arc::new(Disk {
            store: Arc::new(store),
            queue: Mutex::default(),
            death,
            broken,
            activity,
            leave,
            events,
            losing,
        })
    }

    /// Applies what was submitted so far; what is submitted from now on waits for the next time.
    pub(crate) fn apply(&self) {
        let group = std::mem::take(&mut *self.queue.lock().unwrap());
        for (write, done) in group {
            self.store.submit(write, done);
        }
    }

    /// Whether something waits to be applied.
    pub(crate) fn is_queued(&self) -> bool {
        !self.queue.lock().unwrap().is_empty()
    }

    /// Whether all that was submitted is durable.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_queued() && self.store.pending() == 0
    }

    /// Makes durable what was applied; false if the process has died.
    pub(crate) fn sync(&self) -> bool {
        if self.store.is_dead() {
            return false;
        }
        if self.store.pending() == 0 {
            return true;
        }
        let dies = match self.death {
            Death::BeforeSync(n) => self.store.syncs() >= n,
            Death::PowerLoss { event, .. } => {
                let mut events = self.events.lock().unwrap();
                *events += 1;
                *events > event
            }
            Death::Never | Death::BeforeWrite(_) | Death::Shutdown { .. } => false,
        };
        if dies {
            return false;
        }
        self.store.sync();
        true
    }

    /// What the next process finds.
    pub(crate) fn after(&self) -> CrashStore {
        self.store.crash(self.death.kept())
    }

    /// Submits in the way of a broken disk, or gives the write back.
    fn submit_broken(&self, write: Write, done: Done) -> Option<(Write, Done)> {
        let early = match &write {
            Write::Append(_) | Write::Put { .. } => Written::Done,
            _ => return Some((write, done)),
        };
        let lost = match (self.broken, &write) {
            (Broken::AcksAtOnce, _) => false,
            (Broken::LosesOutcomes, Write::Append(Batch { .. })) => {
                if frames::names(&write).contains(&"effect.result") {
                    self.losing.store(true, Ordering::SeqCst);
                }
                self.losing.load(Ordering::SeqCst)
            }
            _ => return Some((write, done)),
        };
        if !lost {
            self.store.submit(write, Box::new(drop));
        }
        if !self.store.is_dead() {
            done(Ok(early));
        }
        None
    }

    /// The writes that a broken disk makes of one; the last one is answered.
    fn torn(&self, write: Write) -> Vec<Write> {
        match (self.broken, write) {
            (Broken::PutsApart, Write::Append(mut batch)) => {
                let (puts, rest) = batch.acts.into_iter().partition(|act| matches!(act, Act::Put { .. }));
                batch.acts = rest;
                let put = |act| match act {
                    Act::Put { to, row } => Write::Put { run: to, row, to: Addressee::Anyone },
                    other => unreachable!("{other:?} is no put"),
                };
                let puts: Vec<Act> = puts;
                std::iter::once(Write::Append(batch)).chain(puts.into_iter().map(put)).collect()
            }
            (Broken::TakesApart, Write::Append(mut batch)) if batch.count > 0 => {
                let (takes, rest) = batch.acts.into_iter().partition(|act| matches!(act, Act::Take { .. }));
                batch.acts = rest;
                let takes = Batch { count: 0, frames: bytes::Bytes::new(), acts: takes, head: None, ..batch.clone() };
                let apart = (!takes.acts.is_empty()).then_some(Write::Append(takes));
                std::iter::once(Write::Append(batch)).chain(apart).collect()
            }
            (Broken::ForgetsIds, Write::Put { run, mut row, to }) => {
                row.id ^= u128::from(self.store.writes()) << 64;
                vec![Write::Put { run, row, to }]
            }
            (_, write) => vec![write],
        }
    }

    fn submit_one(&self, write: Write, done: Done) {
        match self.submit_broken(write, done) {
            Some((write, done)) if self.death.syncs_at_once() => self.store.submit(write, done),
            later => self.queue.lock().unwrap().extend(later),
        }
        self.activity.notify_one();
    }
}

impl Store for Disk {
    pass_on!(store);

    fn submit(&self, write: Write, done: Done) {
        let mut writes = self.torn(write);
        let Some(last) = writes.pop() else { unreachable!("of one write there is at least one") };
        writes.into_iter().for_each(|write| self.submit_one(write, Box::new(drop)));
        self.submit_one(last, done);
    }
}
