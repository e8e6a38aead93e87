//! What comes to a run from outside, and who waits for it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;

use super::{Life, timers::Sleeps};
use crate::{
    bodies::Word,
    core::{Delivered, Takes},
    effect::panic_text,
    entry::{Answered, ChildEnd, End, Kind, Parent, Signal},
    failure::{Fault, shortened},
    fold::{QuestionStep, StepState, What},
    id::StepNo,
    mailbox::{Mail, Message, Reply},
    store::{Act, Row},
    value::Value,
};

#[cfg(test)]
use crate::sim::{Broken, is_broken};

/// The longest that the messages of one drain are together, in bytes; what is left is there for the next.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The rows of a run that are not taken yet, and the steps that wait for some.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// The number of the last row that was read, or was ever put when all were.
    seen: u64,
    /// What the engine itself takes, oldest first.
    facts: VecDeque<(u128, Message)>,
    /// By name, oldest first.
    signals: BTreeMap<String, VecDeque<Mail>>,
    replies: Vec<(u128, Reply)>,
    /// By signal name, those who wait for it.
    waits: BTreeMap<String, BTreeSet<StepNo>>,
    /// How often the run was told that there are new rows, and at which of these times all was read.
    news: u64,
    read: u64,
    /// Drains, and what must be read before they may be answered: what was put before one was asked is in it.
    drains: BTreeMap<StepNo, u64>,
    /// Open questions.
    pub(super) questions: BTreeSet<StepNo>,
}

impl Mailbox {
    /// The number of the last row that was read, or was ever put when all were.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// All rows were read that were there when the last one ever put had this number: it may have been taken since, by an
    /// earlier life.
    pub(crate) fn has_seen(&mut self, version: u64) {
        self.seen = self.seen.max(version);
    }

    /// Whether an outcome, a resolution, a cancel or a child's end is there.
    pub(super) fn has_facts(&self) -> bool {
        !self.facts.is_empty()
    }

    /// The engine's own messages.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &Message> {
        self.facts.iter().map(|(_, message)| message)
    }

    pub(super) fn next_fact(&mut self) -> Option<(u128, Message)> {
        self.facts.pop_front()
    }

    /// The next request to cancel, whatever came before it.
    pub(super) fn next_cancel(&mut self) -> Option<(u128, Message)> {
        let i = self.facts.iter().position(|(_, message)| matches!(message, Message::Cancel { .. }))?;
        self.facts.remove(i)
    }

    /// There are new rows.
    pub(crate) fn tell(&mut self) {
        self.news += 1;
    }

    /// How often the run was told of new rows.
    pub(crate) fn news(&self) -> u64 {
        self.news
    }

    /// All rows are known that were there when [`Mailbox::news`] was this.
    pub(crate) fn has_read(&mut self, news: u64) {
        self.read = self.read.max(news);
    }

    /// Whether all rows are known that there was news of.
    pub(crate) fn is_read(&self) -> bool {
        self.read >= self.news
    }

    /// A drain is asked now.
    pub(super) fn drain(&mut self, step: StepNo) {
        if !self.is_read() {
            self.drains.insert(step, self.news);
        }
    }

    /// Whether a drain may be answered with what is known.
    fn is_known(&self, drain: StepNo) -> bool {
        self.drains.get(&drain).is_none_or(|news| *news <= self.read)
    }

    pub(super) fn wait(&mut self, signal: &str, step: StepNo) {
        match self.waits.get_mut(signal) {
            Some(waits) => drop(waits.insert(step)),
            None => drop(self.waits.insert(signal.to_owned(), BTreeSet::from([step]))),
        }
    }

    pub(crate) fn unwait(&mut self, signal: &str, step: StepNo) {
        self.drains.remove(&step);
        if let Some(waits) = self.waits.get_mut(signal) {
            waits.remove(&step);
            if waits.is_empty() {
                self.waits.remove(signal);
            }
        }
    }

    fn signal_taken(&mut self, signal: &str) -> Option<Mail> {
        let mails = self.signals.get_mut(signal)?;
        let mail = mails.pop_front();
        if mails.is_empty() {
            self.signals.remove(signal);
        }
        mail
    }
}

impl Life {
    /// Rows that were put after those that are known, with their numbers.
    pub(crate) fn mail(&mut self, rows: Vec<(u64, Row)>) {
        let mailbox = &mut self.mailbox;
        for (no, row) in rows {
            if no <= mailbox.seen {
                continue;
            }
            mailbox.seen = no;
            match Message::read(&row) {
                Some(Message::Signal(mail)) => mailbox.signals.entry(mail.name.clone()).or_default().push_back(mail),
                Some(Message::Reply(reply)) => mailbox.replies.push((row.id, reply)),
                Some(fact) => mailbox.facts.push_back((row.id, fact)),
                // Of a later version of this library: it stays.
                None => {}
            }
        }
    }

    /// What the engine itself is told.
    pub(super) fn fact(&mut self, row: u128, message: Message) {
        match message {
            Message::Outcome { generation, .. }
            | Message::Resolve { generation, .. }
            | Message::Child { parent: Parent { generation, .. }, .. }
                if generation != self.setting.generation =>
            {
                // About a log that is over; a later one there cannot be.
                self.log.act(Act::Take { row });
            }
            Message::Outcome { step, attempt, end, .. } => self.outcome_row(row, step, attempt, end),
            Message::Resolve { step, attempt, how, by, kept, .. } => {
                self.resolve_row(row, step, attempt, Word { how, by, kept: kept.is_some() });
            }
            Message::Child { parent, end, child } => self.child_ended(row, &parent, &child, end),
            Message::Cancel { reason, by, parent } => self.cancel_row(row, &reason, &by, parent.as_ref()),
            Message::Signal(_) | Message::Reply(_) => unreachable!("kept for who waits for it"),
        }
    }

    /// A child has ended, or could not be made: recorded always, delivered if somebody waits.
    fn child_ended(&mut self, row: u128, parent: &Parent<'_>, child: &str, end: ChildEnd<'static>) {
        self.log.act(Act::Take { row });
        let step = parent.step;
        if *parent != self.link(step) {
            // Of the run that had this run's id before, or of an earlier log.
            return;
        }
        let run = match self.state().steps.get(&step) {
            Some(s) if s.state == StepState::Waiting => match &s.what {
                What::Child { run, .. } if **run == *child => run.to_string(),
                _ => return,
            },
            _ => return,
        };
        let delivered = child_delivered(&run, &end, Bytes::copy_from_slice);
        self.complete(Kind::ChildEnded { step, run: run.into(), end }, step, delivered);
    }

    fn cancel_row(&mut self, row: u128, reason: &str, by: &str, parent: Option<&Parent<'_>>) {
        if matches!(self.state().ending, Some(End::Restarted { .. })) {
            // Too late for this log, and not forgotten: the next one takes it.
            return;
        }
        self.log.act(Act::Take { row });
        if !self.is_foreign(parent) {
            self.cancel(reason, by);
        }
    }

    /// Whether a cancel is another run's affair: who lost a race for an id must not cancel the winner's child.
    fn is_foreign(&self, parent: Option<&Parent<'_>>) -> bool {
        parent.is_some_and(|parent| self.state().parent.as_ref() != Some(parent))
    }

    /// Takes a cancel that came for an earlier log, or has come since the last turn: code that goes on in a fresh log at once, each time,
    /// would never let it have one.
    pub(super) fn cancel_in_waiting(&mut self) -> Option<End<'static>> {
        while let Some((row, message)) = self.mailbox.next_cancel() {
            self.log.act(Act::Take { row });
            if let Message::Cancel { reason, by, parent } = message
                && !self.is_foreign(parent.as_ref())
            {
                return Some(End::Cancelled { reason: reason.into(), by: by.into() });
            }
        }
        None
    }

    // ---- questions ----

    /// Takes the next answer to an open question: the first that fits counts.
    pub(super) fn next_reply(&mut self) -> bool {
        for i in 0..self.mailbox.replies.len() {
            let (row, reply) = &self.mailbox.replies[i];
            let open = self.mailbox.questions.iter().copied().find(|step| {
                let question = self.question(*step);
                question.is_some_and(|question| *question.path == *reply.path)
                    && self.setting.generation.0 == reply.generation
            });
            let row = *row;
            match open {
                // The question is closed; whoever answered is told so.
                None => {
                    let (_, reply) = self.mailbox.replies.remove(i);
                    if reply.unchecked.is_some() {
                        let Reply { path, by, .. } = reply;
                        tracing::warn!(
                            question = path,
                            by,
                            "an answer that was kept is not taken: nobody waits for one any more"
                        );
                    }
                    self.log.act(Act::Take { row });
                    return true;
                }
                Some(step) if self.is_wanted(step) => {
                    let (_, reply) = self.mailbox.replies.remove(i);
                    self.log.act(Act::Take { row });
                    self.answered(step, row, reply);
                    return true;
                }
                Some(_) => {}
            }
        }
        false
    }

    fn question(&self, step: StepNo) -> Option<&QuestionStep> {
        match self.state().steps.get(&step).map(|s| &s.what) {
            Some(What::Question(question)) => Some(question),
            _ => None,
        }
    }

    fn answered(&mut self, step: StepNo, row: u128, reply: Reply) {
        let (answer, delivered) = match reply.verdict {
            Ok(value) => {
                if let Err(reason) = self.fits(step, &value) {
                    tracing::warn!(%step, by = reply.by, "an answer is set aside, the question is open: {reason}; answer again");
                    let signal = Signal { id: row, value: value.to_vec().into() };
                    self.append(Kind::SignalSetAside { step, signal, reason: reason.into() });
                    return;
                }
                (Answered::Granted(value.to_vec().into()), Delivered::Granted(value))
            }
            Err(reason) => (Answered::Refused(reason.clone().into()), Delivered::Refused(reason)),
        };
        if let Some(question) = self.question(step).cloned() {
            self.close_question(step, &question);
        }
        self.complete(Kind::QuestionAnswered { step, answer, by: reply.by.into() }, step, delivered);
    }

    /// A question is open no more.
    pub(crate) fn close_question(&mut self, step: StepNo, question: &QuestionStep) {
        self.mailbox.questions.remove(&step);
        if let Some(deadline) = question.question.deadline {
            self.disarm_timer(step, deadline);
        }
    }

    /// The code is over: whatever it waited for is nothing.
    pub(crate) fn wait_for_nothing(&mut self) {
        self.sleeps = Sleeps::default();
        self.mailbox.questions.clear();
        self.mailbox.waits.clear();
    }

    // ---- signals ----

    /// Matches a message with a waiting step: per name the oldest with the wait that was asked first.
    pub(super) fn next_signal(&mut self) -> bool {
        if self.state().ending.is_some() {
            return false;
        }
        let found = self.mailbox.waits.iter().find_map(|(name, steps)| {
            let step = *steps.first()?;
            let drain = matches!(self.state().steps.get(&step)?.what, What::Signal { drain: true, .. });
            let ready = if drain { self.mailbox.is_known(step) } else { self.mailbox.signals.contains_key(name) };
            ready.then(|| (name.clone(), step, drain))
        });
        let Some((name, step, drain)) = found else { return false };
        let mut messages = Vec::new();
        let mut bytes = 0;
        while let Some(mail) = self.mailbox.signals.get(&name).and_then(VecDeque::front) {
            bytes += mail.value.len();
            if !messages.is_empty() && bytes > DRAIN_BYTES_MAX {
                break;
            }
            let value = mail.value.clone();
            let fits = self.fits(step, &value);
            let Some(mail) = self.mailbox.signal_taken(&name) else { break };
            self.log.act(Act::Take { row: mail.id });
            match fits {
                Ok(()) => messages.push(mail),
                Err(reason) => {
                    tracing::warn!(%step, signal = name, "a message is set aside, the wait goes on: {reason}; send another one");
                    let signal = Signal { id: mail.id, value: value.to_vec().into() };
                    if !self.append(Kind::SignalSetAside { step, signal, reason: reason.into() }) {
                        return true;
                    }
                }
            }
            if !drain && !messages.is_empty() {
                break;
            }
        }
        if messages.is_empty() && !drain {
            return true;
        }
        self.mailbox.unwait(&name, step);
        let delivered = Delivered::Messages(messages.iter().map(|mail| mail.value.clone()).collect());
        let messages = messages.into_iter().map(|mail| Signal { id: mail.id, value: mail.value.to_vec().into() });
        let received = Kind::SignalReceived { step, messages: messages.collect() };
        #[cfg(test)]
        if is_broken(Broken::EagerMatch) {
            self.append(received);
            self.next_signal();
            self.deliver(step, delivered);
            return true;
        }
        self.complete(received, step, delivered);
        true
    }

    /// What the next message of a name must decode as, if that can be said: somebody waits for it, and no other comes before.
    pub(crate) fn takes_next(&self, name: &str) -> Option<Takes> {
        let Mailbox { signals, waits, .. } = &self.mailbox;
        if signals.contains_key(name) || !self.mailbox.is_read() || self.state().ending.is_some() {
            return None;
        }
        let step = *waits.get(name)?.first()?;
        match self.state().steps.get(&step)?.what {
            What::Signal { drain: false, .. } => self.core().takes(step),
            _ => None,
        }
    }

    /// Whether a value decodes as what a step waits for; why not, if not. Decoding is user code.
    pub(crate) fn fits(&self, step: StepNo, value: &Bytes) -> Result<(), String> {
        let Some(takes) = self.core().takes(step) else { return Ok(()) };
        let value = Value::from_bytes(value.clone());
        match catch_unwind(AssertUnwindSafe(|| takes(&value))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(shortened(&e.to_string()).into_owned()),
            Err(payload) => Err(format!("decoding it panicked: {}", panic_text(payload))),
        }
    }
}

/// What a child's end is for the code that waits for it. `value` makes bytes that live on.
pub(super) fn child_delivered(run: &str, end: &ChildEnd<'_>, value: impl FnOnce(&[u8]) -> Bytes) -> Delivered {
    let run = run.to_owned();
    match end {
        ChildEnd::Completed { value: v } | ChildEnd::Failed { value: v, .. } => Delivered::Value(value(v)),
        ChildEnd::Cancelled { reason } => {
            Delivered::Fault(Box::new(Fault::ChildCancelled { run, reason: reason.to_string() }))
        }
        ChildEnd::IdTaken => Delivered::Fault(Box::new(Fault::ChildIdTaken { run })),
    }
}
