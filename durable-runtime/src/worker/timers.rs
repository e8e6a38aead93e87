//! One task that wakes all runs at their times.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use super::{RunCell, Shared, lock};
use crate::{clock::Millis, drive::Now, id::RunId};

/// Longest time without a look at the clock: a wall clock that was set is noticed within it.
const TICK: Duration = Duration::from_secs(10);

/// Runs by when they are due; without a cell if they are not in memory.
type Due = BTreeMap<(Millis, RunId), Option<Arc<RunCell>>>;

/// Wakes runs at their times: one task for all of them.
#[derive(Default)]
pub(crate) struct Timers {
    /// By the monotonic clock, and by the wall clock.
    due: Mutex<[Due; 2]>,
    changed: Notify,
}

impl Timers {
    /// Wakes a run when the monotonic clock, or the wall clock, gets there.
    pub(super) fn set(&self, on_wall: bool, at: Millis, run: &RunId, cell: Option<&Arc<RunCell>>) {
        let mut due = lock(&self.due);
        let due = &mut due[usize::from(on_wall)];
        let earliest = due.first_key_value().is_none_or(|((first, _), _)| *first > at);
        due.insert((at, run.clone()), cell.cloned());
        if earliest {
            self.changed.notify_one();
        }
    }

    pub(super) fn unset(&self, on_wall: bool, at: Millis, run: &RunId) {
        lock(&self.due)[usize::from(on_wall)].remove(&(at, run.clone()));
    }

    /// Wakes whoever is due; answers how long until the next one is, or until the clocks must be looked at again.
    fn fire(&self, now: Now, nudge: &mut Vec<RunId>) -> Duration {
        let mut due = lock(&self.due);
        let mut wait = TICK;
        for (due, now) in due.iter_mut().zip([now.monotonic, now.wall]) {
            while let Some(first) = due.first_entry() {
                let (at, run) = first.key();
                let at = *at;
                if at > now {
                    wait = wait.min(Duration::from_millis(at - now));
                    break;
                }
                let run = run.clone();
                match first.remove() {
                    Some(cell) => {
                        cell.fired.store(true, Ordering::Relaxed);
                        cell.wake();
                    }
                    None => nudge.push(run),
                }
            }
        }
        wait
    }

    pub(crate) async fn run(shared: Arc<Shared>) {
        let mut closing = shared.closing.subscribe();
        loop {
            let mut nudge = Vec::new();
            let wait = shared.timers.fire(shared.now(), &mut nudge);
            let sleep = shared.clock.sleep(wait);
            // A clock that was set before the sleep began does not end it: look once more.
            shared.timers.fire(shared.now(), &mut nudge);
            nudge.iter().for_each(|run| shared.nudge(run));
            tokio::select! {
                () = sleep => {}
                () = shared.timers.changed.notified() => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }
}
