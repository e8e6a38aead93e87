//! Messages: each exactly once taken or still there, per name in order; the first answer wins; what was sent arrived.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{History, asked, is_in, rows_left};
use crate::{
    entry::{Answered, Kind, Resolved, Signal},
    mailbox::{Mail, Message, Reply},
    sim::{clients::PEOPLE, prog::SAID_BITS, world::World},
    store::Store,
    value::Value,
};

pub(super) fn check(world: &World, history: &History, over: bool, bad: &mut Vec<String>) {
    let i = history.run;
    let none = Vec::new();
    let rows = world.told.rows.get(&i).unwrap_or(&none);
    let number: HashMap<u128, u64> = rows.iter().map(|(no, row)| (row.id, *no)).collect();
    let left = rows_left(world, i);
    let mut taken: HashMap<u128, u32> = HashMap::new();
    // What a drain sets aside stands before what it gives.
    let mut order: BTreeMap<(String, bool), Vec<u64>> = BTreeMap::new();
    let mut replies = Replies::new(rows);
    for (n, log) in history.logs.iter().enumerate() {
        let entries = log.stored.entries();
        let steps = asked(&entries);
        for entry in &entries {
            let (step, messages) = match &entry.kind {
                Kind::SignalReceived { step, messages } => (step, messages.iter().collect::<Vec<_>>()),
                Kind::SignalSetAside { step, signal, .. } => (step, vec![signal]),
                Kind::QuestionAnswered { step, answer, by } => {
                    if let Some((_, Kind::QuestionAsked { path, .. })) = steps.get(step) {
                        replies.answered(n as u32, &path.to_string(), answer, by, bad);
                    }
                    continue;
                }
                Kind::EffectResolved { step, attempt, by, .. } if PEOPLE.contains(&&**by) => {
                    let word = |row| match Message::read(row) {
                        Some(Message::Resolve { generation, step: s, attempt: a, by: who, .. }) => {
                            (generation.0 as usize, s, a, &*who) == (n, *step, *attempt, &**by)
                        }
                        _ => false,
                    };
                    if !rows.iter().any(|(_, row)| word(row)) {
                        bad.push(format!("nobody gave a word on attempt {attempt} of step {step} of log {n}"));
                    }
                    continue;
                }
                _ => continue,
            };
            let given = matches!(entry.kind, Kind::SignalReceived { .. });
            match steps.get(step) {
                Some((_, Kind::SignalAwaited { signal, .. })) => {
                    for message in messages {
                        *taken.entry(message.id).or_default() += 1;
                        match number.get(&message.id) {
                            Some(no) => order.entry((signal.to_string(), given)).or_default().push(*no),
                            None => bad.push(format!("step {step} of log {n} has a message from nowhere")),
                        }
                    }
                }
                Some((_, Kind::QuestionAsked { path, .. })) => {
                    replies.set_aside(n as u32, &path.to_string(), messages[0], bad);
                }
                other => bad.push(format!("step {step} of log {n} has a message and is {other:?}")),
            }
        }
    }
    for (no, row) in rows {
        if !matches!(Message::read(row), Some(Message::Signal(_))) {
            continue;
        }
        let there = left.iter().filter(|id| **id == row.id).count() as u32;
        let times = taken.get(&row.id).copied().unwrap_or(0);
        if times + there != 1 {
            bad.push(format!("message {no} was taken {times} times, and {there} are left"));
        }
    }
    for ((name, _), numbers) in order {
        if !numbers.is_sorted() {
            bad.push(format!("messages of {name} were taken in the order {numbers:?}"));
        }
    }
    if over {
        said(history, bad);
    }
    words(world, history, bad);
    published(world, history, bad);
    accepted(world, i, &number, bad);
}

/// The answers that were put to each question, in their order, and how far it has come.
struct Replies {
    put: HashMap<(u32, String), Vec<(u128, Reply)>>,
    taken: HashMap<(u32, String), usize>,
}

impl Replies {
    fn new(rows: &[(u64, crate::store::Row)]) -> Replies {
        let mut put: HashMap<_, Vec<_>> = HashMap::new();
        for (_, row) in rows {
            if let Some(Message::Reply(reply)) = Message::read(row) {
                put.entry((reply.generation, reply.path.clone())).or_default().push((row.id, reply));
            }
        }
        Replies { put, taken: HashMap::new() }
    }

    fn current(&self, generation: u32, path: &str) -> Option<&(u128, Reply)> {
        let at = (generation, path.to_owned());
        self.put.get(&at)?.get(self.taken.get(&at).copied().unwrap_or(0))
    }

    fn answered(&self, generation: u32, path: &str, answer: &Answered<'_>, by: &str, bad: &mut Vec<String>) {
        let first = self.current(generation, path).map(|(_, reply)| reply);
        let same = match (answer, first.map(|first| &first.verdict)) {
            (Answered::Expired, _) => return,
            (Answered::Granted(value), Some(Ok(first))) => **value == **first,
            (Answered::Refused(reason), Some(Err(first))) => reason == first,
            _ => false,
        };
        if !same || first.is_some_and(|first| first.by != by) {
            bad.push(format!(
                "question {path} of log {generation} has another answer than the first that fits: {first:?}"
            ));
        }
    }

    fn set_aside(&mut self, generation: u32, path: &str, answer: &Signal<'_>, bad: &mut Vec<String>) {
        let is = |(row, first): &(u128, Reply)| {
            *row == answer.id && first.verdict.as_ref().is_ok_and(|first| **first == *answer.value)
        };
        if !self.current(generation, path).is_some_and(is) {
            bad.push(format!("question {path} of log {generation} has another answer set aside than the first"));
        }
        *self.taken.entry((generation, path.to_owned())).or_default() += 1;
    }
}

/// A word that was set aside is one that might be corrected, and is not what counted.
fn words(world: &World, history: &History, bad: &mut Vec<String>) {
    let rows: Vec<_> = world.told.rows.get(&history.run).into_iter().flatten().collect();
    for (n, log) in history.logs.iter().enumerate() {
        for entry in log.stored.entries() {
            let Kind::ResolutionSetAside { step, attempt, by: who, how, .. } = &entry.kind else { continue };
            // What is to be run again once that has settled is corrected until then, whoever gave the word.
            let waits = *how == Resolved::RunAgain;
            let is_it = rows.iter().any(|(_, row)| {
                matches!(Message::read(row), Some(Message::Resolve { generation, step: s, attempt: a, by, kept, .. })
                    if (generation.0 as usize, s, a) == (n, *step, *attempt) && by == *who && (kept.is_some() || waits))
            });
            if !is_it {
                bad.push(format!("a word on step {step} of log {n} was set aside that nobody may correct"));
            }
        }
    }
}

/// The code has been told of what it sent and published, and was given, as often as the log has it.
fn said(history: &History, bad: &mut Vec<String>) {
    for (n, log) in history.logs.iter().enumerate() {
        let entries = log.stored.entries();
        let Some(Kind::RunEnded(crate::entry::End::Completed { value })) = entries.last().map(|last| &last.kind) else {
            continue;
        };
        let out = Value::from_bytes(value.to_vec().into()).decode::<crate::sim::effects::Out>();
        let Ok(Ok(out)) = out else { continue };
        let said = entries.iter().filter(|entry| match &entry.kind {
            Kind::MessageSent { path, .. } | Kind::ValuePublished { path, .. } => !is_in(path, "sim"),
            _ => false,
        });
        let steps = asked(&entries);
        let heard = entries.iter().map(|entry| match &entry.kind {
            Kind::SignalReceived { step, messages } => match steps.get(step) {
                Some((_, Kind::SignalAwaited { path, .. })) if !is_in(path, "sim") => messages.len() as u64,
                _ => 0,
            },
            _ => 0,
        });
        let counts = (said.count() as u64, heard.sum::<u64>());
        let few = |bits: u64| bits & ((1 << SAID_BITS) - 1);
        let told = (few(out), few(out >> SAID_BITS));
        if counts != told {
            bad.push(format!(
                "the code of log {n} believes to have said and heard {told:?} things, the log has {counts:?}"
            ));
        }
    }
}

/// What readers find is what was published last.
fn published(world: &World, history: &History, bad: &mut Vec<String>) {
    let mut last: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for log in &history.logs {
        for entry in log.stored.entries() {
            if let Kind::ValuePublished { name, value, .. } = &entry.kind {
                last.insert(name.to_string(), value.to_vec());
            }
        }
    }
    let found = world.store.published(&world.ids[history.run]).unwrap();
    let found: BTreeMap<String, Vec<u8>> =
        found.into_iter().map(|(name, published)| (name.to_string(), published.value.to_vec())).collect();
    if found != last {
        bad.push(format!("published values differ from the log: {:?}", found.keys()));
    }
}

fn accepted(world: &World, i: usize, number: &HashMap<u128, u64>, bad: &mut Vec<String>) {
    for (_, id) in world.clients.accepted.iter().filter(|(run, _)| *run == i) {
        if !number.contains_key(id) {
            bad.push("a signal that was acknowledged is lost".to_owned());
        }
    }
}

/// Each message that a log has sent has arrived, once, and no other has.
pub(super) fn check_sent(world: &World, histories: &[History], _over: bool, bad: &mut Vec<String>) {
    let mut sent: HashMap<(usize, u128), Vec<u8>> = HashMap::new();
    for history in histories {
        for (n, log) in history.logs.iter().enumerate() {
            let prefix = world.key_prefix(history.run, history.generation(n));
            let mut seed = 0;
            for entry in log.stored.entries() {
                if let Kind::RunStarted(started) = &entry.kind {
                    seed = started.seed;
                }
                if let Kind::MessageSent { path, to, value, .. } = &entry.kind {
                    let id = Mail::sent_id(&prefix, seed, &path.to_string());
                    let to = world.ids.iter().position(|id| id.as_str() == to).unwrap_or(usize::MAX);
                    if sent.insert((to, id), value.to_vec()).is_some() {
                        bad.push(format!("two messages to run {to} have one id"));
                    }
                }
            }
        }
    }
    let clients: HashSet<(usize, &[u8])> = world.clients.signals.iter().map(|(run, row)| (*run, &*row.bytes)).collect();
    let mut values: HashMap<(usize, Vec<u8>), u32> = HashMap::new();
    for (i, rows) in &world.told.rows {
        for (no, row) in rows {
            let Some(Message::Signal(mail)) = Message::read(row) else { continue };
            match sent.remove(&(*i, row.id)) {
                Some(value) if value == *mail.value => {}
                Some(_) => bad.push(format!("message {no} of run {i} is not what was sent")),
                None if clients.contains(&(*i, &*row.bytes)) => {
                    *values.entry((*i, row.bytes.to_vec())).or_default() += 1;
                }
                None => bad.push(format!("orphan: message {no} of run {i} is one that no log has sent")),
            }
        }
    }
    bad.extend(sent.keys().map(|(to, _)| format!("a message that was sent to run {to} has not arrived")));
    // The same call made again is the same message.
    bad.extend(
        values.iter().filter(|(_, n)| **n > 1).map(|((i, _), n)| format!("run {i} has a client's message {n} times")),
    );
}
