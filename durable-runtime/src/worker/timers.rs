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

/// Runs by when they are due.
type Due = BTreeMap<(Millis, RunId), Arc<RunCell>>;

/// Wakes runs at their times: one task for all of them.
#[derive(Default)]
pub(crate) struct Timers {
    /// By the monotonic clock, and by the wall clock.
    due: Mutex<[Due; 2]>,
    changed: Notify,
}

impl Timers {
    /// Wakes `cell` when the monotonic clock, or the wall clock, gets there.
    pub(super) fn set(&self, on_wall: bool, at: Millis, cell: &Arc<RunCell>) {
        let mut due = lock(&self.due);
        let due = &mut due[usize::from(on_wall)];
        let earliest = due.first_key_value().is_none_or(|((first, _), _)| *first > at);
        due.insert((at, cell.id.clone()), cell.clone());
        if earliest {
            self.changed.notify_one();
        }
    }

    pub(super) fn unset(&self, on_wall: bool, at: Millis, cell: &RunCell) {
        lock(&self.due)[usize::from(on_wall)].remove(&(at, cell.id.clone()));
    }

    /// Wakes whoever is due; answers how long until the next one is, or until the clocks must be looked at again.
    fn fire(&self, now: Now) -> Duration {
        let mut due = lock(&self.due);
        let mut wait = TICK;
        for (due, now) in due.iter_mut().zip([now.monotonic, now.wall]) {
            while let Some(first) = due.first_entry() {
                let at = first.key().0;
                if at > now {
                    wait = wait.min(Duration::from_millis(at - now));
                    break;
                }
                let cell = first.remove();
                cell.fired.store(true, Ordering::Relaxed);
                cell.wake();
            }
        }
        wait
    }

    pub(crate) async fn run(shared: Arc<Shared>) {
        let mut closing = shared.closing.subscribe();
        loop {
            let wait = shared.timers.fire(shared.now());
            let sleep = shared.clock.sleep(wait);
            // A clock that was set before the sleep began does not end it: look once more.
            shared.timers.fire(shared.now());
            tokio::select! {
                () = sleep => {}
                () = shared.timers.changed.notified() => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }
}
