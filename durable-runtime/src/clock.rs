//! Clocks: the one place where time is read.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;

/// Milliseconds: since 1970 in UTC, or since some moment of this process.
pub type Millis = u64;

/// What the runtime knows of time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock: milliseconds since 1970 in UTC. It may be set back and forth.
    fn wall(&self) -> Millis;
    /// A clock that only goes forward: milliseconds since some moment of this process.
    fn monotonic(&self) -> Millis;
    /// Returns after about `wait` of the monotonic clock, or earlier if the clock was set.
    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The machine's clocks. The default.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clocks; the monotonic one counts from now.
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    fn wall(&self) -> Millis {
        millis(SystemTime::now())
    }

    fn monotonic(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }

    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(wait))
    }
}

/// A clock that stands still until it is moved, for tests. Clones are one clock.
///
/// ```
/// use std::time::Duration;
/// use durable::{Clock, TestClock};
/// let clock = TestClock::at(Duration::from_secs(1_700_000_000));
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.wall(), 1_700_000_060_000);
/// ```
#[derive(Clone, Debug)]
pub struct TestClock {
    time: Arc<Mutex<(Millis, Millis)>>,
    changed: watch::Sender<()>,
}

impl TestClock {
    /// A clock whose wall shows this time after 1970; its monotonic time is 0.
    pub fn at(since_1970: Duration) -> TestClock {
        TestClock { time: Arc::new(Mutex::new((since_1970.as_millis() as Millis, 0))), changed: watch::Sender::new(()) }
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.change(|(wall, monotonic)| {
            *wall = wall.saturating_add(by);
            *monotonic = monotonic.saturating_add(by);
        });
    }

    /// Sets the wall clock, as a person or a time server does; no time passes.
    pub fn set_wall(&self, since_1970: Duration) {
        self.change(|(wall, _)| *wall = since_1970.as_millis() as Millis);
    }

    fn change(&self, change: impl FnOnce(&mut (Millis, Millis))) {
        change(&mut self.time.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
    }

    fn read(&self) -> (Millis, Millis) {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Millis {
        self.read().0
    }

    fn monotonic(&self) -> Millis {
        self.read().1
    }

    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut changed = self.changed.subscribe();
        let over = self.read().1.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let clock = self.clone();
        Box::pin(async move {
            if clock.read().1 < over {
                let _ = changed.changed().await;
            }
        })
    }
}

/// Waits until so much of the monotonic clock has passed since the call, however often the clock is set meanwhile.
pub(crate) fn pass(clock: &dyn Clock, wait: Duration) -> impl Future<Output = ()> {
    let over = clock.monotonic().saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    async move {
        loop {
            let now = clock.monotonic();
            if now >= over {
                return;
            }
            let sleep = clock.sleep(Duration::from_millis(over - now));
            // A clock that was set before the sleep began does not end it.
            if clock.monotonic() == now {
                sleep.await;
            }
        }
    }
}

/// Milliseconds since 1970; earlier times are 0, and times past 64 bits the last that there is.
pub(crate) fn millis(time: SystemTime) -> Millis {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        Err(_) => 0,
    }
}

/// The time that [`millis`] gave, or the last one that the platform knows.
pub(crate) fn system_time(millis: Millis) -> SystemTime {
    let mut since = Duration::from_millis(millis);
    loop {
        match UNIX_EPOCH.checked_add(since) {
            Some(time) => return time,
            None => since /= 2,
        }
    }
}
