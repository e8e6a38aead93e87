//! One run's task: it tells its [`Life`] what happened and carries out what it wants.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    task::AbortHandle,
};
use tracing::Instrument;

use super::{BodyInfo, Code, Input, Phase, RunCell, Shared, key_prefix, lock};
use crate::{
    bodies::Left,
    clock::{Millis, pass},
    contract::{ReconcileEnd, WhenInDoubt},
    core::Stop,
    drive::{Life, Opened, Output, Setting, Slots},
    effect::{BodyEnd, CatchPanic, Invocation, Start, panic_text},
    entry::End,
    head::{Aside, ParkedInfo},
    id::{Attempt, Epoch, Generation, Seq, StepNo},
    log::{Lost, read_frames},
    mailbox::Message,
    park::DEATHS_MAX,
    store::{Row, Store, StoreError, Write, Written},
    value::ValueError,
    view::Look,
};

/// Turns a run may take before it lets other tasks of the thread run.
const TURNS_AT_ONCE: usize = 64;
/// Bytes of a log that are read at a time on replay.
const READ_BYTES: usize = 256 * 1024;
/// Wait before what the store refused is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(1);
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

/// What became of one life.
enum Fate {
    Ended(End<'static>),
    Parked(ParkedInfo),
    NoCode { workflow: String, module: String },
    Gone,
    Closing,
}

pub(super) struct RunTask {
    shared: Arc<Shared>,
    cell: Arc<RunCell>,
    code: Code,
    aside: Aside,
    generation: Generation,
    /// Bodies under way, of this life or an earlier one of this process.
    bodies: HashMap<(StepNo, Attempt), BodyTask>,
    life_no: u64,
    /// Whoever looks is answered when what the answer says, up to that entry, is durable.
    looks: Vec<(Seq, Look, oneshot::Sender<Look>)>,
}

impl RunTask {
    pub(super) fn new(
        shared: Arc<Shared>,
        cell: Arc<RunCell>,
        code: Code,
        aside: Aside,
        generation: Generation,
    ) -> RunTask {
        RunTask { shared, cell, code, aside, generation, bodies: HashMap::new(), life_no: 0, looks: Vec::new() }
    }

    pub(super) async fn run(mut self, mut fresh: bool) {
        loop {
            self.life_no += 1;
            let fate = self.live(fresh).await;
            fresh = false;
            let since = self.shared.clock.wall();
            let before = self.aside.parked.take();
            let (phase, over) = match fate {
                Fate::Ended(end) => (Phase::Ended(Arc::new(end)), true),
                Fate::Gone => (Phase::Gone, true),
                Fate::Closing => (Phase::Gone, true),
                Fate::Parked(mut parked) => {
                    if let Some(before) =
                        before.filter(|before| (before.code, &before.why) == (parked.code, &parked.why))
                    {
                        // A restart has found what the one before had found: it has stood there since.
                        parked.since = before.since;
                    }
                    tracing::warn!(code = parked.code, "parked: {}", parked.why);
                    self.aside.parked = Some(parked.clone());
                    self.set_aside().await;
                    (Phase::Parked(parked), false)
                }
                Fate::NoCode { workflow, module } => {
                    tracing::warn!("waits for its code: workflow {workflow} of module {module}");
                    (Phase::NoCode { workflow, module, since }, false)
                }
            };
            if over {
                // First out of the table, then said: who hears of the end finds the store's word.
                self.shared.runs().remove(&self.cell.id);
            }
            self.cell.phase.send_replace(phase);
            if over {
                self.outlive().await;
                return;
            }
            if !self.stand_by().await {
                self.shared.runs().remove(&self.cell.id);
                self.cell.phase.send_replace(Phase::Gone);
                self.outlive().await;
                return;
            }
            self.aside = Aside::default();
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
    async fn live(&mut self, fresh: bool) -> Fate {
        let mut closing = self.shared.closing.subscribe();
        if *closing.borrow_and_update() {
            return Fate::Closing;
        }
        let mut life = match self.open(fresh).await {
            Ok(life) => life,
            Err(fate) => return fate,
        };
        self.cell.durable.store(life.log.durable().0, Ordering::Release);
        self.cell.phase.send_replace(Phase::Live);
        let fate = self.go_on(&mut life, &mut closing).await;
        self.shared.slots.leave(&self.cell);
        self.close(&mut life).await;
        fate
    }

    async fn open(&mut self, fresh: bool) -> Result<Life, Fate> {
        if !fresh && self.aside.replaying && self.aside.deaths >= DEATHS_MAX {
            return Err(Fate::Parked(ParkedInfo::died(self.aside.deaths, self.shared.clock.wall())));
        }
        if let (false, Some(parked)) = (fresh, &self.aside.parked)
            && parked.is_for_a_person()
        {
            // Going on would tell the code that its step failed; that is for a person to say.
            return Err(Fate::Parked(parked.clone()));
        }
        let shared = self.shared.clone();
        // A run that was being replayed when the process died is replayed alone.
        let alone = match self.aside.replaying {
            true => shared.suspects.acquire().await.ok(),
            false => None,
        };
        let marked = match fresh {
            true => None,
            false => shared.marked.acquire().await.ok(),
        };
        if *shared.closing.borrow() {
            return Err(Fate::Closing);
        }
        if !fresh {
            self.aside.deaths += 1;
            self.aside.replaying = true;
            // Durable before the replay begins: whoever kills the process in it is found out.
            self.set_aside().await;
        }
        let run = self.cell.id.clone();
        let epoch = self.claim().await?;
        let setting = Setting {
            run,
            generation: self.generation,
            epoch,
            key_prefix: key_prefix(&self.shared, &self.cell.id, self.generation).into(),
            slots: self.shared.slots.clone(),
            value_bytes_max: self.shared.value_bytes_max,
            unwanted_grace_ms: self.shared.unwanted_grace.as_millis() as Millis,
            after_crash: !fresh,
        };
        let replay = self.shared.replays.acquire().await.ok();
        let (code, shared) = (self.code.clone(), self.shared.clone());
        let inherited = self.bodies.iter().map(|(key, body)| (*key, body.slot)).collect();
        // A new run's first poll is in there as well, and what it logs belongs to the run.
        let span = tracing::Span::current();
        let replay_it = move || span.in_scope(|| replay_blocking(&shared, setting, &code, inherited));
        let replayed = self.shared.tokio.spawn_blocking(replay_it).await;
        drop((replay, marked, alone));
        let (opened, mut life) = match replayed {
            Ok(Ok(replayed)) => replayed,
            Ok(Err(e)) => {
                let stop = Stop::Store(e);
                return Err(Fate::Parked(ParkedInfo::of(&stop, self.shared.clock.wall())));
            }
            Err(e) => {
                return Err(match e.try_into_panic() {
                    Ok(payload) => {
                        let stop = Stop::Panicked { message: panic_text(payload), after: None };
                        Fate::Parked(ParkedInfo::of(&stop, self.shared.clock.wall()))
                    }
                    // The tokio runtime is shutting down.
                    Err(_) => Fate::Gone,
                });
            }
        };
        for key in &life.adopted {
            if let Some(body) = self.bodies.get_mut(key) {
                body.slot &= !life.bodies.contains_key(key);
            }
        }
        if !matches!(opened, Opened::Live) {
            self.take_left(life.leave());
        }
        if !fresh {
            self.aside = Aside { parked: self.aside.parked.take(), ..Aside::default() };
            let run = self.cell.id.clone();
            self.shared.store.submit(Write::Aside { run, value: None }, Box::new(|_| {}));
        }
        match opened {
            Opened::Live => Ok(life),
            Opened::Ended => match life.state().ending.clone() {
                Some(end) => Err(Fate::Ended(end)),
                None => Err(Fate::Gone),
            },
            Opened::Stopped(stop) => Err(Fate::Parked(ParkedInfo::of(&stop, self.shared.clock.wall()))),
            Opened::NoCode { workflow, module } => Err(Fate::NoCode { workflow, module }),
        }
    }

    /// Claims the run; a store that refuses for now is asked again, so that no run is forgotten.
    async fn claim(&self) -> Result<Epoch, Fate> {
        let mut closing = self.shared.closing.subscribe();
        loop {
            match self.shared.write(Write::Claim { run: self.cell.id.clone() }).await {
                Ok(Written::Claimed(epoch)) => return Ok(epoch),
                Err(e @ (StoreError::Refused { .. } | StoreError::Unknown { .. } | StoreError::Io { .. })) => {
                    tracing::warn!("cannot claim the run, and tries again: {e}");
                    tokio::select! {
                        () = self.shared.clock.sleep(STORE_AGAIN) => {}
                        _ = closing.wait_for(|closing| *closing) => return Err(Fate::Closing),
                    }
                }
                Ok(_) | Err(_) => return Err(Fate::Gone),
            }
        }
    }

    /// Tells the life what happened and does what it wants, until it is over.
    async fn go_on(&mut self, life: &mut Life, closing: &mut watch::Receiver<bool>) -> Fate {
        let mut armed: (Option<Millis>, Option<Millis>) = (None, None);
        let mut warned = false;
        // Looked at first: whoever shuts down gives slots back, and nobody may take them.
        while !*closing.borrow() {
            self.take_inputs(life);
            let mut turns = 0;
            while turns < TURNS_AT_ONCE && life.turn(self.shared.now()) {
                turns += 1;
            }
            self.perform(life);
            // First said, then shown: whoever has seen a state finds its entries in the log.
            self.cell.durable.store(life.log.durable().0, Ordering::Release);
            self.answer_looks(life);
            if self.cell.offered.swap(false, Ordering::Relaxed) {
                self.shared.slots.pass_on();
            }
            if life.lost.is_some() || life.stop.is_some() {
                break;
            }
            if !warned && life.state().len.0 > self.shared.log_entries_warn {
                warned = true;
                tracing::warn!(entries = life.state().len.0, "the log is long; every restart replays all of it");
            }
            if life.is_over() && life.log.is_settled() {
                break;
            }
            if turns == TURNS_AT_ONCE {
                tokio::task::yield_now().await;
                continue;
            }
            let due = life.due();
            // What has fired is out of the table, also when the clock turned out not to be there yet.
            if self.cell.fired.swap(false, Ordering::Relaxed) | (due != armed) {
                let timers = &self.shared.timers;
                for (on_wall, before, after) in [(false, armed.0, due.0), (true, armed.1, due.1)] {
                    before.inspect(|at| timers.unset(on_wall, *at, &self.cell));
                    after.inspect(|at| timers.set(on_wall, *at, &self.cell));
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
            at.inspect(|at| self.shared.timers.unset(on_wall, *at, &self.cell));
        }
        let since = self.shared.clock.wall();
        match (&life.lost, &life.stop) {
            (Some(Lost::Fenced), _) => Fate::Gone,
            (Some(Lost::Rejected { seq, reason }), _) => Fate::Parked(ParkedInfo::rejected(*seq, reason, since)),
            (None, Some(stop)) => Fate::Parked(ParkedInfo::of(stop, since)),
            (None, None) if life.is_over() && life.log.is_settled() => match life.state().ending.clone() {
                Some(end) => Fate::Ended(end),
                None => Fate::Gone,
            },
            (None, None) => Fate::Closing,
        }
    }

    fn take_inputs(&mut self, life: &mut Life) {
        let inputs = std::mem::take(&mut *lock(&self.cell.inbox));
        let now = self.shared.now();
        life.now = now;
        for input in inputs {
            match input {
                Input::Written(life_no, no, result) if life_no == self.life_no => life.written(no, result, now),
                Input::ReadBack(life_no, stored) if life_no == self.life_no => life.read_back(stored, now),
                // Of an earlier life, whose batches had other numbers.
                Input::Written(..) | Input::ReadBack(..) => {}
                Input::Ended(life_no, step, attempt, end) => match self.forget(life_no, step, attempt) {
                    Some(_) if life_no == self.life_no || life.adopted.contains(&(step, attempt)) => {
                        life.ended(step, attempt, end);
                    }
                    Some(body) => self.ended_late(step, attempt, end, body.slot),
                    None => {}
                },
                Input::Dropped(life_no, step, attempt) => self.dropped(life_no, step, attempt),
                Input::Reconciled(life_no, step, attempt, end) => {
                    if life_no == self.life_no {
                        life.reconciled(step, attempt, end, now);
                    }
                }
                Input::Row(row) => life.rows.push_back(row),
                Input::Retry => {}
                Input::Look(answer) => self.looks.push((life.state().len, Look::at(life), answer)),
            }
        }
    }

    fn answer_looks(&mut self, life: &Life) {
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
    fn put_outcome(&self, step: StepNo, attempt: Attempt, end: BodyEnd, slot: bool) {
        let row = Message::Outcome { generation: self.generation, step, attempt, end }.row();
        put_row(self.shared.clone(), self.cell.clone(), row, slot);
    }

    /// A body is gone; `None` if it was nobody's any more.
    fn forget(&mut self, life_no: u64, step: StepNo, attempt: Attempt) -> Option<BodyTask> {
        let known = self.bodies.get(&(step, attempt)).is_some_and(|body| body.life_no == life_no);
        if known { self.bodies.remove(&(step, attempt)) } else { None }
    }

    /// A body has ended after its life.
    fn ended_late(&self, step: StepNo, attempt: Attempt, end: Result<BodyEnd, ValueError>, slot: bool) {
        match end {
            Ok(end) => self.put_outcome(step, attempt, end, slot),
            Err(_) if slot => self.shared.slots.give(),
            Err(_) => {}
        }
    }

    fn dropped(&mut self, life_no: u64, step: StepNo, attempt: Attempt) {
        if self.forget(life_no, step, attempt).is_some_and(|body| body.slot) {
            self.shared.slots.give();
        }
    }

    /// Keeps what a life has left behind.
    fn take_left(&mut self, left: Left) {
        for (step, attempt, end, slot) in left.ends {
            self.put_outcome(step, attempt, end, slot);
        }
        for key in left.running {
            match self.bodies.get_mut(&key) {
                Some(body) => body.slot = true,
                None => self.shared.slots.give(),
            }
        }
        for key in left.nowhere {
            if let Some(body) = self.bodies.remove(&key) {
                body.abort.abort();
            }
        }
    }

    fn perform(&mut self, life: &mut Life) {
        for output in life.take_outputs() {
            match output {
                Output::Append(no, batch) => {
                    let (cell, life_no) = (self.cell.clone(), self.life_no);
                    let done = move |result| cell.tell(Input::Written(life_no, no, result));
                    self.shared.store.submit(Write::Append(batch), Box::new(done));
                }
                Output::ReadBack(from) => self.read_back(from),
                Output::Start(step, start) => self.start(step, start),
                Output::Abort(step, attempt) => {
                    if let Some(body) = self.bodies.get(&(step, attempt)) {
                        body.unwanted.send_replace(true);
                        body.abort.abort();
                    }
                }
                Output::Unwanted(step, attempt) => {
                    if let Some(body) = self.bodies.get(&(step, attempt)) {
                        body.unwanted.send_replace(true);
                    }
                }
                Output::Reconcile(step, start) => self.reconcile(step, start),
                Output::WantSlot => self.shared.slots.wait(&self.cell),
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
        self.bodies.insert((step, attempt), BodyTask { life_no, abort, unwanted, slot: false, outward });
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
            if life.log.is_settled() || life.lost.is_some() || life.log.trouble().is_some() {
                break;
            }
            self.cell.wake.notified().await;
        }
        self.looks.clear();
        self.take_left(life.leave());
        if let Some(Lost::Rejected { reason, .. }) = &life.lost {
            for (step, attempt) in life.log.unwritten_outcomes(life.state().next_step) {
                self.put_outcome(step, attempt, BodyEnd::NotRecordable { reason: reason.to_string() }, false);
            }
        }
        // What the life has not looked at is for the next one, which reads the mailbox.
        for body in self.bodies.values() {
            body.unwanted.send_replace(true);
        }
        let (run, epoch) = (self.cell.id.clone(), life.setting.epoch);
        self.shared.store.submit(Write::Release { run, epoch }, Box::new(|_| {}));
    }

    /// What is still to be appended, and nothing else.
    fn perform_last(&mut self, life: &mut Life) {
        for output in life.take_outputs() {
            if let Output::Append(no, batch) = output {
                let (cell, life_no) = (self.cell.clone(), self.life_no);
                let done = move |result| cell.tell(Input::Written(life_no, no, result));
                self.shared.store.submit(Write::Append(batch), Box::new(done));
            }
        }
    }

    /// Waits for the bodies of lives that are over; their outcomes go to the mailbox.
    async fn outlive(&mut self) {
        let mut abandon = self.shared.abandon.subscribe();
        while !self.bodies.is_empty() {
            self.take_late(false);
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
        for ((step, attempt), body) in std::mem::take(&mut self.bodies) {
            body.abort.abort();
            if !body.outward && !self.is_ended() {
                self.put_outcome(step, attempt, BodyEnd::ShutDown, body.slot);
            }
        }
    }

    /// A parked run: true when it is to be tried again, false when the runtime closes.
    async fn stand_by(&mut self) -> bool {
        let mut closing = self.shared.closing.subscribe();
        loop {
            if self.take_late(true) {
                return true;
            }
            tokio::select! {
                () = self.cell.wake.notified() => {}
                _ = closing.wait_for(|closing| *closing) => return false,
            }
        }
    }

    /// Inputs of a run without a life; true if it is to be tried again.
    fn take_late(&mut self, parked: bool) -> bool {
        let inputs = std::mem::take(&mut *lock(&self.cell.inbox));
        let mut retry = false;
        for input in inputs {
            match input {
                Input::Ended(life_no, step, attempt, end) => match self.forget(life_no, step, attempt) {
                    Some(body) if parked || !self.is_ended() => self.ended_late(step, attempt, end, body.slot),
                    Some(body) if body.slot => self.shared.slots.give(),
                    _ => {}
                },
                Input::Dropped(life_no, step, attempt) => self.dropped(life_no, step, attempt),
                Input::Retry => retry = true,
                Input::Look(answer) => {
                    let _ = answer.send(Look::default());
                }
                Input::Written(..) | Input::ReadBack(..) | Input::Reconciled(..) | Input::Row(_) => {}
            }
        }
        retry
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
    let put = Write::Put { run, row: row.clone() };
    let done = move |result| {
        match result {
            Err(StoreError::Refused { .. } | StoreError::Unknown { .. }) if !*shared.abandon.borrow() => {
                shared.tokio.clone().spawn(async move {
                    shared.clock.sleep(STORE_AGAIN).await;
                    put_row(shared, cell, row, slot);
                });
                return;
            }
            Ok(_) => cell.tell(Input::Row(row)),
            Err(e) => tracing::error!("an outcome could not be kept, its step will be in doubt: {e}"),
        }
        if slot {
            shared.slots.give();
        }
    };
    store.submit(put, Box::new(done));
}

/// Reads and replays a run; blocks on the store.
fn replay_blocking(
    shared: &Arc<Shared>,
    setting: Setting,
    code: &Code,
    inherited: BTreeMap<(StepNo, Attempt), bool>,
) -> Result<(Opened, Life), StoreError> {
    let rows = shared.store.rows(&setting.run)?;
    let (store, run, generation) = (shared.store.clone(), setting.run.clone(), setting.generation);
    let source = Box::new(move |from: Seq| store.read(&run, generation, from, READ_BYTES));
    let mut life = Life::new(setting, source);
    life.rows = rows.into();
    life.inherited = inherited;
    let opened = life.replay(shared.now(), &**code);
    Ok((opened, life))
}
