//! Sleeps.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use super::{Name, Step, Wait, named, only_in_workflows, sealed::Sealed};
use crate::{clock::millis, contract::Site, core::Until};

/// A sleep of a run; see [`sleep`] and [`sleep_until`].
#[must_use = "a sleep does nothing until a workflow awaits it"]
#[derive(Debug)]
pub struct Sleep {
    name: Name,
    until: Until,
}

named!([] Sleep);
only_in_workflows!([] Sleep);

/// Sleeps for `duration`, also over restarts of the process.
///
/// While the process lives, the time that passes is measured by its monotonic clock, so setting the machine's clock
/// neither shortens nor lengthens the sleep; the deadline in the log, taken from the wall clock when the sleep was
/// appended, decides only after a restart. Changing the duration in the code changes nothing for a sleep that is in the
/// log. A duration too long for 64 bits of milliseconds since 1970 sleeps until then, some 584 million years.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { name: "sleep".into(), until: Until::After(duration) }
}

/// Sleeps until the wall clock shows `deadline`; a time that is past is due at once.
pub fn sleep_until(deadline: SystemTime) -> Sleep {
    Sleep { name: "sleep_until".into(), until: Until::At(millis(deadline)) }
}

impl Sealed for Sleep {}

impl Step for Sleep {
    type Output = ();
    type Future = SleepFuture;

    fn into_future(self, site: &'static Site) -> SleepFuture {
        SleepFuture { wait: Wait::New(self), site }
    }
}

/// A sleep that is awaited.
#[doc(hidden)]
pub struct SleepFuture {
    wait: Wait<Sleep>,
    site: &'static Site,
}

impl Future for SleepFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let site = self.site;
        match self.wait.poll(|core, sleep| core.ask_timer(sleep.name, sleep.until, site)) {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    }
}
