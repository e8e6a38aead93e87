//! Bodies under way, going on with parked runs, and shutting down.

use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use super::Runtime;
use crate::{
    clock::{pass, system_time},
    error::{Error, Kind},
    head::Aside,
    id::{Attempt, RunId},
    store::Write,
    worker::{BodyInfo, Input, Phase, Shared},
};

/// What [`Runtime::shutdown`] left behind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Bodies that did not return within the grace and were dropped: their steps are in doubt, or run again, at the next
    /// start.
    pub abandoned: Vec<RunningBody>,
}

/// A body of an effect that is under way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunningBody {
    /// The run.
    pub run: RunId,
    /// The effect.
    pub effect: &'static str,
    /// The step's path.
    pub path: String,
    /// The attempt.
    pub attempt: Attempt,
    /// Since when.
    pub since: SystemTime,
}

impl From<BodyInfo> for RunningBody {
    fn from(info: BodyInfo) -> Self {
        let BodyInfo { run, effect, path, attempt, since } = info;
        RunningBody { run, effect, path, attempt, since: system_time(since) }
    }
}

impl Runtime {
    /// Bodies of effects that are under way in this process, those that nobody waits for any more included.
    pub fn bodies(&self) -> Vec<RunningBody> {
        self.shared().bodies.all().into_iter().map(RunningBody::from).collect()
    }

    /// Goes on with a parked run. If the reason is still there it is parked again.
    ///
    /// In a runtime that observes, the run is tried by the next process that opens the store.
    ///
    /// # Errors
    ///
    /// There is no such run, or it is not parked.
    pub async fn retry(&self, run: impl AsRef<str>) -> Result<(), Error> {
        let id = RunId::new(run)?;
        let cell = self.shared().runs().get(&id).cloned();
        if let Some(cell) = cell {
            let mut phase = cell.phase.subscribe();
            let stands = matches!(*phase.borrow_and_update(), Phase::Parked(_) | Phase::NoCode { .. });
            if stands {
                cell.tell(Input::Retry);
                // It is not parked any more when this returns; where it gets to is another question.
                let _ = phase.changed().await;
                return Ok(());
            }
        }
        let record = self.record(&id).await?;
        if self.shared().observing && record.head.live && Aside::read(record.aside.as_ref()).parked.is_some() {
            self.shared().write(Write::Aside { run: id, value: None }).await?;
            return Ok(());
        }
        let state = self.state(&id).await?;
        Err(Kind::NotParked { run: id, state }.into())
    }

    /// Stops: no run is polled any more, no body begins; bodies under way have `grace` to return, and what they return is kept. Then the store
    /// is closed and can be opened again.
    ///
    /// # Errors
    ///
    /// What the store says when it is closed.
    pub async fn shutdown(&self, grace: Duration) -> Result<ShutdownReport, Error> {
        let shared = self.shared();
        // Begun before anybody can see that it shuts down.
        let grace_is_over = pass(&*shared.clock, grace);
        shared.closing.send_replace(true);
        tokio::select! {
            () = idle(shared) => {}
            () = grace_is_over => {}
        }
        // Whoever shuts down once more is not told again: what was dropped then may not be gone yet.
        let abandoned = if *shared.abandon.borrow() { Vec::new() } else { self.bodies() };
        shared.abandon.send_replace(true);
        idle(shared).await;
        shared.read(|store| store.close()).await?;
        Ok(ShutdownReport { abandoned })
    }
}

/// Waits until no run has a task.
async fn idle(shared: &Shared) {
    loop {
        let idle = shared.idle.notified();
        if shared.tasks.load(Ordering::SeqCst) == 0 {
            return;
        }
        idle.await;
    }
}
