//! One run's task: it tells its [`Life`] what happened and carries out what it wants.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    task::AbortHandle,
};
use tracing::Instrument;

use super::{BodyInfo, Input, Phase, RunCell, STORE_AGAIN, Shared, lock};
use crate::{
    bodies::Left,
    clock::{Millis, pass},
    contract::{ReconcileEnd, WhenInDoubt},
    core::Takes,
    drive::{Life, Output, Slots},
    effect::{BodyEnd, CatchPanic, Invocation, Start},
    entry::End,
    head::{Aside, ParkedInfo},
    id::{Attempt, Epoch, Generation, Seq, StepNo},
    log::{Lost, read_frames},
    mailbox::Message,
    store::{Addressee, Row, Store, StoreError, Wait, Write},
    value::ValueError,
    view::Look,
};

mod open;

/// Turns a run may take before it lets other tasks of the thread run.
const TURNS_AT_ONCE: usize = 64;
/// Longest time of a reconcile function whose effect has no timeout.
const RECONCILE_TIME: Duration = Duration::from_secs(5 * 60);

/// A body under way.
struct BodyTask {
    life_no: u64,
    abort: AbortHandle,
    unwanted: watch::Sender<bool>,
    /// Its life is over, and it still holds a slot.
    slot: bool,
    /// Whether anybody outside could tell that it ran.
    outward: bool,
}

/// A body: of which log, since a fresh one numbers its steps anew.
type BodyKey = (Generation, StepNo, Attempt);

/// What became of one life.
enum Fate {
    Ended(End<'static>),
    Parked(ParkedInfo),
    NoCode {
        workflow: String,
        module: String,
    },
    /// It goes on in a fresh log.
    Restarted,
    /// It was to be cancelled by somebody who may not.
    NotCancelled,
    /// It waits, and has left memory.
    Asleep,
    Gone,
    Closing,
}

/// What a parked run goes on for.
enum Again {
    /// A person said so, or its code is there now.
    Retry,
    /// It is to be cancelled, which needs no code.
    Cancel,
    /// The runtime closes.
    Close,
}

/// How a life begins.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Beginning {
    /// The log was made a moment ago.
    Fresh,
    /// The life before it has let go of the run.
    Released,
    /// The life before it ended without a word.
    AfterCrash,
    /// Without the code, to be cancelled.
    WithoutCode,
}

/// A look at a run's mailbox under way.
#[derive(Clone, Copy)]
struct Reading {
    /// How often the life was told of new rows when it began.
    news: u64,
    /// Whether to read once more after that.
    again: bool,
}

/// A run that was made a moment ago, by this process.
#[derive(Default)]
pub(crate) struct New {
    /// Its turn to begin.
    pub(crate) turn: Option<OwnedSemaphorePermit>,
    /// What came with its making, if nobody else can have adopted it since.
    pub(crate) made: Option<Made>,
}

/// What is known of a run that has just been made.
pub(crate) struct Made {
    /// The claim.
    pub(crate) epoch: Epoch,
    /// The log's only entry, unless there is more to know: something was put into the mailbox before.
    pub(crate) frames: Option<Bytes>,
}

pub(super) struct RunTask {
    shared: Arc<Shared>,
    cell: Arc<RunCell>,
    aside: Aside,
    /// What an earlier life in this process knew of the monotonic clock.
    elapsing: Box<[(StepNo, Millis)]>,
    /// Its turn to begin, until it has.
    turn: Option<OwnedSemaphorePermit>,
    /// What is known of a new run, until it has begun.
    made: Option<Made>,
    /// Rows are being read.
    reading: Option<Reading>,
    generation: Generation,
    /// Bodies under way, of this life or an earlier one of this process.
    bodies: HashMap<BodyKey, BodyTask>,
    life_no: u64,
    /// The store has taken it that the last replay is over.
    survived: Arc<AtomicBool>,
    /// The last life had taken a cancel.
    cancel_taken: bool,
    /// The number of the last request to cancel that was tried while the run was parked, and did not end it.
    cancel_tried: u64,
    /// Whoever looks is answered when what the answer says, up to that entry, is durable.
    looks: Vec<(Seq, Look, oneshot::Sender<Look>)>,
    /// Whoever asks what a signal must be is answered when all that came before is known.
    takes: Vec<(String, oneshot::Sender<Option<Takes>>)>,
}

impl RunTask {
    pub(super) fn new(
        shared: Arc<Shared>,
        cell: Arc<RunCell>,
        aside: Aside,
        generation: Generation,
        elapsing: Box<[(StepNo, Millis)]>,
        turn: Option<OwnedSemaphorePermit>,
        made: Option<Made>,
    ) -> RunTask {
        RunTask {
            shared,
            cell,
            aside,
            elapsing,
            turn,
            made,
            reading: None,
            generation,
            bodies: HashMap::new(),
            life_no: 0,
            survived: Arc::new(AtomicBool::new(true)),
            cancel_taken: false,
            cancel_tried: 0,
            looks: Vec::new(),
            takes: Vec::new(),
        }
    }

    pub(super) async fn run(mut self, mut beginning: Beginning) {
        loop {
            self.life_no += 1;
            self.reading = None;
            let fate = self.live(beginning).await;
            // Said before the phase is: whoever waits for the end of a cancelled run looks at it then. One whose code has taken the
            // cancel, and is parked in what it still had to do, is ended without it only if somebody asks again.
            let not_cancelled = beginning == Beginning::WithoutCode || self.cancel_taken;
            if !matches!(fate, Fate::Asleep) {
                self.cell.not_cancelled.store(not_cancelled, Ordering::Relaxed);
            }
            beginning = Beginning::AfterCrash;
            let since = self.shared.clock.wall();
            let before = self.aside.parked.take();
            let (phase, over) = match fate {
                Fate::Ended(end) => (Phase::Ended(Arc::new(end)), true),
                Fate::Restarted => {
                    self.generation.0 = self.generation.0.saturating_add(1);
                    self.cell.durable.send_replace((self.generation, Seq(1)));
                    self.cell.phase.send_replace(Phase::Opening);
                    beginning = Beginning::Fresh;
                    continue;
                }
                // It stands where it stood.
                Fate::NotCancelled => {
                    self.aside.parked = before;
                    continue;
                }
                // What is said of it was said when it fell asleep, and the cell may be another task's by now.
                Fate::Asleep => return,
                Fate::Gone | Fate::Closing => (Phase::Gone, true),
                Fate::Parked(mut parked) => {
                    if let Some(before) =
                        before.filter(|before| (before.code, &before.why) == (parked.code, &parked.why))
                    {
                        // A restart has found what the one before had found: it has stood there since.
                        parked.since = before.since;
                    }
                    let ParkedInfo { code, why, .. } = &parked;
                    tracing::warn!(code, "parked: {why}; {}", parked.public().next);
                    self.aside.parked = Some(parked.clone());
                    self.set_aside().await;
                    (Phase::Parked(parked), false)
                }
                Fate::NoCode { workflow, module } => {
                    tracing::warn!(
                        "waits for its code: open the store with a binary that has workflow {workflow} of module {module}"
                    );
                    (Phase::NoCode { workflow, module, since }, false)
                }
            };
            if over {
                // First out of the table, then said: who hears of the end finds the store's word.
                self.shared.forget(&self.cell);
            }
            self.cell.phase.send_replace(phase);
            if over {
                self.outlive().await;
                return;
            }
            match self.stand_by().await {
                Again::Retry => {
                    self.aside = Aside::default();
                    self.cancel_tried = 0;
                }
                Again::Cancel => beginning = Beginning::WithoutCode,
                Again::Close => {
                    self.shared.forget(&self.cell);
                    self.cell.phase.send_replace(Phase::Gone);
                    self.outlive().await;
                    return;
                }
            }
            self.cell.phase.send_replace(Phase::Opening);
        }
    }

    async fn set_aside(&mut self) {
        let (run, value) = (self.cell.id.clone(), self.aside.bytes());
        if let Err(e) = self.shared.write(Write::Aside { run, value }).await {
            tracing::warn!("cannot note why the run is parked: {e}");
        }
    }

    /// Claims, replays and goes on.
    async fn live(&mut self, beginning: Beginning) -> Fate {
        let mut closing = self.shared.closing.subscribe();
        if *closing.borrow_and_update() {
            return Fate::Closing;
        }
        let turn = self.turn.take();
        let opened = self.open(beginning, turn.is_some()).await;
        drop(turn);
        let mut life = match opened {
            Ok(life) => life,
            Err(fate) => return fate,
        };
        self.cell.durable.send_replace((self.generation, life.log.durable()));
        self.cell.phase.send_replace(Phase::Live);
        let fate = self.go_on(&mut life, &mut closing, beginning == Beginning::Fresh).await;
        if !matches!(fate, Fate::Asleep) {
            self.cancel_taken = life.state().cancel.is_some();
            self.shared.slots.leave(&self.cell);
            self.close(&mut life).await;
        }
        fate
    }

    /// Tells the life what happened and does what it wants, until it is over.
    async fn go_on(&mut self, life: &mut Life, closing: &mut watch::Receiver<bool>, fresh: bool) -> Fate {
        let mut armed: (Option<Millis>, Option<Millis>) = (None, None);
        let mut warned = false;
        let mut held_back = false;
        // Since when nothing has happened; a run that was replayed and has nothing to do need not linger.
        let mut quiet_since = fresh.then_some(life.now.monotonic);
        let mut lingers = None;
        // Looked at first: whoever shuts down gives slots back, and nobody may take them.
        while !*closing.borrow() {
            self.take_inputs(life);
            let mut turns = 0;
            while turns < TURNS_AT_ONCE && life.turn(self.shared.now()) {
                turns += 1;
            }
            held_back = !held_back && life.may_hold_back();
            self.perform(life, held_back);
            // First said, then shown: whoever has seen a state finds its entries in the log.
            self.cell.durable.send_replace((self.generation, life.log.durable()));
            self.answer_looks(life);
            if self.cell.offered.swap(false, Ordering::Relaxed) {
                self.shared.slots.pass_on();
            }
            if life.lost.is_some() || life.stop.is_some() {
                break;
            }
            if !warned && life.state().len.0 > self.shared.limits.log_entries_warn {
                warned = true;
                tracing::warn!(entries = life.state().len.0, "the log is long; every restart replays all of it");
            }
            if life.is_over() && life.log.is_settled() {
                break;
            }
            if life.is_without_purpose() {
                return Fate::NotCancelled;
            }
            if turns == TURNS_AT_ONCE || held_back {
                tokio::task::yield_now().await;
                continue;
            }
            let mut due = life.due();
            if turns > 0 {
                quiet_since = Some(life.now.monotonic);
            }
            if let Some(wait) = life.wait().filter(|_| self.can_leave()) {
                let grace = self.shared.limits.evict_after.as_millis() as Millis;
                lingers = lingers.or_else(|| self.shared.lingering.clone().try_acquire_owned().ok());
                match quiet_since.map(|since| since.saturating_add(grace)) {
                    Some(at) if at > life.now.monotonic && lingers.is_some() => {
                        due.0 = Some(due.0.map_or(at, |due| due.min(at)));
                    }
                    _ if self.fall_asleep(life, wait, &mut armed) => return Fate::Asleep,
                    _ => continue,
                }
            } else {
                lingers = None;
            }
            // What has fired is out of the table, also when the clock turned out not to be there yet.
            if self.cell.fired.swap(false, Ordering::Relaxed) | (due != armed) {
                let timers = &self.shared.timers;
                for (on_wall, before, after) in [(false, armed.0, due.0), (true, armed.1, due.1)] {
                    before.inspect(|at| timers.unset(on_wall, *at, &self.cell.id));
                    after.inspect(|at| timers.set(on_wall, *at, &self.cell.id, Some(&self.cell)));
                }
                armed = due;
            }
            tokio::select! {
                () = self.cell.wake.notified() => {}
                _ = closing.changed() => {
                    if *closing.borrow() {
                        break;
                    }
                }
            }
        }
        for (on_wall, at) in [(false, armed.0), (true, armed.1)] {
            at.inspect(|at| self.shared.timers.unset(on_wall, *at, &self.cell.id));
        }
        let since = self.shared.clock.wall();
        match (&life.lost, &life.stop) {
            (Some(Lost::Fenced), _) => Fate::Gone,
            (Some(Lost::Rejected { seq, reason }), _) => Fate::Parked(ParkedInfo::rejected(*seq, reason, since)),
            (None, Some(stop)) => self.parked(stop),
            (None, None) if life.is_over() && life.log.is_settled() => Fate::of_end(life.state().ending.clone()),
            (None, None) => Fate::Closing,
        }
    }

    /// Whether nothing but the life itself keeps the run in memory.
    fn can_leave(&self) -> bool {
        self.bodies.is_empty() && self.looks.is_empty() && self.takes.is_empty() && self.reading.is_none()
    }

    /// Leaves memory; false if something has come meanwhile.
    fn fall_asleep(&self, life: &Life, wait: Wait, armed: &mut (Option<Millis>, Option<Millis>)) -> bool {
        let mut runs = self.shared.runs();
        if !lock(&self.cell.inbox).is_empty() {
            return false;
        }
        for (on_wall, at) in [(false, armed.0), (true, armed.1)] {
            at.inspect(|at| self.shared.timers.unset(on_wall, *at, &self.cell.id));
        }
        // Before anybody can claim it again: the table of runs is locked until then.
        let held = life.held();
        if !held.is_empty() {
            let (run, value) = (self.cell.id.clone(), Aside { held, ..Aside::default() }.bytes());
            self.shared.store.submit(Write::Aside { run, value }, Box::new(|_| {}));
        }
        self.shared.slots.leave(&self.cell);
        self.shared.release(self.cell.id.clone(), life.setting.epoch, wait, self.survived.clone());
        self.shared.fall_asleep(&self.cell.id, life.due(), life.elapsing());
        self.cell.asleep.store(true, Ordering::Relaxed);
        if self.cell.followers.load(Ordering::Relaxed) == 0 {
            runs.remove(&self.cell.id);
        }
        self.cell.phase.send_replace(Phase::Asleep);
        true
    }

    /// Has the rows read that the life does not know.
    fn read_mail(&mut self, seen: u64, news: u64) {
        if let Some(reading) = &mut self.reading {
            reading.again = true;
            return;
        }
        self.reading = Some(Reading { news, again: false });
        let (cell, store, life_no) = (self.cell.clone(), self.shared.store.clone(), self.life_no);
        self.shared.tokio.spawn_blocking(move || {
            let rows = store.rows(&cell.id, seen, usize::MAX);
            cell.tell(Input::Rows(life_no, rows));
        });
    }

    fn take_inputs(&mut self, life: &mut Life) {
        let inputs = std::mem::take(&mut *lock(&self.cell.inbox));
        let now = self.shared.now();
        life.now = now;
        for input in inputs {
            match input {
                Input::Written(life_no, no, result) if life_no == self.life_no => life.written(no, result, now),
                Input::ReadBack(life_no, stored) if life_no == self.life_no => life.read_back(stored, now),
                Input::Mail => {
                    life.mailbox.tell();
                    self.read_mail(life.mailbox.seen(), life.mailbox.news());
                }
                Input::Rows(life_no, rows) if life_no == self.life_no => {
                    let Some(reading) = self.reading.take() else { continue };
                    match rows {
                        Ok(rows) => {
                            life.mail(rows);
                            life.mailbox.has_read(reading.news);
                        }
                        Err(e) => self.read_later(&e),
                    }
                    if reading.again {
                        self.read_mail(life.mailbox.seen(), life.mailbox.news());
                    }
                }
                // Of an earlier life, whose batches had other numbers.
                Input::Written(..) | Input::ReadBack(..) | Input::Rows(..) => {}
                Input::Ended(life_no, step, attempt, end) => match self.forget(life_no, step, attempt) {
                    Some((generation, _))
                        if generation == self.generation
                            && (life_no == self.life_no || life.adopted.contains_key(&(step, attempt))) =>
                    {
                        life.ended(step, attempt, end);
                    }
                    Some((generation, body)) => self.ended_late((generation, step, attempt), end, body.slot),
                    None => {}
                },
                Input::Dropped(life_no, step, attempt) => self.dropped(life_no, step, attempt),
                Input::Reconciled(life_no, step, attempt, end) => {
                    if life_no == self.life_no {
                        life.reconciled(step, attempt, end, now);
                    }
                }
                Input::Retry | Input::Code => {}
                Input::Look(answer) => self.looks.push((life.state().len, Look::at(life), answer)),
                Input::Takes(name, answer) => self.takes.push((name, answer)),
            }
        }
    }

    /// The mailbox could not be read: later.
    fn read_later(&self, error: &StoreError) {
        tracing::warn!("cannot read the run's mailbox, and tries again: {error}");
        let (shared, cell) = (self.shared.clone(), self.cell.clone());
        self.shared.tokio.spawn(async move {
            shared.clock.sleep(STORE_AGAIN).await;
            cell.tell(Input::Mail);
        });
    }

    fn answer_looks(&mut self, life: &Life) {
        if life.mailbox.is_read() {
            for (name, answer) in self.takes.drain(..) {
                let _ = answer.send(life.takes_next(&name));
            }
        }
        let durable = life.log.durable();
        for (len, look, answer) in std::mem::take(&mut self.looks) {
            let _ = match life.log.trouble() {
                Some(_) => answer.send(Look::at(life)),
                None if len <= durable => answer.send(look),
                None => {
                    self.looks.push((len, look, answer));
                    continue;
                }
            };
        }
    }

    /// An outcome that came after its life: a fact for the next one, which takes it before it calls the step in doubt.
    fn put_outcome(&self, (generation, step, attempt): BodyKey, end: BodyEnd, slot: bool) {
        let row = Message::Outcome { generation, step, attempt, end }.row();
        put_row(self.shared.clone(), self.cell.clone(), row, slot);
    }

    /// A body is gone; `None` if it was nobody's any more.
    fn forget(&mut self, life_no: u64, step: StepNo, attempt: Attempt) -> Option<(Generation, BodyTask)> {
        let is = |(key, body): (&BodyKey, &BodyTask)| {
            ((key.1, key.2) == (step, attempt) && body.life_no == life_no).then_some(*key)
        };
        let key = self.bodies.iter().find_map(is)?;
        Some((key.0, self.bodies.remove(&key)?))
    }

    /// A body has ended after its life.
    fn ended_late(&self, body: BodyKey, end: Result<BodyEnd, ValueError>, slot: bool) {
        match end {
            Ok(end) => self.put_outcome(body, end, slot),
            Err(_) if slot => self.shared.slots.give(),
            Err(_) => {}
        }
    }

    fn dropped(&mut self, life_no: u64, step: StepNo, attempt: Attempt) {
        if self.forget(life_no, step, attempt).is_some_and(|(_, body)| body.slot) {
            self.shared.slots.give();
        }
    }

    /// Keeps what a life has left behind.
    fn take_left(&mut self, left: Left) {
        for (step, attempt, end, slot) in left.ends {
            self.put_outcome((self.generation, step, attempt), end, slot);
        }
        for (step, attempt) in left.running {
            match self.bodies.get_mut(&(self.generation, step, attempt)) {
                Some(body) => body.slot = true,
                None => self.shared.slots.give(),
            }
        }
        for (step, attempt) in left.nowhere {
            if let Some(body) = self.bodies.remove(&(self.generation, step, attempt)) {
                body.abort.abort();
            }
        }
        left.nudges.iter().for_each(|run| self.shared.nudge(run));
    }

    fn perform(&mut self, life: &mut Life, hold_back: bool) {
        for output in life.take_outputs(hold_back) {
            match output {
                Output::Append(no, batch) => {
                    let (cell, life_no) = (self.cell.clone(), self.life_no);
                    let done = move |result| cell.tell(Input::Written(life_no, no, result));
                    self.shared.store.submit(Write::Append(batch), Box::new(done));
                }
                Output::ReadBack(from) => self.read_back(from),
                Output::Start(step, start) => self.start(step, start),
                Output::Abort(step, attempt) => {
                    if let Some(body) = self.bodies.get(&(self.generation, step, attempt)) {
                        body.unwanted.send_replace(true);
                        body.abort.abort();
                    }
                }
                Output::Unwanted(step, attempt) => {
                    if let Some(body) = self.bodies.get(&(self.generation, step, attempt)) {
                        body.unwanted.send_replace(true);
                    }
                }
                Output::Reconcile(step, start) => self.reconcile(step, start),
                Output::WantSlot => self.shared.slots.wait(&self.cell),
                Output::Nudge(run) => self.shared.nudge(&run),
            }
        }
    }

    fn read_back(&self, from: Seq) {
        let (cell, store, generation) = (self.cell.clone(), self.shared.store.clone(), self.generation);
        let life_no = self.life_no;
        self.shared.tokio.spawn_blocking(move || {
            let stored = read_frames(&*store, &cell.id, generation, from);
            cell.tell(Input::ReadBack(life_no, stored));
        });
    }

    fn start(&mut self, step: StepNo, start: Start) {
        let (unwanted, told) = watch::channel(false);
        let (meta, attempt, life_no) = (start.meta, start.attempt, self.life_no);
        let listed = self.shared.bodies.list(BodyInfo {
            run: self.cell.id.clone(),
            effect: meta.name,
            path: start.path.clone(),
            attempt,
            since: self.shared.clock.wall(),
        });
        let run = self.cell.id.clone();
        let invocation = Invocation::new(&start, run, self.shared.resources.clone(), told, Some(Box::new(listed)));
        let span = tracing::info_span!("effect", name = meta.name, path = %start.path, attempt = attempt.0);
        let mut report = EndReport { cell: self.cell.clone(), life_no, step, attempt, ended: false };
        let body = async move {
            // Making the future is user code as well.
            let body = async move { (meta.run)(invocation).await };
            let end = CatchPanic(Box::pin(body)).await;
            report.tell(end);
        };
        let abort = self.shared.tokio.spawn(body.instrument(span)).abort_handle();
        let outward = meta.contract.is_outward();
        self.bodies
            .insert((self.generation, step, attempt), BodyTask { life_no, abort, unwanted, slot: false, outward });
    }

    fn reconcile(&self, step: StepNo, start: Start) {
        let WhenInDoubt::Reconcile { run, .. } = start.meta.in_doubt else { return };
        let (_, told) = watch::channel(false);
        let invocation = Invocation::new(&start, self.cell.id.clone(), self.shared.resources.clone(), told, None);
        let (cell, life_no, attempt) = (self.cell.clone(), self.life_no, start.attempt);
        let limit = start.meta.timeout_ms.map_or(RECONCILE_TIME, Duration::from_millis);
        let clock = self.shared.clock.clone();
        let span = tracing::info_span!("reconcile", name = start.meta.name, path = %start.path);
        let ask = async move {
            // In a task of its own, so that a panic is an answer: not known.
            let mut asked = tokio::spawn(async move { run(invocation).await }.in_current_span());
            let answer = tokio::select! {
                answer = &mut asked => answer.unwrap_or_else(|e| Ok(ReconcileEnd::Failed(e.to_string()))),
                () = pass(&*clock, limit) => {
                    asked.abort();
                    Ok(ReconcileEnd::Failed("it did not return in time".into()))
                }
            };
            if let Ok(ReconcileEnd::Failed(why)) = &answer {
                tracing::warn!("reconcile failed, and is asked again later: {why}");
            }
            cell.tell(Input::Reconciled(life_no, step, attempt, answer));
        };
        self.shared.tokio.spawn(ask.instrument(span));
    }

    /// The life is over, and bodies may still be under way.
    async fn close(&mut self, life: &mut Life) {
        life.drop_code();
        life.now = self.shared.now();
        if !life.is_over() {
            life.drain();
        }
        loop {
            // Before each wait: what woke the run last may not have been taken.
            self.take_inputs(life);
            self.perform_last(life);
            if life.is_closed() {
                break;
            }
            self.cell.wake.notified().await;
        }
        self.looks.clear();
        self.takes.clear();
        self.take_left(life.leave());
        // What the life has not looked at is for the next one, which reads the mailbox.
        for body in self.bodies.values() {
            body.unwanted.send_replace(true);
        }
        let (run, epoch) = (self.cell.id.clone(), life.setting.epoch);
        // Let go of, and to go on as soon as somebody can.
        let (seen, due) = (life.mailbox.seen(), Some(self.shared.clock.wall()));
        let let_go = life.stop.is_none() && life.lost.is_none();
        let wait = let_go.then_some(Wait { due, seen, code: life.setting.code });
        self.shared.store.submit(Write::Release { run, epoch, wait }, Box::new(|_| {}));
    }

    /// What is still to be appended, and nothing else.
    fn perform_last(&mut self, life: &mut Life) {
        for output in life.take_outputs(false) {
            match output {
                Output::Append(no, batch) => {
                    let (cell, life_no) = (self.cell.clone(), self.life_no);
                    let done = move |result| cell.tell(Input::Written(life_no, no, result));
                    self.shared.store.submit(Write::Append(batch), Box::new(done));
                }
                Output::Nudge(run) => self.shared.nudge(&run),
                _ => {}
            }
        }
    }

    /// Waits for the bodies of lives that are over; their outcomes go to the mailbox.
    async fn outlive(&mut self) {
        let mut abandon = self.shared.abandon.subscribe();
        while !self.bodies.is_empty() {
            let _ = self.take_late(false);
            if self.bodies.is_empty() {
                return;
            }
            tokio::select! {
                () = self.cell.wake.notified() => {}
                _ = abandon.wait_for(|abandon| *abandon) => return self.abandon(),
            }
        }
    }

    /// The grace of a shutdown is over: the bodies are dropped. One that nobody outside could tell of is no attempt for the
    /// next life; of the others it knows as much as after a crash.
    fn abandon(&mut self) {
        for (key, body) in std::mem::take(&mut self.bodies) {
            body.abort.abort();
            if !body.outward && !self.is_ended() {
                self.put_outcome(key, BodyEnd::ShutDown, body.slot);
            }
        }
    }

    /// A parked run waits until it is to go on.
    async fn stand_by(&mut self) -> Again {
        let mut closing = self.shared.closing.subscribe();
        // A cancel may have come before it was parked.
        self.read_mail(0, 0);
        loop {
            match self.take_late(true) {
                Some(again) => return again,
                None => {
                    tokio::select! {
                        () = self.cell.wake.notified() => {}
                        _ = closing.wait_for(|closing| *closing) => return Again::Close,
                    }
                }
            }
        }
    }

    /// Inputs of a run without a life; what it is to go on for, if for anything.
    fn take_late(&mut self, parked: bool) -> Option<Again> {
        let inputs = std::mem::take(&mut *lock(&self.cell.inbox));
        let mut again = None;
        for input in inputs {
            match input {
                Input::Ended(life_no, step, attempt, end) => match self.forget(life_no, step, attempt) {
                    Some((generation, body)) if parked || !self.is_ended() => {
                        self.ended_late((generation, step, attempt), end, body.slot);
                    }
                    Some((_, body)) if body.slot => self.shared.slots.give(),
                    _ => {}
                },
                Input::Dropped(life_no, step, attempt) => self.dropped(life_no, step, attempt),
                Input::Retry => again = Some(Again::Retry),
                // It may have come while the run was replayed without it.
                Input::Code if matches!(*self.cell.phase.borrow(), Phase::NoCode { .. }) => again = Some(Again::Retry),
                Input::Look(answer) => {
                    let _ = answer.send(Look::default());
                }
                Input::Takes(_, answer) => drop(answer.send(None)),
                Input::Mail if parked => self.read_mail(0, 0),
                Input::Rows(_, rows) => {
                    let once_more = self.reading.take().is_some_and(|reading| reading.again);
                    match rows {
                        Ok(rows) => {
                            // Each request is tried once: what parks the run again would do so each time.
                            let asked = rows.iter().filter(|(_, row)| is_cancel(row)).map(|(no, _)| *no).max();
                            if let Some(asked) = asked.filter(|asked| *asked > self.cancel_tried) {
                                self.cancel_tried = asked;
                                again = Some(Again::Cancel);
                            }
                        }
                        Err(e) => self.read_later(&e),
                    }
                    if once_more && parked {
                        self.read_mail(0, 0);
                    }
                }
                Input::Written(..) | Input::ReadBack(..) | Input::Reconciled(..) | Input::Mail | Input::Code => {}
            }
        }
        again
    }

    fn is_ended(&self) -> bool {
        matches!(&*self.cell.phase.borrow(), Phase::Ended(_))
    }
}

impl Drop for RunTask {
    fn drop(&mut self) {
        for body in self.bodies.values() {
            body.abort.abort();
        }
    }
}

/// Tells the end of a body, or that it was dropped.
struct EndReport {
    cell: Arc<RunCell>,
    life_no: u64,
    step: StepNo,
    attempt: Attempt,
    ended: bool,
}

impl EndReport {
    fn tell(&mut self, end: Result<BodyEnd, ValueError>) {
        self.ended = true;
        self.cell.tell(Input::Ended(self.life_no, self.step, self.attempt, end));
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        if !self.ended {
            self.cell.tell(Input::Dropped(self.life_no, self.step, self.attempt));
        }
    }
}

/// Puts a row into a run's mailbox and tells the run; a store that refuses for now is asked again, for the row is all that
/// is known of its body's end. The body's slot is free when that is settled.
fn put_row(shared: Arc<Shared>, cell: Arc<RunCell>, row: Row, slot: bool) {
    let store = shared.store.clone();
    let run = cell.id.clone();
    let put = Write::Put { run, row: row.clone(), to: Addressee::Anyone };
    let done = move |result| {
        match result {
            Err(StoreError::Refused { .. } | StoreError::Unknown { .. }) if !*shared.abandon.borrow() => {
                shared.tokio.clone().spawn(async move {
                    shared.clock.sleep(STORE_AGAIN).await;
                    put_row(shared, cell, row, slot);
                });
                return;
            }
            Ok(_) => shared.nudge(&cell.id),
            Err(e) => tracing::error!("an outcome could not be kept, its step will be in doubt: {e}"),
        }
        if slot {
            shared.slots.give();
        }
    };
    store.submit(put, Box::new(done));
}

/// Whether a row of a mailbox asks for the run to be cancelled by somebody who may.
fn is_cancel(row: &Row) -> bool {
    matches!(Message::read(row), Some(Message::Cancel { .. }))
}

impl Fate {
    fn of_end(end: Option<End<'static>>) -> Fate {
        match end {
            Some(End::Restarted { .. }) => Fate::Restarted,
            Some(end) => Fate::Ended(end),
            None => Fate::Gone,
        }
    }
}
