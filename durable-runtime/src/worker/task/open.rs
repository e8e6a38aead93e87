//! How a life begins: claimed, in its turn, replayed from its log.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;

use super::{Beginning, Fate, Made, RunTask};
use crate::{
    clock::Millis,
    contract::{find_effect, settle_ms_of},
    core::Stop,
    drive::{Life, Opened, Setting},
    effect::panic_text,
    head::{Aside, ParkedInfo},
    id::{Attempt, Epoch, Seq, StepNo},
    park::DEATHS_MAX,
    store::{Record, StoreError, Write, Written},
    worker::{STORE_AGAIN, Shared, key_prefix},
};

/// Bytes of a log that are read at a time on replay.
const READ_BYTES: usize = 256 * 1024;
/// How often a log is tried that the store cannot read for now, before the run is parked.
const READS_MAX: u32 = 10;

impl RunTask {
    /// `has_turn`: it need not wait for one.
    pub(super) async fn open(&mut self, beginning: Beginning, has_turn: bool) -> Result<Life, Fate> {
        let fresh = beginning == Beginning::Fresh;
        let stored = matches!(beginning, Beginning::Released | Beginning::AfterCrash);
        if stored && self.aside.replaying && self.aside.deaths >= DEATHS_MAX {
            return Err(Fate::Parked(ParkedInfo::died(self.aside.deaths, self.shared.clock.wall())));
        }
        if let (true, Some(parked)) = (stored, &self.aside.parked)
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
        let marked = match fresh || has_turn {
            true => None,
            false => shared.marked.acquire().await.ok(),
        };
        if *shared.closing.borrow() {
            return Err(Fate::Closing);
        }
        if !fresh {
            // Durable with the claim, before the replay begins: whoever kills the process in it is found out.
            self.aside.deaths += 1;
            self.aside.replaying = true;
        }
        let run = self.cell.id.clone();
        let (epoch, frames) = match self.made.take() {
            Some(Made { epoch, frames }) => (epoch, frames),
            None => (self.claim().await?, None),
        };
        let limits = shared.limits;
        let setting = Setting {
            run,
            generation: self.generation,
            epoch,
            key_prefix: key_prefix(&self.shared, &self.cell.id, self.generation).into(),
            slots: self.shared.slots.clone(),
            value_bytes_max: limits.value_bytes_max,
            cancel_grace_ms: limits.cancel_grace.as_millis() as Millis,
            settle_ms: limits.settle.as_millis() as Millis,
            effects: find_effect,
            settles: settle_ms_of,
            code: self.shared.code_digest,
            after_crash: beginning == Beginning::AfterCrash,
            found: self.cell.found.swap(false, Ordering::Relaxed),
            again: !fresh,
        };
        let with_code = beginning != Beginning::WithoutCode;
        let replayed = match frames {
            Some(frames) => self.begin(setting, frames),
            None => self.replay(setting, with_code).await,
        };
        drop((marked, alone));
        if !fresh {
            // However it went, the process has survived it.
            self.aside = Aside { parked: self.aside.parked.take(), ..Aside::default() };
            let run = self.cell.id.clone();
            let survived = Arc::new(AtomicBool::new(false));
            self.survived = survived.clone();
            let noted = move |result: Result<Written, StoreError>| survived.store(result.is_ok(), Ordering::Relaxed);
            self.shared.store.submit(Write::Aside { run, value: None }, Box::new(noted));
        }
        let (opened, mut life) = replayed?;
        self.cancel_taken = life.state().cancel.is_some();
        for ((step, attempt), with_slot) in &life.adopted {
            if let Some(body) = self.bodies.get_mut(&(self.generation, *step, *attempt)) {
                // Its life may have given it back already.
                body.slot &= !with_slot;
            }
        }
        if !matches!(opened, Opened::Live) {
            self.take_left(life.leave());
        }
        match opened {
            Opened::Live => Ok(life),
            Opened::Ended => Err(Fate::of_end(life.state().ending.clone())),
            Opened::Stopped(stop) => Err(self.parked(&stop)),
            Opened::NoCode { workflow, module } => Err(Fate::NoCode { workflow, module }),
        }
    }

    pub(super) fn parked(&self, stop: &Stop) -> Fate {
        Fate::Parked(ParkedInfo::of(stop, self.shared.clock.wall()))
    }

    /// Polls a new run for the first time: there is nothing to read, so it need not go where reading may block.
    fn begin(&self, setting: Setting, frames: Bytes) -> Result<(Opened, Life), Fate> {
        let first = Record { first: Seq(0), count: 1, frames };
        let source = Box::new(move |from| Ok(if from == Seq(0) { vec![first.clone()] } else { Vec::new() }));
        let begun = catch_unwind(AssertUnwindSafe(|| {
            let mut life = Life::new(setting, source);
            (life.replay(self.shared.now(), Some(&*self.shared.code)), life)
        }));
        begun.map_err(|payload| self.parked(&Stop::Panicked { message: panic_text(payload), after: None }))
    }

    /// Replays the log; a store that cannot read for now is asked again, for a while.
    async fn replay(&mut self, mut setting: Setting, with_code: bool) -> Result<(Opened, Life), Fate> {
        let elapsing: Arc<[_]> = std::mem::take(&mut self.elapsing).into();
        let inherited = self.bodies.iter().filter(|((generation, ..), _)| *generation == self.generation);
        let inherited: BTreeMap<_, _> =
            inherited.map(|((_, step, attempt), body)| ((*step, *attempt), body.slot)).collect();
        for left in (0..READS_MAX).rev() {
            let permit = self.shared.replays.acquire().await.ok();
            let (shared, setting_now, inherited, elapsing) =
                (self.shared.clone(), setting.clone(), inherited.clone(), elapsing.clone());
            // A new run's first poll is in there as well, and what it logs belongs to the run.
            let span = tracing::Span::current();
            let replay_it =
                move || span.in_scope(|| replay_blocking(&shared, setting_now, with_code, inherited, &elapsing));
            let replayed = self.shared.tokio.spawn_blocking(replay_it).await;
            drop(permit);
            let failed = match replayed {
                Ok(Ok((Opened::Stopped(Stop::Store(e)), _)) | Err(e)) => e,
                Ok(Ok(replayed)) => return Ok(replayed),
                Err(e) => {
                    return Err(match e.try_into_panic() {
                        Ok(payload) => self.parked(&Stop::Panicked { message: panic_text(payload), after: None }),
                        // The tokio runtime is shutting down.
                        Err(_) => Fate::Gone,
                    });
                }
            };
            if left == 0 || !failed.may_pass() {
                return Err(self.parked(&Stop::Store(failed)));
            }
            tracing::warn!("cannot read the run's log, and tries again: {failed}");
            self.again_later().await?;
            setting.again = true;
        }
        unreachable!("the last try returns");
    }

    /// Waits before the store is asked again.
    async fn again_later(&self) -> Result<(), Fate> {
        let mut closing = self.shared.closing.subscribe();
        tokio::select! {
            () = self.shared.clock.sleep(STORE_AGAIN) => Ok(()),
            _ = closing.wait_for(|closing| *closing) => Err(Fate::Closing),
        }
    }

    /// Claims the run; a store that refuses for now is asked again, so that no run is forgotten.
    async fn claim(&self) -> Result<Epoch, Fate> {
        loop {
            let (run, aside) = (self.cell.id.clone(), self.aside.bytes());
            match self.shared.write(Write::Claim { run, aside }).await {
                Ok(Written::Claimed(epoch)) => return Ok(epoch),
                Err(e) if e.may_pass() => {
                    tracing::warn!("cannot claim the run, and tries again: {e}");
                    self.again_later().await?;
                }
                Ok(_) | Err(StoreError::Closed) => return Err(Fate::Gone),
                Err(e) => {
                    tracing::warn!("cannot claim the run, and leaves it to the next process: {e}");
                    return Err(Fate::Gone);
                }
            }
        }
    }
}

/// Reads and replays a run; blocks on the store.
fn replay_blocking(
    shared: &Arc<Shared>,
    setting: Setting,
    with_code: bool,
    inherited: BTreeMap<(StepNo, Attempt), bool>,
    elapsing: &[(StepNo, Millis)],
) -> Result<(Opened, Life), StoreError> {
    // First the number, then the rows: of those up to it none is missing but what earlier lives have taken.
    let version = shared.store.run(&setting.run)?.map_or(0, |record| record.version);
    let rows = shared.store.rows(&setting.run, 0, usize::MAX)?;
    let (store, run, generation) = (shared.store.clone(), setting.run.clone(), setting.generation);
    let source = Box::new(move |from: Seq| store.read(&run, generation, from, READ_BYTES));
    let mut life = Life::new(setting, source);
    life.mail(rows);
    life.mailbox.has_seen(version);
    life.inherited = inherited;
    life.sleeps.known = elapsing.iter().copied().collect();
    let opened = life.replay(shared.now(), with_code.then_some(&*shared.code));
    Ok((opened, life))
}
