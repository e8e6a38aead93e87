//! Those who use the runs from outside: they start them, send signals, answer questions, resolve doubts, cancel, and read. A
//! call whose answer is lost is made again, under the same id.

use bytes::{Bytes, BytesMut};

use super::{
    controls::Control,
    effects::{Bad, Out},
    log::Stored,
    make::Left,
    prog::{PEERS, WORKFLOW, start},
    store::Submitted,
    world::World,
};
use crate::{
    clock::Millis,
    drive::first_record,
    entry::RunStarted,
    fold::{RunState, StepState, What},
    id::{Attempt, Generation, Seq, StepNo},
    mailbox::{Mail, Message, Reply, Verdict},
    store::{Addressee, Row, Store, StoreError, Write, Written},
    value::Value,
};

/// What a person has a word on.
type Doubt = (Generation, StepNo, Attempt);

/// A call of a client.
struct Call {
    run: usize,
    what: Wanted,
    /// When it is made, or made again.
    at: Millis,
    /// The process that it is with.
    with: Option<u64>,
    over: bool,
    /// It is made once more, though it was answered.
    again: bool,
}

enum Wanted {
    Start(Box<Write>),
    Signal(Row),
    Cancel(Row),
    Put(Row),
}

#[derive(Default)]
pub(super) struct Clients {
    calls: Vec<Call>,
    numbers: u64,
    cancelled_late: bool,
    /// Signals that were acknowledged.
    pub(super) accepted: Vec<(usize, u128)>,
    /// All signals of clients: run, row and value.
    pub(super) signals: Vec<(usize, Row)>,
    /// Who waits to hear how a cancelled run has ended; and what was answered.
    waiting: Vec<usize>,
    pub(super) cancels: Vec<(usize, bool)>,
    /// What readers have seen: of which log, at which place.
    pub(super) seen: Vec<(usize, Generation, u64, Bytes)>,
}

impl Clients {
    pub(super) fn open(&self) -> usize {
        self.calls.iter().filter(|call| !call.over).count()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open() == 0 && self.waiting.is_empty()
    }

    pub(super) fn due(&self) -> Option<Millis> {
        self.calls.iter().filter(|call| !call.over && call.with.is_none()).map(|call| call.at).min()
    }

    /// Whoever had made a call there makes it again.
    pub(super) fn process_died(&mut self, process: u64, time: Millis) {
        for call in self.calls.iter_mut().filter(|call| call.with == Some(process)) {
            call.with = None;
            call.at = time + 10;
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn has_open(&self, run: usize, is: impl Fn(&Row) -> bool) -> bool {
        self.calls.iter().any(|call| {
            call.run == run && !call.over && matches!(&call.what, Wanted::Signal(row) | Wanted::Put(row) if is(row))
        })
    }
}

/// Who answers questions and resolves doubts.
pub(super) const PEOPLE: [&str; 2] = ["ann", "lead"];

impl World {
    fn call(&mut self, run: usize, what: Wanted) {
        let at = self.time + if self.rng.one_in(3) { self.rng.below(60) } else { 0 };
        let again = self.faulty && self.rng.one_in(4);
        self.clients.calls.push(Call { run, what, at, with: None, over: false, again });
    }

    /// A client starts a run.
    pub(super) fn call_start(&mut self, run: usize) {
        let depth = if self.rng.one_in(4) { 3 } else { 2 };
        let left = Left { kids: self.rng.below(3) as u32, restarts: self.rng.below(3) as u32 };
        let call = start(self.rng.next(), depth, 11, left);
        let (args, digest) = call.args.unwrap();
        let at = self.now(0).wall;
        let started = RunStarted {
            workflow: WORKFLOW.name.into(),
            module: WORKFLOW.module.into(),
            explicit_name: true,
            args: args.value().as_bytes().to_vec().into(),
            digest,
            build: "sim".into(),
            seed: u128::from(self.rng.next()),
            born: at,
            parent: None,
            undos: Vec::new(),
        };
        let (head, frames) = first_record(started, at, Generation(0)).unwrap();
        let write = Write::Create { run: self.ids[run].clone(), count: 1, frames, head };
        self.call(run, Wanted::Start(Box::new(write)));
    }

    fn call_signal(&mut self, run: usize, name: &str) {
        let n = self.clients.number();
        let value = match self.rng.one_in(12) {
            true => Value::encode(&format!("no number {n}")).unwrap(),
            false => Value::encode(&n).unwrap(),
        };
        let (id, name) = (Mail::named_id(name, &n.to_string()), name.to_owned());
        let row = Message::Signal(Mail { id, name, value: value.as_bytes().clone(), sent_at: self.time }).row();
        self.clients.signals.push((run, row.clone()));
        self.call(run, Wanted::Signal(row));
    }

    /// What clients do now; `patiently`: whatever anybody waits for is done.
    pub(super) fn clients(&mut self, patiently: bool) {
        self.make_calls();
        self.hear_of_cancels();
        let live: Vec<usize> = self.live().into_keys().collect();
        if self.faulty && self.rng.one_in(if live.is_empty() { 4 } else { 40 }) {
            let run = self.rng.below(PEERS) as usize;
            if !live.contains(&run) && self.clients.calls.iter().all(|call| call.run != run) {
                self.call_start(run);
            }
        }
        if live.is_empty() {
            return;
        }
        let one = live[self.rng.below(live.len() as u64) as usize];
        if self.faulty && self.rng.one_in(20) {
            let name = format!("s{}", self.rng.below(2));
            self.call_signal(one, &name);
        }
        if (self.faulty && self.rng.one_in(40 * self.calm))
            || (!self.faulty && !self.clients.cancelled_late && self.rng.one_in(40))
        {
            self.clients.cancelled_late |= !self.faulty;
            let by = "a person".to_owned();
            let mut row = Message::Cancel { reason: "enough".into(), by, parent: None }.row();
            // Who cancels a run that was cancelled before insists.
            if self.told.rows.get(&one).is_some_and(|rows| rows.iter().any(|(_, there)| there.id == row.id)) {
                row.id ^= u128::from(self.clients.number());
            }
            self.call(one, Wanted::Cancel(row));
        }
        if self.faulty && self.rng.one_in(10) {
            self.read_log(one);
        }
        if patiently || self.rng.one_in(3) {
            let all = if patiently { live } else { vec![one] };
            for i in all {
                self.serve(i, patiently);
            }
        }
    }

    /// Makes the calls that are due, at any process that is there.
    fn make_calls(&mut self) {
        let up: Vec<usize> = (0..self.processes.len())
            .filter(|p| {
                let process = &self.processes[*p];
                process.opened && process.up_at <= self.time && process.shutdown_until.is_none()
            })
            .collect();
        if up.is_empty() {
            return;
        }
        for n in 0..self.clients.calls.len() {
            let call = &self.clients.calls[n];
            if call.over || call.with.is_some() || call.at > self.time {
                continue;
            }
            let p = up[self.rng.below(up.len() as u64) as usize];
            let run = self.ids[call.run].clone();
            let write = match &call.what {
                Wanted::Start(write) => (**write).clone(),
                Wanted::Signal(row) | Wanted::Cancel(row) | Wanted::Put(row) => {
                    Write::Put { run, row: row.clone(), to: Addressee::Unfinished }
                }
            };
            let (run, no) = (call.run, self.processes[p].no);
            self.clients.calls[n].with = Some(no);
            self.processes[p].writes.push_back(Submitted { run, life: 0, no: None, write, slot: false, call: Some(n) });
        }
    }

    /// What the store says to a call.
    pub(super) fn call_answered(&mut self, p: usize, n: usize, result: Result<Written, StoreError>) {
        let time = self.time;
        let call = &mut self.clients.calls[n];
        let run = call.run;
        call.with = None;
        let written = match result {
            Ok(written) => written,
            // There is no such run: that is an answer.
            Err(StoreError::NoSuchRun) => {
                call.over = true;
                return;
            }
            Err(e) => {
                call.at = time + 1 + self.rng.below(60);
                // It may be done all the same.
                if matches!(e, StoreError::Unknown { .. }) {
                    self.nudge(p, run);
                }
                return;
            }
        };
        call.over = !std::mem::take(&mut call.again);
        call.at = time + 1 + self.rng.below(100);
        match (&call.what, written) {
            (Wanted::Signal(row), Written::Done | Written::Exists) => {
                let id = row.id;
                self.clients.accepted.push((run, id));
                self.dedup_present_rows(n);
            }
            (Wanted::Cancel(_), Written::Done | Written::Exists) => match self.control {
                Control::CancelAnswersEarly => self.clients.cancels.push((run, true)),
                _ => self.clients.waiting.push(run),
            },
            _ => {}
        }
        match written {
            Written::Made { .. } => {
                let record = self.store.run(&self.ids[run]).unwrap();
                if let Some(record) = record {
                    self.adopt(p, run, &record, true);
                }
            }
            Written::Done | Written::Exists => self.nudge(p, run),
            _ => {}
        }
    }

    /// Null control: ids are known only as long as their rows are there.
    fn dedup_present_rows(&mut self, n: usize) {
        let call = &mut self.clients.calls[n];
        if let (Control::DedupPresentRows, Wanted::Signal(row)) = (self.control, &mut call.what)
            && !call.over
            && self.store.rows(&self.ids[call.run], 0, usize::MAX).unwrap().iter().all(|(_, there)| there.id != row.id)
        {
            row.id ^= 1 << 100;
        }
    }

    fn hear_of_cancels(&mut self) {
        for run in std::mem::take(&mut self.clients.waiting) {
            match self.store.run(&self.ids[run]).unwrap() {
                Some(record) if record.head.live => self.clients.waiting.push(run),
                record => {
                    let head = record.and_then(|record| crate::head::HeadInfo::read(&record.head));
                    let ended = head.and_then(|head| head.ended).map(|(_, how)| how);
                    let cancelled = matches!(ended, Some(crate::head::HowEnded::Cancelled(_)));
                    self.clients.cancels.push((run, cancelled));
                }
            }
        }
    }

    /// A reader sees what is durable.
    fn read_log(&mut self, i: usize) {
        let Some(record) = self.store.run(&self.ids[i]).unwrap() else { return };
        let generation = record.head.generation;
        let mut log = Stored::read(&*self.store, &self.ids[i], generation);
        let mut at = log.len();
        // Null control: what is on its way to the store is shown.
        if self.control == Control::ShowTail {
            let tail = self.processes.iter().flat_map(|process| &process.writes).find_map(|w| match &w.write {
                Write::Append(b) if w.run == i && b.count > 0 && b.generation == generation && b.at == Seq(at) => {
                    Some(b.frames.clone())
                }
                _ => None,
            });
            if let Some(tail) = tail {
                log = Stored::of(tail);
                let frame = log.frame(0).cloned().unwrap_or_default();
                return self.clients.seen.push((i, generation, at, frame));
            }
        }
        at -= 1;
        let frame = log.frame(at).cloned().unwrap_or_default();
        self.clients.seen.push((i, generation, at, frame));
    }

    /// People look at a run and do what it waits for.
    fn serve(&mut self, i: usize, patiently: bool) {
        let Some((generation, state)) = self.durable_state(i) else { return };
        self.resolve(i, generation, &state, patiently);
        let rows = self.store.rows(&self.ids[i], 0, usize::MAX).unwrap();
        let there =
            |is: &dyn Fn(&Message) -> bool| rows.iter().any(|(_, row)| Message::read(row).is_some_and(|m| is(&m)));
        for step in state.steps.values() {
            if step.state != StepState::Waiting || step.closed {
                continue;
            }
            match &step.what {
                What::Signal { name, drain: false } => {
                    let named =
                        |row: &Row| matches!(Message::read(row), Some(Message::Signal(mail)) if *mail.name == **name);
                    let known = there(&|message| matches!(message, Message::Signal(mail) if *mail.name == **name))
                        || self.clients.has_open(i, named);
                    if patiently && !known {
                        self.call_signal(i, name);
                    }
                }
                What::Question(question) => {
                    let (path, round) = (question.path.to_string(), question.set_aside.times);
                    let about = |reply: &Reply| {
                        reply.generation == generation.0 && *reply.path == *path && reply.round == round
                    };
                    let is = |row: &Row| matches!(Message::read(row), Some(Message::Reply(reply)) if about(&reply));
                    let known = self.told.rows.get(&i).is_some_and(|rows| rows.iter().any(|(_, row)| is(row)))
                        || self.clients.has_open(i, is);
                    if (patiently && !known) || (self.faulty && self.rng.one_in(4)) {
                        self.answer(i, generation, &path, round);
                    }
                }
                _ => {}
            }
        }
    }

    /// Two people answer a question; the first answer that fits is the answer. Now and then nobody can say whether one does.
    fn answer(&mut self, i: usize, generation: Generation, path: &str, round: u32) {
        for by in PEOPLE {
            let n = self.clients.number();
            let encoded = |value: Value| value.as_bytes().clone();
            let verdict = match self.rng.below(8) {
                0 => Err(format!("no {n}")),
                1 if self.faulty => Ok(encoded(Value::encode(&format!("no number {n}")).unwrap())),
                _ => Ok(encoded(Value::encode(&n).unwrap())),
            };
            let (path, by) = (path.to_owned(), by.to_owned());
            let unchecked = (self.faulty && verdict.is_ok() && self.rng.one_in(3)).then_some(u128::from(n));
            let row = Message::Reply(Reply { generation: generation.0, path, round, verdict, by, unchecked }).row();
            self.call(i, Wanted::Put(row));
        }
    }

    /// People resolve what is held, knowing what happened.
    fn resolve(&mut self, i: usize, generation: Generation, state: &RunState, patiently: bool) {
        let held: Vec<(StepNo, Attempt, Box<str>, bool)> = state
            .steps
            .iter()
            .filter_map(|(no, step)| match (&step.what, &step.state) {
                (What::Effect(effect), StepState::InDoubt(n, ..)) if !step.closed => {
                    Some((*no, *n, effect.called.effect().into(), step.undo.is_some()))
                }
                _ => None,
            })
            .collect();
        for (step, attempt, effect, undoes) in held {
            if &*effect == "wire_asking" && !self.rng.one_in(4) && !patiently {
                continue;
            }
            let of = (i, generation, step);
            let encoded = |out: Out| Value::encode(&out).unwrap();
            // Who has lost a claim lately may still begin a body.
            let taken = self.shared && self.displaced.get(&i).is_some_and(|at| at + 150 > self.time);
            let how = match self.outside.happened(of) {
                Some(value) => Verdict::Succeeded(encoded(Ok(value))),
                None if self.outside.is_under_way(of) || taken => continue,
                None if undoes && !self.rng.one_in(6) => Verdict::RunAgain,
                None => match self.rng.below(4) {
                    0 => Verdict::Failed("it is not there".into()),
                    1 => Verdict::FailedWith(encoded(Err(Bad::Said(77)))),
                    _ => Verdict::RunAgain,
                },
            };
            if self.faulty && self.rng.one_in(6) {
                self.resolve_unseen(i, (generation, step, attempt), &how, undoes);
            }
            // Now and then about an attempt that is over; who waits for nothing else speaks of the one in doubt as well.
            let over = self.rng.one_in(12).then(|| Attempt(attempt.0 - 1));
            let present = (over.is_none() || patiently).then_some(attempt);
            for (attempt, by) in over.into_iter().chain(present).flat_map(|attempt| PEOPLE.map(|by| (attempt, by))) {
                let (how, by) = (how.clone(), by.to_owned());
                let row = Message::Resolve { generation, step, attempt, how, by, kept: None }.row();
                if !self.told.rows.get(&i).is_some_and(|rows| rows.iter().any(|(_, there)| there.id == row.id))
                    && !self.clients.has_open(i, |open| open.id == row.id && patiently)
                {
                    self.stats.resolved += 1;
                    self.call(i, Wanted::Put(row));
                }
            }
        }
    }

    /// Words that nobody could compare with the effect's type: one that does not fit, and one that corrects it, or not.
    fn resolve_unseen(&mut self, i: usize, (generation, step, attempt): Doubt, how: &Verdict, undoes: bool) {
        let unfit = |n: u64| {
            let value = |json: &serde_json::Value| Value::encode(json).unwrap();
            let said = serde_json::json!(format!("no outcome {n}"));
            Verdict::Unchecked { ok: true, plain: value(&said), wrapped: value(&serde_json::json!({ "Ok": said })) }
        };
        for by in PEOPLE {
            let n = self.clients.number();
            let how = match self.rng.one_in(2) && !undoes {
                true => unfit(n),
                false => how.clone(),
            };
            let (by, kept) = (by.to_owned(), Some(u128::from(n)));
            let row = Message::Resolve { generation, step, attempt, how, by, kept }.row();
            self.call(i, Wanted::Put(row));
        }
    }

    /// An outcome of a run that nobody polls, written into its log: a null control.
    pub(super) fn append_outcome(&mut self, i: usize, step: StepNo, attempt: Attempt, end: &crate::effect::BodyEnd) {
        use crate::entry::{Entry, Kind, Outcome};
        let crate::effect::BodyEnd::Ok { value } = end else { return };
        let Some((generation, state)) = self.durable_state(i) else { return };
        if !state.steps.get(&step).is_some_and(|s| s.state == StepState::Called(attempt)) {
            return;
        }
        let outcome = Outcome::Ok(value.as_bytes().to_vec().into());
        let mut frames = BytesMut::new();
        let kind = Kind::EffectResult { step, attempt, outcome, unsure: false };
        Entry { at: state.last_at, kind }.write(&mut frames).unwrap();
        self.forge(i, state.len, generation, frames.freeze(), 1);
    }
}
