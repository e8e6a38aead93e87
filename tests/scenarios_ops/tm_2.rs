//! O-TM-2: very long sleeps.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use durable::{Clock, EffectContext, Status, TestClock};

use crate::{
    bench::{BEGINNING, BOTH, Backend, Bench, millis, secs},
    world::World,
};

const DAY: u64 = 86_400;

#[durable::workflow]
async fn long(wait: Duration) {
    durable::sleep(wait).await;
}

#[durable::workflow]
async fn until_then(deadline: SystemTime) {
    durable::sleep_until(deadline).await;
}

/// Notes how long it is slept on.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) clock: TestClock,
    pub(crate) sleeps: Arc<Mutex<Vec<Duration>>>,
}

impl Watched {
    pub(crate) fn new() -> Watched {
        Watched { clock: TestClock::at(BEGINNING), sleeps: Arc::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.sleeps.lock().unwrap().len()
    }
}

impl Clock for Watched {
    fn wall(&self) -> u64 {
        self.clock.wall()
    }

    fn monotonic(&self) -> u64 {
        self.clock.monotonic()
    }

    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleeps.lock().unwrap().push(wait);
        self.clock.sleep(wait)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_of_weeks_or_a_century_ends_then_and_not_before() {
    for backend in BOTH {
        for length in [secs(25 * DAY), secs(50 * DAY), secs(36_525 * DAY)] {
            let bench = Bench::on(backend).await;
            bench.runtime.start("run", long(length)).await.unwrap();
            bench.until_word("run", "sleeping").await;
            let bench = bench.restarted().await;
            bench.until_word("run", "sleeping").await;
            bench.advance(length - millis(1)).await;
            assert_eq!(bench.status("run").await.as_str(), "sleeping");
            bench.advance(millis(1)).await;
            bench.end("run").await;
            bench.replays("run").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sleeps_that_no_date_describes_are_slept_and_read_back() {
    let year_9999 = UNIX_EPOCH + secs(253_402_300_799);
    let last = (0..64).rev().map(|bit| secs(1 << bit)).fold(UNIX_EPOCH, |t, d| t.checked_add(d).unwrap_or(t));
    for backend in BOTH {
        let mut bench = Bench::on(backend).await;
        bench.runtime.start("max", long(Duration::MAX)).await.unwrap();
        bench.runtime.start("millis", long(millis(u64::MAX))).await.unwrap();
        bench.runtime.start("9999", until_then(year_9999)).await.unwrap();
        bench.runtime.start("last", until_then(last)).await.unwrap();
        for _ in 0..2 {
            for id in ["max", "millis", "9999", "last"] {
                let status = bench.until_word(id, "sleeping").await;
                assert!(!format!("{status:?}").is_empty());
                assert!(bench.log(id).await.iter().all(|entry| !entry.to_string().is_empty()));
                bench.stands(id).await;
            }
            bench.advance(secs(200 * 366 * DAY)).await;
            assert!(matches!(bench.status("max").await, Status::Sleeping { .. }));
            bench = bench.restarted().await;
        }
        // Year 9999 comes by the wall clock.
        bench.until_word("9999", "sleeping").await;
        bench.clock.set_wall(year_9999.duration_since(UNIX_EPOCH).unwrap());
        bench.end("9999").await;
        bench.replays("9999").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_sleeps_long_wakes_nobody_meanwhile() {
    let watched = Watched::new();
    let clock = watched.clone();
    let bench = Bench::built(Backend::Memory, |builder| builder.clock(clock).evict_after(secs(25 * DAY))).await;
    for n in 0..100 {
        bench.runtime.start(format!("run {n}"), long(secs(25 * DAY + n))).await.unwrap();
        bench.until_word(&format!("run {n}"), "sleeping").await;
    }
    bench.looked().await;
    let before = watched.count();
    // The one task for all timers is asleep; nobody else looks at the clock, however often runs are looked at.
    for _ in 0..20 {
        bench.looked().await;
    }
    assert_eq!(watched.count(), before, "nobody sleeps anew while time stands still");
    let wait = *watched.sleeps.lock().unwrap().last().unwrap();
    assert!(wait >= secs(6), "less than ten wake-ups a minute: {wait:?}");
}

#[durable::effect(idempotent, retry(attempts = 3, first = "3650000d", max = "3650000d"), timeout = "3650000d")]
async fn patient(cx: &EffectContext, #[resource] world: &World) -> durable::Result<()> {
    world.note(cx, "");
    Err(durable::Failure::new("in ten thousand years"))
}

#[durable::workflow]
async fn patience() -> durable::Result<()> {
    patient().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_back_off_of_ten_thousand_years_is_kept() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", patience()).await.unwrap();
        bench.until_word("run", "retrying").await;
        let bench = bench.restarted().await;
        let status = bench.until_word("run", "retrying").await;
        assert_eq!(bench.world.bodies("patient"), 1);
        assert!(bench.log("run").await.iter().all(|entry| !entry.to_string().is_empty()), "{status:?}");
    }
}
